"""Several environments in one run: how they are composed, drawn, played, judged and counted."""

import asyncio
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from clawrl_gym.cluster.envs import stages_of
from clawrl_gym.config import AgentConfig, RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Episode, Group, StopReason, TaskRef, Verdict
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.preflight.preflight import preflight_training
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.collection.worker import RolloutWorker
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.stage import Stage, limits_of, resources_of
from clawrl_gym.rollout.evaluation import Evaluation
from clawrl_gym.run.counts import TrainingCounts
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.model_card import model_card
from clawrl_gym.trainers.algorithms.binary import Binary
from clawrl_gym.ui.report import facts, write_report
from clawrl_gym.ui.run_data import read_run
from clawrl_gym.ui.state import RunState
from clawrl_gym.ui.training import TRAINING
from tests.support.fake_run import make_run
from tests.support.gateway_rig import Bench


def configured(*overrides: str) -> RunConfig:
    return compose("train", overrides, RunConfig)


def test_each_environment_has_what_it_would_have_alone() -> None:
    mixed = configured("env=[terminal,conversation,swe]", "mixture={terminal:2}", "seed=4")
    for name, domain in mixed.mixture.items():
        alone = configured(f"env={name}", "seed=4")
        assert domain.env == alone.env
        assert domain.judge == alone.judge
        assert domain.agent == alone.agent
        assert domain.envs_per_worker == alone.rollout.envs_per_worker
        assert domain.episode_timeout_s in (None, alone.rollout.episode_timeout_s)
    assert [domain.weight for domain in mixed.mixture.values()] == [2.0, 1.0, 1.0]
    assert mixed.env_name == "terminal+conversation+swe"
    assert mixed.env == mixed.mixture["terminal"].env
    assert mixed.judge.type == "none"
    assert stages_of(mixed)["swe"].timeout_s == 1800
    assert stages_of(mixed)["terminal"].timeout_s == mixed.rollout.episode_timeout_s
    assert RunConfig.of(mixed.model_dump()) == mixed, "as a run's config.yaml says it"


@pytest.mark.parametrize(
    ("overrides", "model", "max_tokens"),
    [
        (["env=[terminal,toolcall,gui,conversation]"], "tiny", 128),
        (["env=[terminal,gui]", "policy.model=runs/one"], "runs/one", 128),
        (["env=[terminal,gui]", "policy.sampling.max_tokens=50"], "tiny", 50),
        (["env=[terminal,toolcall]"], "tiny", 96),
        (["env=[terminal_plain,toolcall]"], "tiny", 96),
        (["env=[terminal_plain,toolcall_plain]"], "tiny_skills", 96),
        (["env=[terminal_plain,toolcall_plain]", "policy.model=runs/one"], "runs/one", 96),
        (["env=[terminal,gui]", "policy=qwen3_0_6b"], "Qwen/Qwen3-0.6B", 1024),
    ],
)
def test_the_policy_of_a_mixture_writes_as_long_as_its_longest_environment_allows(
    overrides: list[str], model: str, max_tokens: int
) -> None:
    policy = configured(*overrides).policy
    assert (policy.model, policy.sampling.max_tokens) == (model, max_tokens)


def test_what_all_environments_of_a_mixture_choose_alone_is_its_own() -> None:
    rate = configured("env=toolcall_plain").learner.lr
    assert configured("env=[terminal_plain,toolcall_plain]").learner.lr == rate
    assert configured("env=[terminal_plain,toolcall]").learner.lr != rate
    given = configured("env=[terminal_plain,toolcall_plain]", "learner.lr=0.002")
    assert given.learner.lr == 0.002


def test_one_environment_is_a_mixture_of_one_without_a_name() -> None:
    config = configured("env=toolcall")
    assert config.mixture == {}
    ((name, domain),) = config.domains.items()
    assert (name, domain.env, domain.agent, domain.judge) == (
        "", config.env, config.agent, config.judge,
    )  # fmt: skip
    assert config.env_name == "toolcall"


def test_two_forms_of_one_kind_have_names_of_their_own() -> None:
    config = configured(
        "env=[terminal,copies]", "mixture.copies.env.type=terminal",
        "mixture.copies.env.families=[copy]", "mixture.copies.agent.protocol=text",
    )  # fmt: skip
    assert config.mixture["copies"].env.model_dump()["families"] == ["copy"]
    assert config.mixture["terminal"].env.model_dump()["families"] is None
    assert config.mixture["copies"].agent.protocol == "text"


