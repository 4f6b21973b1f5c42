"""Which tasks are drawn by what became of those before, and the same after a resumption."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import CurriculumConfig, RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.episode_ids import episode_id
from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.core.types import Group, StopReason, TaskRef, TaskTraits
from clawrl_gym.rollout.collection.curriculum import (
    ByDifficulty,
    ByPassRate,
    Curriculum,
    TaskOutcome,
    curriculum_of,
)
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.store import Store
from clawrl_gym.store.rows import SessionRow

G = 8
FAMILIES = ("easy", "hard", "even")
SOLVED = {"easy": 8, "hard": 0, "even": 4}
IDS = [f"{family}-{number}" for number in range(500) for family in FAMILIES]


def family_of(task_id: str) -> TaskTraits:
    return TaskTraits(task_id.partition("-")[0])


def level_of(task_id: str) -> TaskTraits:
    return TaskTraits("f", 1 + int(task_id.rpartition("-")[2]) % 5)


def mixture(curriculum: Curriculum | None, seed: int = 3) -> Mixture:
    sampler = TaskSampler({"train": IDS, "heldout": []}, seed)
    return Mixture({"": sampler}, curricula={} if curriculum is None else {"": curriculum})


def by_pass_rate(**config: Any) -> ByPassRate:
    return ByPassRate(CurriculumConfig(**config), G, family_of)


def by_difficulty(**config: Any) -> ByDifficulty:
    return ByDifficulty(CurriculumConfig(**config), range(1, 6), level_of)


def drawn(
    tasks: Mixture, numbers: range, solved: Callable[[str], int] = lambda _: 0
) -> tuple[list[str], list[TaskOutcome]]:
    """The tasks of these groups, each seen before the next is drawn."""
    names, outcomes = [], []
    for number in numbers:
        name = str(tasks.train(number).id)
        outcome = TaskOutcome(number, name, G, solved(name))
        tasks.saw(outcome)
        names.append(name)
        outcomes.append(outcome)
    return names, outcomes


def by_family(name: str) -> int:
    return SOLVED[name.partition("-")[0]]


def test_what_is_always_or_never_solved_is_drawn_less() -> None:
    names, _ = drawn(mixture(by_pass_rate()), range(600), by_family)
    count = Counter(name.partition("-")[0] for name in names[100:])
    assert count["even"] > 0.7 * 500
    assert min(count["easy"], count["hard"]) > 10, "it is looked at again"


def test_a_family_that_becomes_solvable_comes_back() -> None:
    curriculum = by_pass_rate()
    tasks = mixture(curriculum)
    drawn(tasks, range(200), by_family)
    assert curriculum.weight("hard-77") < 0.4
    drawn(tasks, range(200, 600), lambda _: 4)
    assert curriculum.weight("hard-77") > 0.9


def test_a_task_of_its_own_is_known_beside_its_family() -> None:
    curriculum = by_pass_rate()
    for number in range(8):
        curriculum.saw(TaskOutcome(number, "even-1", G, 8))
        curriculum.saw(TaskOutcome(number, "even-2", G, 0))
    assert curriculum.pass_rate("even-1") > 0.9
    assert curriculum.pass_rate("even-2") < 0.1
    assert 0.3 < curriculum.pass_rate("even-3") < 0.7, "never seen: its family's"
    assert curriculum.metrics() == {
        "curriculum/easy": 0.0, "curriculum/hard": 0.0, "curriculum/between": 1.0,
    }  # fmt: skip


def test_the_level_follows_success_up_and_down() -> None:
    curriculum = by_difficulty(memory=16)
    tasks = mixture(curriculum)

    def able(highest: int) -> Callable[[str], int]:
        return lambda name: G if (level_of(name).difficulty or 0) <= highest else 0

    first, _ = drawn(tasks, range(1), able(3))
    assert level_of(first[0]).difficulty == 1
    names, _ = drawn(tasks, range(1, 200), able(3))
    assert curriculum.level in (3, 4), "as hard as it can do, and a look above"
    assert max(level_of(name).difficulty or 0 for name in names) == 4
    names, _ = drawn(tasks, range(200, 400), able(5))
    assert curriculum.level == 5
    assert min(level_of(name).difficulty or 0 for name in names[100:]) < 5, "what was learned stays"
    drawn(tasks, range(400, 800), able(0))
    assert curriculum.level == 1


@pytest.mark.parametrize("make", [by_pass_rate, by_difficulty])
def test_a_resumed_run_draws_what_would_have_come(make: Callable[[], Curriculum]) -> None:
    draw = random.Random(2)

    def solved(_: str) -> int:
        return draw.randrange(G + 1)

    whole = mixture(make())
    _, outcomes = drawn(whole, range(120), solved)
    resumed = mixture(make())
    resumed.restore(outcomes, {})
    assert [resumed.train(n) for n in range(120, 200)] == [whole.train(n) for n in range(120, 200)]


def test_a_group_that_was_begun_is_drawn_again_as_it_was() -> None:
    whole = mixture(by_pass_rate())
    _, outcomes = drawn(whole, range(100), by_family)
    begun = [whole.train(number) for number in range(100, 130)]
    for number in range(100, 115):  # these were accepted meanwhile
        outcomes.append(TaskOutcome(number, begun[number - 100].id, G, G))
    resumed = mixture(by_pass_rate())
    resumed.restore(outcomes, {115 + n: str(task.id) for n, task in enumerate(begun[15:])})
    assert [resumed.train(number) for number in range(115, 130)] == begun[15:], "seeds, too"


def test_nothing_solved_is_told_once_and_draws_go_on() -> None:
    curriculum = by_pass_rate()
    tasks = mixture(curriculum)
    drawn(tasks, range(31))
    assert tasks.warnings == []
    drawn(tasks, range(31, 32))
    (line,) = tasks.warnings
    assert "none of the first 256 training episodes solved its task" in line
    drawn(tasks, range(32, 64))
    assert tasks.warnings == [line]
    drawn(tasks, range(64, 65), lambda _: 1)
    assert tasks.warnings == []


def test_without_a_curriculum_everything_is_as_it_was() -> None:
    sampler = TaskSampler({"train": IDS, "heldout": []}, 3)
    names, _ = drawn(mixture(None), range(50), by_family)
    assert names == [sampler.train(number).id for number in range(50)]


class Rated:
    """An environment whose tasks are rated, or not."""

    type = "mine"

    def __init__(self, traits: Callable[[str], TaskTraits]) -> None:
        self._traits = traits

    def traits(self) -> Callable[[str], TaskTraits]:
        return self._traits


def made(kind: str, env: Any, ids: list[str] | None = IDS) -> Curriculum | None:
    sampler = TaskSampler(None if ids is None else {"train": ids, "heldout": []}, 0)
    return curriculum_of(CurriculumConfig.of({"type": kind}), env, sampler, G)


def failing(task_id: str) -> TaskTraits:
    raise ValueError("no such file")


def test_what_a_curriculum_cannot_choose_from_is_refused() -> None:
    with pytest.raises(ConfigError, match="which has seeds and no named tasks"):
        made("pass_rate", Rated(family_of), None)
    with pytest.raises(ConfigError, match="of no known difficulty, expected at least two levels"):
        made("difficulty", Rated(family_of))
    with pytest.raises(ConfigError, match="all of the same difficulty, 1"):
        made("difficulty", Rated(lambda _: TaskTraits("f", 1)))
    assert made("none", Rated(failing)) is None
    careless = made("pass_rate", Rated(failing))
    assert careless is not None
    careless.saw(TaskOutcome(0, "x", 8, 8))  # whoever plays it says what is wrong
    assert isinstance(made("difficulty", Rated(level_of)), ByDifficulty)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["curriculum=passrate"], r"passrate"),
        (["curriculum=difficulty", "curriculum.raise_at=0.1"], r"expected the first below the sec"),
        (["curriculum=pass_rate", "curriculum.floor=0"], r"curriculum\.floor: got 0"),
    ],
)
def test_wrong_settings_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("train", overrides, RunConfig)


def test_one_environment_of_a_mixture_may_do_without() -> None:
    config = compose(
        "train",
        [
            "env=[terminal,toolcall]",
            "curriculum=pass_rate",
            "mixture.toolcall.curriculum.type=none",
        ],
        RunConfig,
    )
    kinds = {name: domain.curriculum.type for name, domain in config.domains.items()}
    assert kinds == {"terminal": "pass_rate", "toolcall": "none"}


@pytest.mark.parametrize("env", ["terminal", "toolcall", "conversation"])
def test_our_tasks_say_their_family(env: str) -> None:
    config = compose("train", [f"env={env}", "curriculum=pass_rate"], RunConfig)
    assert config.curriculum.type == "pass_rate"
    task_id = (config.env.task_ids("train") or [])[5]
    family = config.env.traits()(task_id).family
    assert family
    assert family in task_id


async def test_the_store_knows_what_a_curriculum_saw(tmp_path: Path) -> None:
    store = Store.open(tmp_path)

    async def session(name: str, number: int, task_id: str, reward: float | None) -> None:
        row = SessionRow(name, task_id, number, "train", "rollout", 1.0)
        await store.add_session(row)
        reason = StopReason.TERMINATED if reward is not None else StopReason.ENV_ERROR
        await store.end_session(name, reward=reward, stop_reason=reason)

    for number, task_id, rewards in (
        (1, "a", (1.0, 0.0, 0.5)), (0, "b", (1.0, None, 1.0)), (2, "c", (1.0,)),
    ):  # fmt: skip
        for at, reward in enumerate(rewards):
            await session(f"{number}-{at}", number, task_id, reward)
    for number, task_id in ((1, "a"), (0, "b")):
        await store.add_group(Group(number, TaskRef(task_id, 0, "train"), [], 0), [])
    assert await store.group_outcomes() == [(1, "a", 3, 1), (0, "b", 2, 2)]
    assert await store.begun_groups() == {2: "c"}
    await store.close()


async def test_of_a_group_that_was_begun_twice_the_episodes_that_count_are_the_last(
    tmp_path: Path,
) -> None:
    """In the first process three ended well; in the second one episode had to be tried again."""
    store = Store.open(tmp_path)

    async def session(member: int, retry: int, reward: float | None) -> None:
        name = episode_id(7, member, retry)
        await store.add_session(SessionRow(name, "a", 7, "train", "rollout", 1.0))
        reason = StopReason.TERMINATED if reward is not None else StopReason.ENV_ERROR
        await store.end_session(name, reward=reward, stop_reason=reason)

    for member, reward in enumerate((1.0, 1.0, 1.0)):
        await session(member, 0, reward)
    for member, retry, again in ((0, 0, 0.0), (1, 0, None), (1, 1, 1.0), (2, 0, None), (3, 0, 0.0)):
        await session(member, retry, again)
    await store.add_group(Group(7, TaskRef("a", 0, "train"), [], 0), [])
    assert await store.group_outcomes() == [(7, "a", 3, 1)]
    await store.close()


def test_an_environment_that_cannot_be_asked_is_told() -> None:
    class Broken:
        type = "mine"

        def traits(self) -> None:
            raise EnvError("no index")

    with pytest.raises((ConfigError, EnvError), match="no index"):
        made("pass_rate", Broken())
