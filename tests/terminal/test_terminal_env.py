import pickle
from dataclasses import replace
from typing import Any

import pytest
from jinja2 import Environment

from clawrl_gym.agents.agent import Action
from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.core.types import StopReason, TaskRef
from clawrl_gym.envs.sandbox.interface import ExecResult, Limits
from clawrl_gym.envs.showcase.terminal.generated import make_task, task_ids
from clawrl_gym.envs.terminal.agent import SYSTEM, TerminalAgent
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import (
    TerminalEnv,
    observation_of,
    single_commands,
)
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, PolicyReply, run_episode
from tests.support.terminal_fakes import MemoryOpener

APPEND = "append-train-000000"
TRAIL = "trail-train-000000"


def memory_env(opener=None, **options):
    return TerminalEnv(open_sandbox=opener or MemoryOpener(), **options)


def goal(task_id):
    """The file that the first check wants, as a command of the fake."""
    check: Any = make_task(task_id).checks[0]
    return f"put {check.path} {check.content.decode()}"


def test_the_first_observation_is_the_instruction_alone():
    observation, info = memory_env().reset(options={"task": APPEND})
    assert observation == make_task(APPEND).instruction
    assert info == {
        "task": APPEND, "family": "append", "split": "train", "tools": [],
        "next_state_role": "user", "report": "", "error": None, "scores": {}, "difficulty": 1,
        "system": single_commands(1),
    }  # fmt: skip


def test_a_task_of_one_turn_ends_with_its_command_and_is_graded():
    env = memory_env()
    env.reset(options={"task": APPEND})
    observation, reward, terminated, truncated, info = env.step(goal(APPEND))
    assert (observation, reward, terminated, truncated) == ("(no output)", 1.0, True, False)
    assert info["task"] == APPEND


def test_the_end_of_an_episode_reports_what_the_checks_say_and_no_observation_does():
    env = memory_env()
    env.reset(options={"task": APPEND})
    observation, reward, _, _, info = env.step("put other x")
    checks: Any = make_task(APPEND).checks
    (check,) = checks
    assert (reward, info["report"]) == (
        0.0, f"Test report: failed\n- {check.path} does not hold what was asked for"
    )  # fmt: skip
    assert observation == "(no output)"
    assert env.reset(options={"task": APPEND})[1]["report"] == ""
    assert env.step(goal(APPEND))[-1]["report"] == "Test report: passed"


def test_a_turn_before_the_end_has_no_report():
    env = memory_env()
    env.reset(options={"task": TRAIL})
    assert env.step("look")[-1]["report"] == ""


def test_an_episode_that_is_ended_from_outside_is_reported_too():
    env = memory_env()
    env.reset(options={"task": TRAIL})
    env.finish()
    assert env.report.startswith("Test report: failed\n- ")


def test_a_task_of_several_turns_rewards_only_its_last():
    env = memory_env()
    env.reset(options={"task": TRAIL})
    steps = [env.step(action)[1:4] for action in ("look", goal(TRAIL), "look")]
    assert steps == [(0.0, False, False), (0.0, False, False), (1.0, True, False)]


def test_submit_ends_the_episode_without_running_anything():
    opener = MemoryOpener()
    env = memory_env(opener)
    env.reset(options={"task": TRAIL})
    assert env.step(" submit\n")[:4] == ("(submitted)", 0.0, True, False)
    assert opener.opened[0].ran == []


@pytest.mark.parametrize("ending", ["\nsubmit", "\n\n  submit \n"])
def test_submit_as_the_last_line_runs_what_stands_before_it(ending):
    opener = MemoryOpener()
    env = memory_env(opener)
    env.reset(options={"task": TRAIL})
    step = env.step(goal(TRAIL) + ending)
    assert step[:4] == ("(no output)\n(submitted)", 1.0, True, False)
    assert opener.opened[0].ran[1] == goal(TRAIL)


@pytest.mark.parametrize(
    "action", ["ls", "./submit", "submit.sh", "presubmit", "submit_all", "cat submit-log", "Submit"]
)
def test_an_action_without_the_word_runs_as_it_is(action):
    opener = MemoryOpener()
    env = memory_env(opener)
    env.reset(options={"task": TRAIL})
    assert env.step(action)[1:3] == (0.0, False)
    assert opener.opened[0].ran == [action]


