"""Composed terminal tasks on the model of their folder: how many of them the oracle solves, doing
nothing, what is wrong but near, and agents that know every skill and do not plan; by difficulty.

    python -m bench.terminal_composed [TASKS_A_FAMILY]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.terminal.composed.families import Composed
from clawrl_gym.envs.showcase.terminal.composed.generated import compose, composed_tasks, make_task
from clawrl_gym.envs.terminal.task import Task
from tests.support.composed_agents import first_that_is_recognised, in_order_of_the_text, solves

Pairs = Sequence[tuple[Task, Composed]]
_SPLITS: tuple[Split, ...] = ("train", "heldout")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    start = time.process_time()
    pairs = [
        (task := make_task(name), compose(task.family, split, int(name[-6:])))
        for split in _SPLITS
        for ids in [composed_tasks().ids(split)]
        for name in ids[: count * len(ids.families)]
    ]
    each_ms = (time.process_time() - start) / len(pairs) / 2 * 1e3
    pairs.sort(key=lambda pair: pair[0].difficulty)
    hardest = pairs[-len(pairs) // 3 :]
    print(f"{len(pairs)} tasks, {each_ms:.1f} ms each to make")
    heads = ("tasks", "oracle", "nothing", "near", "in order", "first")
    print("{:>22} {:>6} {:>7} {:>8} {:>6} {:>9} {:>6}".format("", *heads))
    for difficulty in sorted({task.difficulty for task, _ in pairs}):
        _row(f"difficulty {difficulty}", [p for p in pairs if p[0].difficulty == difficulty])
    for family in sorted({task.family for task, _ in pairs}):
        _row(family, [p for p in hardest if p[0].family == family])
    least = hardest[0][0].difficulty
    _row(f"hardest third ({least}+)", hardest)
    _row("all", pairs)


def _row(label: str, pairs: Pairs) -> None:
    if not pairs:
        return
    near = [solves(t, c, actions) for t, c in pairs for actions in c.plan.near()]
    shares = (
        _share([solves(t, c, c.plan.actions) for t, c in pairs]),
        _share([solves(t, c, []) for t, c in pairs]),
        _share(near),
        _share([solves(t, c, in_order_of_the_text(c)) for t, c in pairs]),
        _share([solves(t, c, first_that_is_recognised(c)) for t, c in pairs]),
    )
    columns = (f"{share:.0%}" for share in shares)
    print("{:>22} {:>6} {:>7} {:>8} {:>6} {:>9} {:>6}".format(label, len(pairs), *columns))


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
