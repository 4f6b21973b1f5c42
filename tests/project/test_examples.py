"""The examples are the first code that a newcomer copies: each does what it says."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from gymnasium.utils.env_checker import check_env

import clawrl_gym as cg
from clawrl_gym.envs.dataset.env import DatasetEnv
from examples import train_run
from examples.own_agent import PlanningAgent
from examples.own_algorithm import EarlyTokens
from examples.own_environment import WordOrderEnv, WordTasks
from examples.own_judge import ErrorJudge
from examples.own_logger import CsvLogger
from tests.support.numpy_engine import make_model, make_package

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.ray
@pytest.mark.sandbox
@pytest.mark.slow
def test_a_run_from_python_takes_every_class_of_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the environment. vLLM is a stand-in, whose replies are no commands."""
    monkeypatch.setenv("PYTHONPATH", str(make_package(tmp_path / "stand-in")))
    run = train_run.main(
        [
            f"run.dir={tmp_path / 'run'}", "ui=line", "trainer.steps=1", "eval.tasks=4",
            "rollout.groups=2", "rollout.group_size=2", "rollout.envs_per_worker=8",
            f"policy.model={make_model(tmp_path / 'model', 4096)}", "policy.device=cpu",
            "policy.max_model_len=4096", "learner=simulated", "learner.simulated_step_s=0",
            "trainer.algorithm=examples.own_algorithm:EarlyTokens",
            "judge=examples.own_judge:ErrorJudge",
            "agent=examples.own_agent:PlanningAgent", "agent.options.max_plan_lines=2",
            "logger=examples.own_logger:CsvLogger",
        ]
    )  # fmt: skip
    assert {step: found.n for step, found in run.evaluations.items()} == {0: 4, 1: 4}
    assert run.report.is_file()
    with (run.report.parent / "metrics.csv").open() as file:
        table = list(csv.reader(file))
    assert table[0] == ["step", "train/reward", "heldout/success"]
    assert {row[0] for row in table[1:]} >= {"0", "1"}


def test_a_run_takes_25_lines_and_a_loop_of_ones_own_80() -> None:
    assert len((EXAMPLES / "train_run.py").read_text().splitlines()) <= 25
    assert len((EXAMPLES / "rl_loop.py").read_text().splitlines()) <= 80


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium prefers Box spaces
def test_the_environment_is_one_and_grades_its_own_answers() -> None:
    env = WordOrderEnv()
    check_env(env, skip_render_check=True)
    task = WordTasks().load("train-0006")
    env.reset(options={"task": task.id})
    observation, reward, terminated, _, _ = env.step("something else")
    assert (observation, reward, terminated) == ("That is not it. Once more.", 0.0, False)
    _, reward, terminated, _, _ = env.step(task.answer)
    assert (reward, terminated) == (1.0, True)


def test_the_environments_heldout_tasks_are_others() -> None:
    tasks = WordTasks()
    contents = {
        split: {
            (task.words, task.backwards) for task in (tasks.load(id) for id in tasks.ids(split))
        }
        for split in ("train", "heldout")
    }
    assert not contents["train"] & contents["heldout"]
    with pytest.raises(cg.TaskError, match="expected one such as"):
        tasks.load("train-x")


def test_the_agent_refuses_a_long_plan() -> None:
    agent = PlanningAgent(PlanningAgent.Options(max_plan_lines=1))
    block = "```bash\nls\n```"
    assert agent.action({"role": "assistant", "content": f"I look.\n{block}"}) == cg.Action("ls")
    refused = agent.action({"role": "assistant", "content": f"One.\nTwo.\n{block}"})
    assert refused == cg.ParseFailure("got a plan of 2 lines, expected at most 1")


async def test_the_judge_abstains_where_it_knows_nothing() -> None:
    judge = ErrorJudge(ErrorJudge.Options())
    verdicts = [
        await judge.judge(cg.Case(1, "do it", {"role": "assistant"}, [{"content": text}]))
        for text in ("cat: x: No such file or directory", "Test report: 2 passed", "a.txt")
    ]
    assert [verdict.value for verdict in verdicts] == [-1, 1, None]


def test_the_algorithm_gives_each_token_its_own_advantage() -> None:
    episodes = [
        cg.Episode(f"e{at}", 0, cg.TaskRef("t", 0, "train"), cg.StopReason.TERMINATED, reward, 1)
        for at, reward in enumerate((1.0, 0.0))
    ]
    group = cg.Group(0, episodes[0].task, episodes, 0)
    segments_G = [
        [
            cg.Segment(
                ids_T=[5, 6, 7],
                mask_T=[False, True, True],
                logprobs_T=[0.0, -0.5, -0.5],
                versions_T=[-1, 0, 0],
                turns_T=[-1, 0, 0],
                turn_indices=[0],
                spans={0: (1, 2)},
            )
        ]
        for _ in episodes
    ]
    samples = EarlyTokens(EarlyTokens.Options(decay=0.5)).make_samples(group, segments_G)
    assert [sample.advantages_T for sample in samples] == [[0.0, 0.5, 0.25], [0.0, -0.5, -0.25]]


def test_the_logger_writes_a_table(tmp_path: Path) -> None:
    logger = CsvLogger(tmp_path, {}, CsvLogger.Options(columns=("train/reward",)))
    logger.log(3, {"train/reward": 0.5, "other": 1.0})
    logger.close()
    with (tmp_path / "metrics.csv").open() as file:
        assert list(csv.reader(file)) == [["step", "train/reward"], ["3", "0.5"]]


def test_the_example_of_a_reward_function_rewards_the_answers_of_its_rows() -> None:
    env = DatasetEnv(data=str(EXAMPLES / "own_reward.jsonl"), reward="examples.own_reward:close")
    tasks = {split: env.task_ids(split) for split in ("train", "heldout")}
    assert sum(map(len, tasks.values())) == 20
    assert all(tasks.values())
    for task in (*tasks["train"], *tasks["heldout"]):
        env.reset(options={"task": task})
        (answer,) = env.solve()
        assert env.step(answer)[1] == 1.0
        env.reset(options={"task": task})
        assert 0 < env.step(f"It is {int(answer) + 1}.")[1] < 1.0
        env.reset(options={"task": task})
        assert env.step("I do not know.")[1] == 0.0
