"""Tasks of the package reasoning-gym, whose own scorers grade them.

Each task has a data set of its own, by a seed that no other task has, and is the first question of
it that belongs to the task's split. What is held out is never seen in training.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from clawrl_gym.core.errors import ClawError, ConfigError, EnvError, TaskError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.core.types import Split
from clawrl_gym.envs.report import Grade, report_of
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    TaskId,
    parse_id,
    select_families,
    split_of_content,
)
from clawrl_gym.envs.text.task import TextTask

PREFIX = "gym-"
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "coin_flip": {},
    "leg_counting": {"min_animals": 1, "max_animals": 1, "max_instances": 4},
    "letter_counting": {"min_words": 1, "max_words": 2},
    "number_format": {"max_num_candidates": 2, "min_n": 1, "max_n": 100},
    "spell_backward": {"min_word_len": 3, "max_word_len": 3},
}
"""Families without `env.families`, with the options that keep them short."""
_QUESTIONS = 64
"""Number of questions of each task's own data set; the first that belongs to its split is asked."""
_SEEDS: Mapping[Split, int] = {"train": 0, "heldout": 1_000_000_000}
"""Seed of the first task's data set."""


class DataSet(Protocol):
    """One of the package's data sets."""

    def __getitem__(self, number: int) -> dict[str, Any]: ...

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float: ...


@dataclass(frozen=True, slots=True)
class ReasoningGrader:
    """The package's scorer over the answer that the package finds in a reply."""

    family: str
    data_set: DataSet = field(repr=False)
    entry: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return f"reasoning_gym.{self.family}"

    def grade(self, reply: str) -> Grade:
        """An answer that the scorer cannot read earns 0, where it can read the right one."""
        from reasoning_gym.utils import extract_answer

        answer = extract_answer(reply)
        try:
            reward = self.data_set.score_answer(answer, self.entry)
        except Exception:  # noqa: BLE001  # of any kind: what it cannot read is the policy's
            self.data_set.score_answer(self.entry["answer"], self.entry)
            return Grade(0.0, report_of([f"the answer {answer!r:.200} cannot be read"]))
        failure = (
            "the reply has no <answer>" if answer is None else f"the answer is {answer!r:.200}"
        )
        return Grade(reward, report_of([] if reward >= 1.0 else [failure]))


class ReasoningTasks:
    """Families of the package with their options; a data set of its own for each task."""

    def __init__(self, options: Mapping[str, Mapping[str, object]], system: str) -> None:
        """Raises ConfigError for options that the package refuses."""
        self._options = options
        self._system = system
        for family, own in options.items():
            _data_set(family, 0, own)
        self._question = lru_cache(maxsize=256)(self._first_question)

    def make_task(self, task_id: str) -> TextTask:
        """Raises TaskError for what is no id, and for a family that never draws the split."""
        parsed = parse_id(task_id, self._options, PREFIX)
        data_set, entry = self._question(parsed)
        answer = entry["answer"]
        return TextTask(
            id=task_id,
            family=parsed.family,
            split=parsed.split,
            prompt=entry["question"],
            grader=ReasoningGrader(parsed.family, data_set, entry),
            solution=f"<answer>{answer}</answer>" if isinstance(answer, str) else None,
            system=self._system,
        )

    def _first_question(self, task: TaskId) -> tuple[DataSet, dict[str, Any]]:
        seed = _SEEDS[task.split] + task.number * _QUESTIONS
        try:
            data_set = _data_set(task.family, seed, self._options[task.family])
            for number in range(_QUESTIONS):
                entry = data_set[number]
                if split_of_content(entry["question"]) == task.split:
                    return data_set, entry
        except ClawError:
            raise
        except Exception as error:
            raise EnvError(
                f"reasoning_gym's {task.family} raised {type(error).__name__}: {error}; change "
                f"env.family_options.{task.family}, or leave the family out"
            ) from error
        raise TaskError(
            f"reasoning_gym's {task.family} has no question of the split {task.split!r} among "
            f"{_QUESTIONS}: it makes too few different ones"
        )


def reasoning_tasks(
    families: Sequence[str] | None, options: Mapping[str, Mapping[str, object]], system: str
) -> GeneratedTasks[TextTask]:
    """The tasks of these families; None takes those of `DEFAULTS`.

    Raises ConfigError for a package that is missing, a family that it has not, wrong options, and
    a system prompt that it has not.
    """
    try:
        from reasoning_gym.factory import DATASETS
        from reasoning_gym.utils import SYSTEM_PROMPTS
    except ImportError as error:
        raise ConfigError(
            f"env.tasks=reasoning_gym needs the package reasoning-gym ({error}): "
            f"{how_to_install('reasoning')}"
        ) from error
    chosen = select_families(sorted(DATASETS), list(DEFAULTS) if families is None else families)
    unused = sorted(set(options) - set(chosen))
    if unused:
        raise ConfigError(
            f"got env.family_options of {', '.join(unused)}, expected those of env.families: "
            f"{', '.join(chosen)}"
        )
    if system not in SYSTEM_PROMPTS:
        raise ConfigError(
            f"got env.system_prompt={system!r}, expected one of {', '.join(SYSTEM_PROMPTS)}"
        )
    own = {family: {**DEFAULTS.get(family, {}), **options.get(family, {})} for family in chosen}
    tasks = ReasoningTasks(own, SYSTEM_PROMPTS[system].strip())
    return GeneratedTasks(chosen, tasks.make_task, PREFIX)


def _data_set(family: str, seed: int, options: Mapping[str, object]) -> DataSet:
    from reasoning_gym.factory import create_dataset

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: DataSet = create_dataset(family, seed=seed, size=_QUESTIONS, **options)
    except Exception as error:
        raise ConfigError(
            f"got env.family_options.{family}={dict(options)!r}, which reasoning_gym refuses: "
            f"{type(error).__name__}: {error}"
        ) from error
    return made
