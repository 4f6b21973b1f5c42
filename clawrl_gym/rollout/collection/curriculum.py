"""Choice of a group's task in an environment: drawn again until one is accepted.

A draw is a function of the run's seed, the group's number and the attempt; it is taken with a
probability that follows from what was seen of such tasks. All that was seen are the outcomes of
accepted groups, in the order of their acceptance, as the store has them: a resumed run knows the
same. Pools of easy and hard tasks that are drawn less are prime-rl's (its difficulty pools), the
chance that a group differs is what dynamic sampling (DAPO) looks for after the fact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from clawrl_gym.config import CurriculumConfig, EnvConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.core.types import TaskRef, TaskTraits
from clawrl_gym.rollout.collection.task_sampler import TaskSampler

_MOST_ATTEMPTS = 400
"""Draws of a group; then the best of them is taken."""
_LOOKED_AT = 512
"""Tasks that are asked for their difficulty before a run."""
_PRIOR = 4.0
"""Episodes of its family that a task's own pass rate begins with."""
_EASY, _HARD = 0.9, 0.1
"""Pass rates from which on, and up to which, a family is easy, or hard."""
_SURE = 256
"""Episodes without a success after which a warning is shown."""


class TaskOutcome(NamedTuple):
    """The results of a whole group."""

    number: int
    """Number of the group."""
    task_id: str | None
    episodes: int
    """Episodes that ended with a reward."""
    solved: int


