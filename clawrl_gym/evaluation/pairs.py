"""Two evaluations task by task: what changed, and by how much in the mean.

Only tasks that both measured count, so that other tasks make no difference; the interval is the one
of paired differences over tasks (`core/intervals.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.intervals import Difference, mean_difference, reward_difference
from clawrl_gym.core.metrics import RewardKind
from clawrl_gym.evaluation.figures import EvaluationResult, TaskResult, floors_of
from clawrl_gym.evaluation.settings import deciding
from clawrl_gym.ui.text import reward_change

_OF_THE_POLICY = ("policy.", "endpoint.", "seed")
"""Keys in which evaluations that are compared are meant to differ."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A task that one of two solves."""

    before: TaskResult
    after: TaskResult


@dataclass(frozen=True, slots=True)
class Pair:
    """A second evaluation, less a first."""

    before: EvaluationResult
    after: EvaluationResult
    tasks: tuple[tuple[TaskResult, TaskResult], ...]
    """Measured by both."""

    @property
    def unpaired(self) -> int:
        """Tasks that only one of them measured."""
        return len(self.before.measured) + len(self.after.measured) - 2 * len(self.tasks)

    @property
    def success(self) -> Difference:
        difference = mean_difference([[float(b.solved) - float(a.solved) for a, b in self.tasks]])
        assert difference is not None  # there is at least one task
        return difference

    def reward(self, kind: RewardKind = "reward") -> Difference | None:
        """Difference of mean rewards, both by the same floors; None where they are not known."""
        floors = floors_of([self.before, self.after])
        before, after = (one.rewards(kind, floors) for one in (self.before, self.after))
        names = {key: repr(key) for key in before.keys() | after.keys()}
        return reward_difference(
            {names[key]: value for key, value in before.items()},
            {names[key]: value for key, value in after.items()},
        )

    @property
    def won(self) -> list[Flip]:
        """Tasks that only the second one solves."""
        return [Flip(a, b) for a, b in self.tasks if b.solved and not a.solved]

    @property
    def lost(self) -> list[Flip]:
        """Tasks that only the first one solves."""
        return [Flip(a, b) for a, b in self.tasks if a.solved and not b.solved]

    def passes(self) -> dict[int, Difference]:
        """Difference of pass@k, for each k that both have samples for."""
        differences = {}
        for k in sorted(set(self.before.ks) & set(self.after.ks)):
            rates = [(a.pass_at(k), b.pass_at(k)) for a, b in self.tasks]
            own = [b - a for a, b in rates if a is not None and b is not None]
            difference = mean_difference([own])
            if difference is not None:
                differences[k] = difference
        return differences

    def sentence(self, names: dict[Path, str]) -> str:
        """The result in one line."""
        first, second = names[self.before.folder], names[self.after.folder]
        n, difference = len(self.tasks), self.success
        spread = f"({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"
        flips = f"{len(self.won)} tasks only {second} solves, {len(self.lost)} only {first}"
        flips += "".join(f"; {words}" for words in self.reward_words())
        if not difference.is_clear:
            return (
                f"{second} and {first} are not distinguishable on the {n} tasks that both "
                f"measured: {100 * difference.mean:+.1f} points {spread}; {flips}."
            )
        by = f"{abs(100 * difference.mean):.1f} points {_word(difference)} than {first}"
        return f"On the same {n} tasks {second} solves {by} {spread}; {flips}."

    def reward_words(self) -> list[str]:
        """The differences of mean rewards, greedy and sampled, as far as they are known; of greedy
        ones only where they are not 0 and 1, which success tells."""
        kinds: dict[str, RewardKind] = {"reward": "reward", "sampled reward": "sampled_reward"}
        if all(one.reward_is_success for one in (self.before, self.after)):
            del kinds["reward"]
        known = {name: self.reward(kind) for name, kind in kinds.items()}
        return [f"{name} {reward_change(one)}" for name, one in known.items() if one is not None]


def points(difference: Difference) -> str:
    """`12.0 points more (3.7 to 20.3)`, `2.0 points fewer (-6.0 to 2.0)`."""
    low, high = 100 * difference.low, 100 * difference.high
    size = abs(100 * difference.mean)
    return f"{size:.1f} points {_word(difference)} ({low:+.1f} to {high:+.1f})"


def _word(difference: Difference) -> str:
    return "fewer" if difference.mean < 0 else "more"


def pairs_of(results: Sequence[EvaluationResult]) -> list[Pair]:
    """Each with each, the earlier one first. Raises ConfigError for what cannot be compared."""
    return [_pair(before, after) for before, after in itertools.combinations(results, 2)]


def names_of(results: Sequence[EvaluationResult]) -> dict[Path, str]:
    """A short name for each: its folder's, or the whole path where two would be the same."""
    names = [result.name for result in results]
    return {
        result.folder: result.name if names.count(result.name) == 1 else str(result.folder)
        for result in results
    }


def setting_differences(results: Sequence[EvaluationResult]) -> list[tuple[str, list[str]]]:
    """Settings beside the policy that differ: the key, and the value of each."""
    settings = [dict(deciding(result.settings.config)) for result in results]
    keys = sorted({key for one in settings for key in one if not key.startswith(_OF_THE_POLICY)})
    rows = [(key, [str(one.get(key, "-")) for one in settings]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _pair(before: EvaluationResult, after: EvaluationResult) -> Pair:
    if before.env != after.env:
        raise ConfigError(
            f"got evaluations of env={before.env} ({before.folder}) and env={after.env} "
            f"({after.folder}), expected the same environment"
        )
    first = {task.key: task for task in before.measured}
    both = tuple((first[task.key], task) for task in after.measured if task.key in first)
    if not both:
        raise ConfigError(
            f"got {before.folder} and {after.folder}, which have measured no task in common "
            f"({len(before.measured)} and {len(after.measured)} tasks), expected the same tasks: "
            "the same env, split and seed"
        )
    return Pair(before, after, both)
