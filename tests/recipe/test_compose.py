"""The configuration: composed from the groups, strict, with suggestions."""

import pytest

from clawrl_gym.config import EvaluateConfig, RunConfig, ServeConfig
from clawrl_gym.config.compose import compose, groups_of
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.terminal.config import TerminalEnvConfig


def test_the_default_run_composes_single_skills_of_the_terminal() -> None:
    config = compose("train", [], RunConfig)
    assert isinstance(config.env, TerminalEnvConfig)
    assert config.env.tasks == "plain"
    assert config.policy.model == "tiny_skills"
    assert config.policy.max_model_len == 2048
    assert compose("train", ["env=terminal"], RunConfig).policy.model == "tiny"


@pytest.mark.parametrize(
    "arguments", [["env=[terminal,toolcall]"], ["mixture={terminal:2,toolcall:1}"]]
)
def test_a_mixture_has_nothing_of_what_suits_the_default_environment(arguments: list[str]) -> None:
    config = compose("train", arguments, RunConfig)
    assert (config.policy.model, config.trainer.steps) == ("tiny", 20)


def test_any_known_key_can_be_set_even_when_no_file_lists_it() -> None:
    config = compose(
        "train", ["env.sandbox.memory_mb=256", "seed=7", "rollout.groups=4"], RunConfig
    )
    assert isinstance(config.env, TerminalEnvConfig)
    assert (config.env.sandbox.memory_mb, config.seed, config.rollout.groups) == (256, 7, 4)


def test_a_policy_brings_its_own_learning_rate_and_the_command_line_wins() -> None:
    assert compose("train", ["policy=qwen3_4b"], RunConfig).learner.lr == 1e-6
    assert compose("train", ["policy=qwen3_4b", "learner.lr=0.5"], RunConfig).learner.lr == 0.5


def test_one_policy_in_one_environment_has_what_suits_it_and_nobody_else_has() -> None:
    tuned = compose("train", ["env=toolcall"], RunConfig)
    assert tuned.learner.lr == 4e-4
    assert compose("train", ["env=toolcall", "learner.lr=0.5"], RunConfig).learner.lr == 0.5
    assert compose("train", ["env=toolcall", "policy=qwen3_4b"], RunConfig).learner.lr == 1e-6
    assert compose("train", ["env=terminal"], RunConfig).learner.lr == 8e-4


NEEDED = {
    "agent=cli": ["agent.name=codex"],
    "agent=harness": ["agent.command=[program]"],
}
"""What an option does not go without."""


def test_every_option_of_every_group_composes() -> None:
    for group, options in groups_of("train").items():
        for option in options:
            chosen = f"{group}={option}"
            compose("train", [chosen, *NEEDED.get(chosen, [])], RunConfig)


@pytest.mark.parametrize("env", ["terminal", "swe", "toolcall"])
@pytest.mark.parametrize("sandbox", ["bubblewrap", "docker"])
def test_what_isolates_an_environment_is_chosen_by_one_word(env: str, sandbox: str) -> None:
    config = compose("train", [f"env={env}", f"sandbox={sandbox}"], RunConfig)
    assert config.env.model_dump()["sandbox"]["type"] == sandbox


@pytest.mark.parametrize("override", ["env.id=My-v0", "env.target=my_pkg.my_mod:MyEnv"])
def test_an_environment_of_ones_own_needs_no_group(override: str) -> None:
    assert isinstance(compose("train", [override], RunConfig).env, GymEnvConfig)


@pytest.mark.parametrize(("command", "model"), [("train", RunConfig), ("evaluate", EvaluateConfig)])
def test_tasks_of_ones_own_are_a_terminals_and_take_nothing_of_the_usual_environment(
    command: str, model: type[RunConfig | EvaluateConfig]
) -> None:
    alone, named = (
        compose(command, [*chosen, "env.tasks=my/tasks"], model)
        for chosen in ([], ["env=terminal"])
    )
    assert alone == named
    assert alone.policy.model != compose(command, [], model).policy.model
    toolcall = compose("train", ["experiment=general_toolcall", "env.tasks=shop"], RunConfig)
    assert toolcall.env.type == "toolcall", "a recipe names its environment"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.tsks=x"], r"unknown configuration key 'env.tsks'; did you mean 'env.tasks'\?"),
        (["learnr.lr=1"], r"unknown configuration key 'learnr.*did you mean 'learner"),
        (["rollout.group=3"], r"did you mean 'rollout.groups'"),
        (["policy=tinny"], r"Could not find 'policy/tinny'.*tiny"),
        (["trainer.steps=abc"], r"trainer.steps: got 'abc'.*integer"),
        (["trainer.steps=0"], r"trainer.steps: got 0.*greater than or equal to 1"),
        (["policy.sampling.top_p=0.9"], r"got policy.sampling.*top_p 0.9, expected.*top_p 1"),
        (["foo"], r"got 'foo', expected KEY=VALUE"),
        (["env.max_turns=[1"], r"max_turns"),
    ],
)
def test_a_mistake_is_one_clear_line(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        compose("train", overrides, RunConfig)
    assert "\n" not in str(caught.value)


def test_configurations_are_frozen() -> None:
    config = compose("train", [], RunConfig)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3  # type: ignore[misc]


def test_known_keys_reach_into_both_kinds_of_environment() -> None:
    assert {"env.sandbox.pids", "env.kwargs", "learner.lr"} <= set(RunConfig.dotted_keys())


def test_serving_composes_with_every_option_and_leaves_out_what_a_policy_says_of_training() -> None:
    config = compose("serve", ["policy=qwen3_0_6b"], ServeConfig)
    assert (config.learner.schedule, config.learner.checkpoint_every) == ("constant", "auto")
    config = compose("serve", [], ServeConfig)
    assert config.learner.schedule == "inverse", "conf/tuned/tiny_live.yaml"
    assert config.live.rules.kinds, "the rules of conf/live"
    for group, options in groups_of("serve").items():
        judge = [] if group == "judge" else ["judge=feedback"]  # rules take long to compose
        for option in options:
            compose("serve", [f"{group}={option}", *judge], ServeConfig)
    with pytest.raises(ConfigError, match=r"unknown configuration key 'rollout"):
        compose("serve", ["rollout.groups=3"], ServeConfig)


def test_the_conversation_environment_brings_the_rule_judge_unless_told_otherwise() -> None:
    assert compose("train", ["env=conversation"], RunConfig).judge.type == "rule"
    assert compose("train", ["env=conversation", "judge=none"], RunConfig).judge.type == "none"
    assert compose("train", [], RunConfig).judge.type == "none"