class Curriculum(ABC):
    """Chooses tasks, and remembers what became of them."""

    def __init__(self) -> None:
        self._episodes = self._solved = 0

    @abstractmethod
    def weight(self, task_id: str) -> float:
        """Probability of taking it when it is drawn, in (0, 1]; 0: never."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """`curriculum/*`."""

    @abstractmethod
    def _remember(self, task_id: str, episodes: int, solved: int) -> None: ...

    def saw(self, outcome: TaskOutcome) -> None:
        """A group was accepted."""
        self._episodes += outcome.episodes
        self._solved += outcome.solved
        if outcome.task_id is not None and outcome.episodes:
            self._remember(outcome.task_id, outcome.episodes, outcome.solved)

    @property
    def warning(self) -> str | None:
        """A warning for people: nothing can be learned from rewards alone."""
        if self._solved or self._episodes < _SURE:
            return None
        return (
            f"WARNING: none of the first {_SURE} training episodes solved its task: a curriculum "
            "has nothing to choose by: take easier tasks (env.families), more turns "
            "(env.max_turns), a stronger policy, or a judge of single turns"
        )

    def choose(self, number: int, sampler: TaskSampler) -> TaskRef:
        """The task of a group."""
        best, highest = sampler.train(number), -1.0
        for attempt in range(_MOST_ATTEMPTS):
            task = sampler.train(number, attempt)
            assert task.id is not None  # `curriculum_of` refuses the others
            weight = self.weight(task.id)
            if sampler.chance(number, attempt) < weight:
                return task
            if weight > highest:
                best, highest = task, weight
        return best


def drawn_again(number: int, task_id: str, sampler: TaskSampler) -> TaskRef:
    """The task of a group that a process before this one has begun."""
    for attempt in range(_MOST_ATTEMPTS):
        task = sampler.train(number, attempt)
        if task.id == task_id:
            return task
    return replace(sampler.train(number), id=task_id)


@dataclass(slots=True)
class _Rate:
    """Episodes and successes, the older the less."""

    episodes: float = 0.0
    solved: float = 0.0

    def add(self, episodes: int, solved: int, memory: int) -> None:
        kept = max(0.0, 1 - episodes / memory)
        self.episodes = self.episodes * kept + episodes
        self.solved = self.solved * kept + solved


class ByPassRate(Curriculum):
    """Draws by the probability that a group of this task has something to compare.

    Of a task that was never seen its family's rate is taken; of a family that was never seen, half.
    """

    def __init__(
        self, config: CurriculumConfig, group_size: int, traits: Callable[[str], TaskTraits]
    ) -> None:
        super().__init__()
        self._config = config
        self._group_size = max(2, group_size)  # a group of one is compared with those before it
        self._traits = traits
        self._tasks: dict[str, _Rate] = {}
        self._families: dict[str, _Rate] = {}

    def weight(self, task_id: str) -> float:
        p = self.pass_rate(task_id)
        differs = 1 - p**self._group_size - (1 - p) ** self._group_size
        return max(self._config.floor, differs)

    def pass_rate(self, task_id: str) -> float:
        """Expected pass rate of a task."""
        family = self._families.get(self._family(task_id), _Rate())
        expected = (family.solved + 1) / (family.episodes + 2)
        own = self._tasks.get(task_id, _Rate())
        return (own.solved + _PRIOR * expected) / (own.episodes + _PRIOR)

    def metrics(self) -> dict[str, float]:
        """Families by their pass rates: always, never, sometimes solved."""
        rates = [(rate.solved + 1) / (rate.episodes + 2) for rate in self._families.values()]
        easy = sum(rate >= _EASY for rate in rates)
        hard = sum(rate <= _HARD for rate in rates)
        counts = {"easy": easy, "hard": hard, "between": len(rates) - easy - hard}
        return {f"curriculum/{name}": float(count) for name, count in counts.items()}

    def _remember(self, task_id: str, episodes: int, solved: int) -> None:
        memory = self._config.memory
        self._tasks.setdefault(task_id, _Rate()).add(episodes, solved, memory)
        self._families.setdefault(self._family(task_id), _Rate()).add(episodes, solved, memory)

    def _family(self, task_id: str) -> str:
        return self._traits(task_id).family or ""


class ByDifficulty(Curriculum):
    """One level at a time; it follows success up and down."""

    def __init__(
        self,
        config: CurriculumConfig,
        levels: Collection[int],
        traits: Callable[[str], TaskTraits],
    ) -> None:
        super().__init__()
        self._config = config
        self._levels = sorted(levels)
        self._traits = traits
        self._at = 0
        self._here = [0, 0]
        """Episodes at this level since it came or was last looked at, and their successes."""

    @property
    def level(self) -> int:
        """The difficulty of most tasks that are drawn now."""
        return self._levels[self._at]

    def weight(self, task_id: str) -> float:
        difficulty = self._traits(task_id).difficulty
        if difficulty == self.level:
            return 1.0
        return self._config.floor if difficulty is None or difficulty < self.level else 0.0

    def metrics(self) -> dict[str, float]:
        return {"curriculum/level": float(self.level)}

    def _remember(self, task_id: str, episodes: int, solved: int) -> None:
        if self._traits(task_id).difficulty != self.level:
            return
        self._here = [self._here[0] + episodes, self._here[1] + solved]
        if self._here[0] < self._config.memory:
            return
        rate = self._here[1] / self._here[0]
        if rate >= self._config.raise_at:
            self._at = min(self._at + 1, len(self._levels) - 1)
        elif rate <= self._config.lower_at:
            self._at = max(self._at - 1, 0)
        self._here = [0, 0]


def curriculum_of(
    config: CurriculumConfig, env: EnvConfig, sampler: TaskSampler, group_size: int, key: str = ""
) -> Curriculum | None:
    """The configured one; None: tasks are drawn equally often. Raises ConfigError.

    `key`: what stands before its keys on the command line.
    """
    if config.type == "none":
        return None
    ids = sampler.train_ids
    if ids is None:
        raise ConfigError(
            f"got curriculum={config.type} with env={env.type}, which has seeds and no named "
            f"tasks, expected tasks that can come again: take {key}curriculum.type=none"
        )
    traits = lru_cache(maxsize=65_536)(_checked(env))
    if config.type == "pass_rate":
        return ByPassRate(config, group_size, traits)
    levels = _levels(ids, traits)
    if len(levels) < 2:
        what = f"all of the same difficulty, {levels.pop()}" if levels else "of no known difficulty"
        raise ConfigError(
            f"got curriculum=difficulty with env={env.type}, whose tasks are {what}, expected at "
            f"least two levels: take {key}curriculum.type=pass_rate, or tasks that say a number"
        )
    return ByDifficulty(config, levels, traits)


def _checked(env: EnvConfig) -> Callable[[str], TaskTraits]:
    """Traits as tasks report them; for a task that fails to, none."""
    with boundary(ConfigError, f"env={env.type} cannot say what its tasks are like"):
        traits = env.traits()

    def checked(task_id: str) -> TaskTraits:
        try:
            with boundary(EnvError, f"task {task_id!r}"):
                return traits(task_id)
        except EnvError:  # whoever plays it says what is wrong
            return TaskTraits()

    return checked


def _levels(ids: Sequence[str], traits: Callable[[str], TaskTraits]) -> set[int]:
    """Levels of some tasks, spread over all."""
    count = min(len(ids), _LOOKED_AT)
    looked_at = {ids[n] for n in range(count)} | {ids[n * len(ids) // count] for n in range(count)}
    found = {traits(task_id).difficulty for task_id in looked_at}
    return {level for level in found if level is not None}
