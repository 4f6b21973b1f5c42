"""Composed tool-call tasks, played in their environment: how many of them the oracle solves, doing
nothing, what is wrong but near, and agents that know every skill and do not plan; by difficulty.

    python -m bench.toolcall_composed [TASKS_A_FAMILY]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from clawrl_gym.core.types import Split
from clawrl_gym.envs.toolcall.composed.generated import compose, composed_tasks, make_task
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from tests.office_agents import first_that_is_recognised, in_order_of_the_text, solves

_SPLITS: tuple[Split, ...] = ("train", "heldout")
_HEADS = ("tasks", "oracle", "nothing", "near", "in order", "first")
_ROW = "{:>22} {:>6} {:>7} {:>8} {:>6} {:>9} {:>6}"


@dataclass(frozen=True, slots=True)
class Played:
    """One task, and who solved it."""

    family: str
    difficulty: int
    oracle: bool
    nothing: bool
    near: tuple[bool, ...]
    in_order: bool
    first: bool


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    names = [
        (split, name)
        for split in _SPLITS
        for ids in [composed_tasks().ids(split)]
        for name in ids[: count * len(ids.families)]
    ]
    start = time.process_time()
    for _, name in names:
        make_task(name)
    each_ms = (time.process_time() - start) / len(names) * 1e3
    print(f"{len(names)} tasks, {each_ms:.1f} ms each to make")
    env = ToolCallEnv(tasks="composed")
    played = sorted((_play(env, *name) for name in names), key=lambda task: task.difficulty)
    hardest = played[-len(played) // 3 :]
    print(_ROW.format("", *_HEADS))
    for difficulty in sorted({task.difficulty for task in played}):
        _show(f"difficulty {difficulty}", [t for t in played if t.difficulty == difficulty])
    for family in sorted({task.family for task in played}):
        _show(family, [task for task in played if task.family == family])
    _show(f"hardest third ({hardest[0].difficulty}+)", hardest)
    _show("all", played)


def _play(env: ToolCallEnv, split: Split, name: str) -> Played:
    task = make_task(name)
    composed = compose(task.family, split, int(name[-6:]))
    plan = composed.plan
    return Played(
        task.family,
        task.difficulty,
        solves(env, name, plan.turns),
        solves(env, name, ["Done."]),
        tuple(solves(env, name, turns) for turns in plan.near()),
        solves(env, name, in_order_of_the_text(composed)),
        solves(env, name, first_that_is_recognised(composed)),
    )


def _show(label: str, played: Sequence[Played]) -> None:
    shares = (
        _share([task.oracle for task in played]),
        _share([task.nothing for task in played]),
        _share([solved for task in played for solved in task.near]),
        _share([task.in_order for task in played]),
        _share([task.first for task in played]),
    )
    print(_ROW.format(label, len(played), *(f"{share:.0%}" for share in shares)))


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