def test_a_request_says_its_budget_where_the_task_does():
    task = make_task(APPEND)
    assert task.request(8) == task.instruction
    assert "You have 8 replies." in replace(task, turns=None).request(8)
    telling = replace(task, tells_budget=True, turns=6)
    assert telling.request(8).endswith("\n\nYou have 6 replies. Run submit when you are done.")
    assert "You have 4 replies." in telling.request(4)
    assert "You have 8 replies." in replace(telling, turns=None).request(8)


def test_an_episode_is_truncated_and_graded_at_its_most_turns():
    env = memory_env(max_turns=2)
    env.reset(options={"task": TRAIL})
    assert env.step(goal(TRAIL))[1:4] == (0.0, False, False)
    assert env.step("look")[1:4] == (1.0, False, True)


def test_the_end_of_a_task_is_no_truncation_even_at_the_most_turns():
    env = memory_env(max_turns=1)
    env.reset(options={"task": APPEND})
    assert env.step("look")[1:4] == (0.0, True, False)


def test_a_command_that_runs_too_long_is_an_observation():
    env = memory_env()
    env.reset(options={"task": TRAIL})
    assert env.step("hang")[:2] == ("(no output)\n(stopped: it took too long)", 0.0)


def test_a_sandbox_that_an_agent_ends_has_failed_its_task():
    env = memory_env()
    env.reset(options={"task": TRAIL})
    assert env.step("die")[1:3] == (0.0, True)
    assert "the sandbox has ended" in env.report


def test_where_no_fresh_sandbox_works_either_nobody_is_blamed():
    opener = MemoryOpener()
    env = memory_env(opener)
    env.reset(options={"task": TRAIL})
    opener.broken = True
    with pytest.raises(EnvError, match="the sandbox has ended"):
        env.step("die")


def test_a_sandbox_that_has_died_before_the_grade_has_failed_its_task():
    opener = MemoryOpener()
    env = memory_env(opener)
    env.reset(options={"task": TRAIL})
    opener.opened[0].dead = True
    assert env.step("submit")[1:3] == (0.0, True)
    assert "a fresh sandbox works" in env.report
    assert all(sandbox.closed for sandbox in opener.opened)


def test_an_opener_that_fails_is_an_environment_error():
    def broken(limits, **options):
        raise OSError("no space left")

    with pytest.raises(EnvError, match=f"starting task '{APPEND}': OSError: no space left"):
        memory_env(broken).reset(options={"task": APPEND})


def test_each_episode_has_a_sandbox_of_its_own_and_closes_it():
    opener = MemoryOpener()
    env = memory_env(opener)
    for _ in range(3):
        env.reset(options={"task": APPEND})
        env.step("submit")
    env.reset(options={"task": APPEND})
    assert [sandbox.closed for sandbox in opener.opened] == [True, True, True, False]
    env.close()
    env.close()
    assert opener.opened[-1].closed


def test_nothing_is_opened_before_the_first_reset():
    opener = MemoryOpener()
    env = memory_env(opener)
    assert len(env.task_ids("heldout")) > 512
    env.close()
    assert opener.opened == []


def test_a_step_outside_an_episode_is_refused():
    env = memory_env()
    with pytest.raises(EnvError, match=r"got step\(\) outside an episode"):
        env.step("ls")
    env.reset(options={"task": APPEND})
    env.step("submit")
    with pytest.raises(EnvError, match=r"got step\(\) outside an episode"):
        env.step("ls")