def test_a_judge_that_the_command_line_names_is_everyones() -> None:
    config = configured("env=[terminal,conversation]", "judge=rule")
    assert {domain.judge.type for domain in config.mixture.values()} == {"rule"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env=[terminal,terminal]"], r"with terminal twice, expected each name once"),
        (["env=[]"], r"got env=\[\], expected names such as"),
        (["env=[terminal,my_pkg.env:Mine]"], r"mixture\.mine\.env\.type=my_pkg"),
        (["env=[terminal,moon]"], r"mixture\.moon: got env='moon'"),
        (["env=[terminal,toolcall]", "mixture={gui:1}"], r"got mixture\.gui with env=\[term"),
        (["env=[terminal,toolcall]", "mixture.toolcall.weight=0"], r"toolcall\.weight: got 0"),
        (["env=[terminal,toolcall]", "mixture={toolcall:-1}"], r"toolcall\.weight: got -1"),
        (["env=[terminal,toolcall]", "mixture={toolcall:.inf}"], r"mixture\.toolcall\.weight"),
        (["mixture={terminal:much}"], r"got mixture\.terminal='much', expected a weight"),
        (["mixture=3"], r"got mixture=3, expected weights by name"),
        (["mixture=[terminal]"], r"expected weights by name"),
        (["env=terminal", "mixture={toolcall:1}"], r"got env=terminal with a mixture"),
        (["env=[terminal,gui]", "env.max_turns=3"], r"mixture\.terminal\.env\.max_turns=VALUE"),
        (["env=[terminal,gui]", "agent=text"], r"mixture\.terminal\.agent\.type=VALUE"),
        (["env=[terminal,gui]", "mixture.gui.env.max_turn=3"], r"unknown .*max_turn"),
    ],
)
def test_what_cannot_be_mixed_is_refused_in_words(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(*overrides)


def test_other_commands_have_one_environment() -> None:
    from clawrl_gym.config import EvaluateConfig

    with pytest.raises(ConfigError, match="call evaluate once for each"):
        compose("evaluate", ["env=[terminal,toolcall]"], EvaluateConfig)


def test_the_preflight_looks_at_every_environment(tmp_path: Path) -> None:
    config = configured(
        "env=[toolcall,conversation,gui]", "mixture.gui.env.observation=both",
        "mixture.toolcall.env.tasks=/nowhere/tasks.json", f"run.dir={tmp_path / 'run'}",
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        preflight_training(config)
    lines = str(caught.value).splitlines()
    assert any("/nowhere/tasks.json" in line for line in lines)
    assert any("mixture.gui.env.observation" in line for line in lines)


def mixture(**weights: float) -> Mixture:
    samplers = {
        name: TaskSampler(
            {"train": [f"{name}-{n}" for n in range(9)], "heldout": [f"{name}-h{n}" for n in "12"]},
            seed=5,
        )
        for name in weights
    }
    return Mixture(samplers, weights)


def test_any_run_of_groups_holds_environments_by_their_weights() -> None:
    tasks = mixture(a=2, b=1, c=0.5)
    drawn = [tasks.train(number) for number in range(70)]
    assert Counter(task.env for task in drawn) == {"a": 40, "b": 20, "c": 10}
    for start in range(60):
        assert abs(sum(task.env == "a" for task in drawn[start : start + 7]) - 4) <= 1
    assert all(str(task.id).startswith(task.env) for task in drawn)
    assert mixture(a=2, b=1, c=0.5).train(33) == drawn[33], "whatever was asked before"


def test_held_out_tasks_are_so_many_of_each() -> None:
    names = [(task.env, task.id) for task in mixture(a=3, b=1).heldout(2)]
    assert sorted(names) == [("a", "a-h1"), ("a", "a-h2"), ("b", "b-h1"), ("b", "b-h2")]


def test_one_environment_alone_draws_what_it_always_drew() -> None:
    sampler = TaskSampler({"train": list("abc"), "heldout": []}, seed=5)
    alone = Mixture({"": sampler})
    assert [alone.train(n) for n in range(20)] == [sampler.train(n) for n in range(20)]


async def test_a_worker_plays_each_task_on_its_own_stage_with_its_own_agent(bench: Bench) -> None:
    said = GymEnvConfig(target="tests.e2e.guess_env:SayEnv", max_turns=2)
    plain = GymEnvConfig(target="tests.rollout.test_films:PlainEnv", max_turns=1)
    stages = {
        "said": Stage(said, AgentConfig(type="text", system="You say."), 30.0),
        "plain": Stage(plain, AgentConfig(type="text", system="You go."), 30.0),
    }
    address = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    worker = RolloutWorker(stages, 1, address, 10.0)
    limits = limits_of(stages)
    for number, env in enumerate(("said", "plain", "said")):
        task = TaskRef(None, 3, "train", env)
        spec = EpisodeSpec(f"e{number}", 1, task, limits[env].max_turns, limits[env].timeout_s)
        episode = await worker.run(spec)
        assert episode.error is None
        assert episode.task.env == env
        turn = (await bench.store.turns_of(f"e{number}"))[0]
        system = turn.messages[0].get("content")
        assert system == ("You go." if env == "plain" else "You say.")
    await worker.close()


async def test_a_stage_may_hold_fewer_episodes_than_its_worker(bench: Bench) -> None:
    env = GymEnvConfig(target="tests.rollout.test_films:PlainEnv", max_turns=1)
    stages = {"a": Stage(env, AgentConfig(type="text"), 30.0, envs_per_worker=1)}
    worker = RolloutWorker(stages, 8, PolicyAddress(bench.url, bench.gateway.key, "tiny"), 10.0)
    specs = [EpisodeSpec(f"e{n}", 1, TaskRef(None, n, "train", "a"), 1, 30.0) for n in range(4)]
    episodes = await asyncio.gather(*(worker.run(spec) for spec in specs))
    assert [episode.error for episode in episodes] == [None] * 4
    assert len(worker._casts["a"].all) == 1
    await worker.close()


def test_a_node_holds_a_mixture_that_has_all_it_needs() -> None:
    from clawrl_gym.cluster.nodes import Node

    config = configured("env=[terminal,swe,conversation]", "mixture.swe.env.sandbox.type=docker")
    resources = resources_of(stages_of(config))
    assert resources == ("docker", "sandbox")
    one = Node("n", "10.0.0.1", "n", {"CPU": 4.0, "sandbox": 64.0})
    both = replace(one, resources={"CPU": 4.0, "sandbox": 64.0, "docker": 6.0})
    assert not one.has(*resources)
    assert both.has(*resources)
    assert sum(both.shares(resources, 2, 64)) == 6


def an_episode(env: str, reward: float, family: str | None = "copy") -> Episode:
    task = TaskRef("t", 0, "train", env)
    return Episode("s", 0, task, StopReason.TERMINATED, reward, 2, family=family)


def test_a_baseline_is_of_one_environment() -> None:
    def group(env: str) -> Group:
        episode = an_episode(env, 1.0)
        return Group(0, episode.task, [episode], 0)

    def verdict(reward: Any) -> Verdict:
        return Verdict(1, "rule", reward, reward, {}, 0.0)

    segment: Any = SimpleNamespace(mask_T=[True], turn_indices=[0])
    algorithm = Binary(0.5)

    def advantage(env: str, reward: int) -> Any:
        return algorithm.weights(group(env), [[segment]], [{0: verdict(reward)}], [{}])[0][
            0
        ].advantage

    assert [advantage("a", 1), advantage("a", 1), advantage("b", 1)] == [1.0, 0.5, 1.0]
    assert [source for source, *_ in algorithm.compared()] == ["a/rule", "a/rule", "b/rule"]


def test_metrics_are_of_all_and_of_each_environment() -> None:
    episodes = [an_episode("a", 1.0), an_episode("a", 0.0), an_episode("b", 1.0, None)]
    measured = Evaluation(episodes).metrics()
    assert measured["heldout/success"] == pytest.approx(2 / 3)
    assert measured["env/a/heldout/success"] == 0.5
    assert measured["env/b/heldout/n"] == 1
    assert measured["heldout/success/a/copy"] == 0.5
    assert measured["heldout/success/b/task"] == 1.0
    nothing: Any = None
    counts = TrainingCounts(1, nothing, nothing, nothing, nothing)
    for episode in episodes:
        counts.count(episode)
    trained = counts._of_episodes()
    assert trained["env/a/train/success"] == 0.5
    assert trained["env/a/train/episodes"] == 2
    assert trained["env/b/train/reward"] == 1.0
    assert trained["train/success/a/copy"] == 0.5


def test_without_a_mixture_no_metric_names_an_environment() -> None:
    assert not [name for name in Evaluation([an_episode("", 1.0)]).metrics() if "env/" in name]


def test_views_show_every_environment(tmp_path: Path) -> None:
    values = {
        "train/reward": 0.5, "train/success": 0.5, "env/terminal/train/success": 0.25,
        "env/toolcall/train/success": 0.75, "env/terminal/heldout/success": 0.5,
        "heldout/success": 0.5, "heldout/n": 8.0, "heldout/low": 0.2, "heldout/high": 0.8,
    }  # fmt: skip
    state = RunState("run", 4)
    state.take_step(1, values)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(TRAINING.panel(state, 100, 40))
    panel = console.export_text()
    assert "terminal\u00a025 %\u00a0held-out\u00a050 %" in panel
    assert "toolcall\u00a075 %" in panel
    assert any("terminal 50 %" in line for line in TRAINING.step_lines(state, 1, values))
    folder = make_run(tmp_path / "run", steps=2, store=False)
    config = configured("env=[terminal,toolcall]", "mixture={terminal:2}")
    (folder / "config.yaml").write_text(json.dumps(config.model_dump(mode="json")))
    with (folder / "metrics.jsonl").open("a") as rows:
        rows.write(json.dumps({"step": 1, **values}) + "\n")
    page = write_report(folder).read_text()
    assert "By environment" in page
    assert "terminal (weight 2, judge none), toolcall (weight 1, judge none)" in page


def test_a_run_of_several_environments_says_all_of_them_and_no_single_one(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=2, store=False)
    values = yaml.safe_load((folder / "config.yaml").read_text())
    values["mixture"] = {
        "terminal": {"weight": 2.0, "judge": {"type": "none"}},
        "conversation": {"weight": 1.0, "judge": {"type": "rule"}},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    rows = dict(facts(read_run(folder)))
    assert rows["mixture"] == (
        "terminal (weight 2, judge none), conversation (weight 1, judge rule)"
    )
    assert not rows.keys() & {"environment", "judge"}
    card = model_card(RunFolder(folder), values, shipped_dir(), 2, "float32", "handed-on")
    assert "| environments | terminal, conversation |" in card
    assert "| environment |" not in card
    assert "| judge |" not in card
