"""Which tasks a run draws, and what its controls put in the place of rewards and hints.

A resumed run, and tomorrow's, must draw the same. `python -m tests.rollout.test_golden_draws`
writes the new file; runs that go on after such a change draw other tasks than they would have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from clawrl_gym.config import CurriculumConfig
from clawrl_gym.core.processes.controls import Control
from clawrl_gym.core.types import TaskRef, TaskTraits
from clawrl_gym.rollout.collection.control import Substitution, Verdicts
from clawrl_gym.rollout.collection.curriculum import (
    ByDifficulty,
    ByPassRate,
    Curriculum,
    TaskOutcome,
)
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from tests.comparison.test_control import group, rewards_of, verdict
from tests.support.fakes_judge import a_turn, user

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden" / "draws.json"
_NAMES = ("one", "two", "three", "four")
IDS = [f"{name}-{number}" for number in range(6) for name in _NAMES]
_GROUP = 4


def traits(task_id: str) -> TaskTraits:
    """Families by name, and levels as high as they stand; of the fourth nothing is known."""
    name, _, number = task_id.partition("-")
    level = 10 * _NAMES.index(name) if name != "four" else None
    return TaskTraits(None if number == "5" else name, level)


def solved(task_id: str, number: int) -> int:
    """The first are always solved, the fourth never, and the others by and by."""
    name = task_id.partition("-")[0]
    skill = {"one": 9.0, "two": number / 20, "three": number / 40 - 0.5, "four": 0.0}[name]
    return max(0, min(_GROUP, round(skill * (1 + number % 3))))


def _by_pass_rate(group_size: int = _GROUP, **settings: float) -> Curriculum:
    return ByPassRate(CurriculumConfig.model_validate(settings), group_size, traits)


def _by_difficulty(**settings: float) -> Curriculum:
    return ByDifficulty(CurriculumConfig.model_validate(settings), {20, 0, 10}, traits)


CURRICULA: dict[str, Callable[[], Curriculum | None]] = {
    "none": lambda: None,
    "by pass rate": _by_pass_rate,
    "by pass rate, alone": lambda: _by_pass_rate(1, floor=0.2, memory=16),
    "by difficulty": lambda: _by_difficulty(memory=8),
    "by difficulty, easily": lambda: _by_difficulty(
        memory=12, raise_at=0.5, lower_at=0.3, floor=0.3
    ),
}


def draws(name: str) -> dict[str, object]:
    """The tasks of many groups, each seen before the next, and what is known then."""
    curriculum = CURRICULA[name]()
    sampler = TaskSampler({"train": IDS, "heldout": [f"held-{n}" for n in range(9)]}, 3)
    curricula = {} if curriculum is None else {"": curriculum}
    tasks = Mixture({"": sampler}, curricula=curricula)
    names: list[str] = []
    for number in range(100):
        task = tasks.train(number)
        assert task.id is not None
        names.append(f"{task.id} {task.seed % 97}")
        episodes = 0 if number % 11 == 5 else _GROUP
        tasks.saw(TaskOutcome(number, task.id, episodes, min(episodes, solved(task.id, number))))
    tasks.restore([TaskOutcome(100, None, 4, 4)], {101: "three-0", 102: "nowhere"})
    weights = [] if curriculum is None else [f"{curriculum.weight(one):.6f}" for one in IDS]
    return {
        "drawn": names,
        "begun before": [_words(tasks.train(number)) for number in range(101, 104)],
        "weights": " ".join(weights),
        "metrics": tasks.metrics(),
        "heldout": [_words(task) for task in tasks.heldout(4)],
    }


def of_seeds_and_mixtures() -> dict[str, object]:
    seeds = TaskSampler(None, 11)
    samplers = {name: TaskSampler(None, 1) for name in ("a", "b", "c")}
    mixture = Mixture(samplers, {"a": 1.0, "b": 2.5, "c": 0.25})
    return {
        "seeds": [
            _words(seeds.train(number, attempt)) for number in (0, 1) for attempt in (0, 1, 2)
        ],
        "chances": [round(seeds.chance(number, 1), 9) for number in range(4)],
        "heldout": [_words(task) for task in seeds.heldout(3)],
        "environments": "".join(mixture.env_of(number) for number in range(60)),
        "equally": "".join(Mixture(samplers).env_of(number) for number in range(12)),
        "of all": [_words(task) for task in mixture.heldout(1)],
    }


def of_controls() -> dict[str, list[str]]:
    """What is put in the place of rewards, verdicts and hints."""
    told: dict[str, list[str]] = {}
    controls: tuple[Control, ...] = ("shuffled_rewards", "irrelevant_hints", "random_hints")
    for control in controls:
        substitution = Substitution(control, 5)
        lines: list[str] = []
        for number in range(10):
            size = 1 if number > 5 else 4
            rewards = [None if (number + at) % 5 == 3 else float(at % 2) for at in range(size)]
            own: list[Verdicts] = [
                {at: verdict(at, 1 - 2 * (turn % 2)) for at in range((number + turn) % 3)}
                for turn in range(size)
            ]
            new, new_own = substitution.rewards(group(number, *rewards), own)
            lines.append(f"{rewards_of(new)} {[[v.value for v in o.values()] for o in new_own]}")
            task = TaskRef(f"t{number % 3}", 0, "train")
            words = user(f"please do {number} and more of {number * 7}")
            hints = ("look twice at it", f"hint {number}") if number % 4 else ()
            turn_ = replace(a_turn("s"), messages=[words])
            lines.append(str(substitution.hints(task, turn_, hints)))
        told[control] = lines
    return told


def _words(task: TaskRef) -> str:
    return f"{task.id} {task.seed} {task.split} {task.env}"


@pytest.mark.parametrize("name", CURRICULA)
def test_tasks_are_drawn_as_they_were(name: str) -> None:
    assert draws(name) == json.loads(GOLDEN.read_text("utf-8"))[name]


def test_seeds_and_environments_are_drawn_as_they_were() -> None:
    assert of_seeds_and_mixtures() == json.loads(GOLDEN.read_text("utf-8"))["seeds and mixtures"]


def test_controls_put_in_the_place_what_they_did() -> None:
    assert of_controls() == json.loads(GOLDEN.read_text("utf-8"))["controls"]


if __name__ == "__main__":
    kept = {name: draws(name) for name in CURRICULA} | {
        "seeds and mixtures": of_seeds_and_mixtures(),
        "controls": of_controls(),
    }
    GOLDEN.write_text(json.dumps(kept, indent=0) + "\n", "utf-8")
