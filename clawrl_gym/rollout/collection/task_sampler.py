"""Choice of a run's tasks: deterministic in the seed, so that a resumed run draws the same.

A task that is left out, as its verifier gives no verdict, is replaced by another one where it would
be drawn; all other draws stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice

from clawrl_gym.config import EnvConfig
from clawrl_gym.core.broken_tasks import broken_line
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.core.types import Split, TaskRef

_HELDOUT_SEED = 1 << 30
"""Environments without named tasks: held-out seeds start here, training seeds stay below."""
_MOST_COMPARED = 1_000_000
_COMPARED_HELDOUT = 1000


class TaskSampler:
    """Task number n of a split: a function of the run's seed and n alone."""

    def __init__(
        self,
        ids: dict[Split, Sequence[str]] | None,
        seed: int,
        broken: Mapping[str, str] | None = None,
    ) -> None:
        """`broken`: tasks to leave out, each with the reason."""
        self._ids = ids
        self._seed = seed
        self._broken = dict(broken or {})

    @classmethod
    def of(cls, config: EnvConfig, seed: int) -> TaskSampler:
        """The tasks of an environment; one without named tasks has seeds. Raises ConfigError for
        one without any."""
        train = _ids(config, "train")
        if train is None:
            return cls(None, seed)
        heldout = _ids(config, "heldout") or ()
        if not train and not heldout:
            raise ConfigError(f"env={config.type} holds no task with these options")
        _check_disjoint(config, train, heldout)
        with boundary(ConfigError, f"env={config.type} cannot say which tasks are broken"):
            broken = config.broken_tasks()
        if broken and all(task_id in broken for task_id in (*train, *heldout)):
            raise ConfigError(f"env={config.type}: {_all_broken(broken)}")
        return cls({"train": train, "heldout": heldout}, seed, broken)

    @property
    def draws_seeds(self) -> bool:
        """The environment names no tasks: held-out ones are other seeds, and maybe not others."""
        return self._ids is None

    @property
    def train_ids(self) -> Sequence[str] | None:
        """Ids of all training tasks; None where there are seeds."""
        return None if self._ids is None else self._ids["train"]

    @property
    def can_train(self) -> bool:
        """Not all of its tasks are held out, or left out."""
        return self._ids is None or any(one not in self._broken for one in self._ids["train"])

    @property
    def broken(self) -> Mapping[str, str]:
        """Tasks that are left out, each with the reason."""
        return self._broken

    def leave_out(self, task_id: str, reason: str) -> None:
        """Never draw a task again."""
        self._broken[task_id] = reason

    def train(self, number: int, attempt: int = 0) -> TaskRef:
        """Training task `number` of this run; another one at each attempt.

        Raises EnvError when every training task is left out.
        """
        again = (attempt,) if attempt else ()
        return self._draw("train", number, *again)

    def chance(self, number: int, attempt: int) -> float:
        """A number in [0, 1) for each attempt, for whoever takes some of them only."""
        return _hash(self._seed, "chance", number, attempt) / 2**64

    def heldout(self, count: int) -> list[TaskRef]:
        """The first `count` held-out tasks, the same for every seed; fewer if there are fewer."""
        if self._ids is None:
            return [TaskRef(None, _HELDOUT_SEED + n, "heldout") for n in range(count)]
        ids = self._ids["heldout"]
        order = sorted(range(len(ids)), key=lambda n: _hash("heldout", n))
        usable = (n for n in order if ids[n] not in self._broken)
        return [TaskRef(ids[n], n, "heldout") for n in islice(usable, count)]

    def _draw(self, split: Split, *number: int) -> TaskRef:
        drawn = _hash(self._seed, split, *number)
        if self._ids is None:
            return TaskRef(None, drawn % _HELDOUT_SEED, split)
        ids = self._ids[split]
        task_id = ids[drawn % len(ids)]
        if task_id in self._broken:
            others = [one for one in ids if one not in self._broken]
            if not others:
                raise EnvError(f"nothing is left to train on: {_all_broken(self._broken)}")
            task_id = others[drawn % len(others)]
        return TaskRef(task_id, drawn % _HELDOUT_SEED, split)


def _all_broken(broken: Mapping[str, str]) -> str:
    return f"every task is broken: {broken_line(broken)}"


def _ids(config: EnvConfig, split: Split) -> Sequence[str] | None:
    with boundary(ConfigError, f"env={config.type} cannot list its {split} tasks"):
        ids = config.task_ids(split)
    if ids is None:
        return None
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        raise ConfigError(
            f"env={config.type} lists its {split} tasks as {type(ids).__name__}, expected a list "
            "of ids, or None for an environment that has seeds"
        )
    if ids and not isinstance(ids[0], str):
        raise ConfigError(f"env={config.type} has the task id {ids[0]!r}, expected a text")
    return ids


def _check_disjoint(config: EnvConfig, train: Sequence[str], heldout: Sequence[str]) -> None:
    """Check (an endless set's first) tasks. Raises ConfigError when nothing is held out."""
    known = set(train) if len(train) <= _MOST_COMPARED and not _knows_its_own(train) else train
    both = [task_id for task_id in islice(heldout, _COMPARED_HELDOUT) if task_id in known]
    if both:
        raise ConfigError(
            f"env={config.type} lists {len(both)} tasks as training and as held-out ones, such as "
            f"{both[0]!r}; expected task_ids('train') and task_ids('heldout') to have none in "
            "common (none held out: return [] for 'heldout')"
        )


def _knows_its_own(ids: Sequence[str]) -> bool:
    """Whether it knows its members without being searched through, unlike a list."""
    return not isinstance(ids, list | tuple) and type(ids).__contains__ is not Sequence.__contains__


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")