def test_the_seed_chooses_a_training_task():
    env = memory_env()
    drawn = [env.reset(seed=seed)[1]["task"] for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert all("-train-" in task for task in drawn)


def test_the_split_can_be_chosen_for_a_drawn_task():
    _, info = memory_env(families=["copy"]).reset(seed=1, options={"split": "heldout"})
    assert info["task"].startswith("copy-heldout-")
    assert info["split"] == "heldout"


def test_unknown_reset_options_are_refused():
    with pytest.raises(ConfigError, match=r"got reset options.*tusk"):
        memory_env().reset(options={"tusk": APPEND})
    with pytest.raises(ConfigError, match="expected 'task'"):
        memory_env().reset(options={"split": "test"})


def test_an_unknown_task_is_refused():
    with pytest.raises(TaskError, match="got task 'nothing'"):
        memory_env().reset(options={"task": "nothing"})


def test_wrong_options_of_the_environment_are_refused():
    with pytest.raises(ConfigError, match=r"env\.max_turns: got 0"):
        memory_env(max_turns=0)
    with pytest.raises(ConfigError, match="render_mode='human'"):
        memory_env(render_mode="human")
    with pytest.raises(ConfigError, match=r"did you mean 'env.sandbox.memory_mb'"):
        memory_env(sandbox={"memory": 3})
    with pytest.raises(ConfigError, match=r"env\.families"):
        memory_env(families=["nope"])
    with pytest.raises(ConfigError, match="there is no folder"):
        memory_env(tasks="/no/such/folder")
    with pytest.raises(ConfigError, match="chooses generated tasks only"):
        memory_env(tasks="/tmp", families=["copy"])


def test_the_opener_gets_limits_directory_and_variables():
    opener = MemoryOpener()
    env = memory_env(opener, sandbox={"memory_mb": 99, "rootfs": "/base", "unsafe_no_limits": True})
    env.reset(options={"task": "environ-train-000000"})
    assert opener.asked == [
        {
            "limits": Limits(memory_mb=99),
            "rootfs": "/base",
            "workdir": "/root",
            "env": make_task("environ-train-000000").env,
            "unsafe_no_limits": True,
        }
    ]


def test_the_oracle_gives_one_command_a_turn():
    env = memory_env()
    with pytest.raises(EnvError, match=r"got solve\(\) outside an episode"):
        env.solve()
    env.reset(options={"task": TRAIL})
    assert env.solve() == make_task(TRAIL).solution


def test_the_transcript_is_rendered_as_text():
    env = memory_env(render_mode="ansi")
    env.reset(options={"task": TRAIL})
    env.step("look")
    assert env.render() == f"{make_task(TRAIL).instruction}\n$ look\n(no output)"
    assert memory_env().render() is None


def test_tasks_are_listed_without_an_environment():
    options = {"tasks": "generated", "families": ["copy"], "max_turns": 8, "sandbox": {}}
    assert TerminalEnvConfig.of(options).task_ids("train") == task_ids("train", ["copy"])
    assert TerminalEnvConfig.of({}).task_ids("heldout") == task_ids("heldout")


def test_listed_tasks_travel_between_processes():
    ids = TerminalEnvConfig.of({}).task_ids("train")
    assert pickle.loads(pickle.dumps(ids)) == ids


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (ExecResult("a\nb\n", 0), "a\nb"),
        (ExecResult("", 0), "(no output)"),
        (ExecResult("\n", 0), "(no output)"),
        (ExecResult("no\n", 2), "no\n(exit code 2)"),
        (ExecResult("x", None, timed_out=True), "x\n(stopped: it took too long)"),
        (ExecResult("x", 0, truncated=True), "x\n(output cut)"),
        (
            ExecResult("x", None, shell_restarted=True),
            "x\n(the shell ended, this is a new one)",
        ),
    ],
)
def test_an_observation_is_the_output_and_what_went_wrong(done, expected):
    assert observation_of(done) == expected


@pytest.mark.parametrize("tasks", ["generated", "composed", "plain", "/my/tasks"])
def test_without_images_an_episode_can_begin_at_once(tasks):
    config = TerminalEnvConfig(tasks=tasks)
    assert TerminalEnv.long_preparation(config) is None
    TerminalEnv.prepare(config, lambda line: pytest.fail(line))


def test_behind_and_a_submission_waits_for_success():
    env = memory_env()
    env.reset(options={"task": TRAIL})
    assert env.step("hang && submit")[2] is False
    assert env.step("look && submit")[2] is True


def test_with_spare_replies_looking_costs_nothing_and_submit_ends_a_task():
    env = memory_env(spare_replies=3)
    observation, _ = env.reset(options={"task": APPEND})
    assert observation.endswith("\n\nYou have 4 replies. Run submit when you are done.")
    assert env.step("look")[1:4] == (0.0, False, False)
    assert env.step(f"{goal(APPEND)}\nsubmit")[1:4] == (1.0, True, False)
    env.reset(options={"task": APPEND})
    for command in (goal(APPEND), "look", "look"):
        assert env.step(command)[1:4] == (0.0, False, False)
    assert env.step("look")[1:3] == (1.0, True)


class Says:
    """A policy that says the same each time."""

    def __init__(self, text: str) -> None:
        self.text, self.asked = text, 0

    async def reply(self, spec: Any, messages: Any, tools: Any) -> PolicyReply:
        self.asked += 1
        return PolicyReply({"role": "assistant", "content": self.text})

    async def end(self, spec: Any, episode: Any, next_state: Any) -> None:
        """Nothing to record."""


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("no block", StopReason.TRUNCATED),
        ("```bash\nls\n```\n```bash\nls\n```", StopReason.TRUNCATED),
        ("```bash\nls\n```", StopReason.TERMINATED),
    ],
)
async def test_the_stated_number_of_replies_is_true_whatever_they_hold(text, ended):
    async def in_place(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    env, chat = memory_env(spare_replies=3, max_turns=8), Says(text)
    spec = EpisodeSpec("s", 0, TaskRef(APPEND, 0, "train"), max_turns=8, timeout_s=60.0)
    episode = await run_episode(spec, env, TerminalAgent(), chat, in_place)
    assert "You have 4 replies." in env.reset(options={"task": APPEND})[0]
    assert (chat.asked, episode.stop_reason, episode.reward) == (4, ended, 0.0)


def test_spare_replies_are_of_generated_tasks_alone():
    with pytest.raises(ConfigError, match="say their budget already"):
        TerminalEnv(tasks="composed", spare_replies=3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"families": ["copy"]}, "graded after your first command"),
        ({"families": ["copy"], "spare_replies": 3}, None),
        ({"tasks": "plain"}, None),
    ],
)
def test_the_system_message_says_when_the_first_command_is_graded(
    options: dict[str, object], says: str | None
) -> None:
    observation, info = memory_env(**options).reset(seed=1)
    told = str(info.get("system", ""))
    assert (says in told) if says else (not told and "You have" in observation)


@pytest.mark.parametrize("model", ["tiny", "tiny_skills"])
def test_the_shipped_policies_read_the_first_line_of_the_system_message_alone(model: str) -> None:
    template = (shipped_dir(model) / "chat_template.jinja").read_text()
    render = Environment(extensions=["jinja2.ext.loopcontrols"]).from_string(template).render
    user = {"role": "user", "content": "Copy a.txt to b.txt."}
    short, long = (
        render(messages=[{"role": "system", "content": text}, user], add_generation_prompt=True)
        for text in (SYSTEM, f"{SYSTEM}\n\n{single_commands(1)}")
    )
    assert short == long


def test_an_example_in_the_system_message_solves_another_task_of_the_family():
    env = memory_env(example=True)
    for task_id in task_ids("heldout")[:44]:
        observation, info = env.reset(options={"task": task_id})
        shown = str(info["system"]).partition("Request: ")[2]
        request, _, reply = shown.partition("\nReply: ")
        assert request != observation
        command = TerminalAgent().action({"role": "assistant", "content": reply})
        sources = [make_task(f"{info['family']}-train-{number:06d}") for number in range(2)]
        solutions = {task.instruction: "\n".join(task.solution) for task in sources}
        assert command == Action(solutions[request])


def test_an_example_of_a_task_that_is_submitted_ends_with_that():
    env = memory_env(tasks="plain", example=True)
    _, info = env.reset(options={"task": env.task_ids("heldout")[0]})
    assert "You have 4 replies. Run submit when you are done.\nReply: ```bash" in info["system"]
    assert str(info["system"]).endswith("\nsubmit\n```")
    assert "system" not in memory_env(tasks="plain").reset()[1]
