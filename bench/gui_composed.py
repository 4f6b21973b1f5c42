"""Composed page tasks, played on pages without a browser: how many of them the oracle solves, doing
nothing, what is wrong but near, and agents that know every skill and do not plan; by difficulty.

    python -m bench.gui_composed [TASKS_A_FAMILY]
"""

from __future__ import annotations

import sys
import time

from bench.composed_table import Played, show_table
from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.showcase.gui.composed.generated import compose, composed_tasks, make_task
from tests.support.desk_agents import (
    first_that_is_recognised,
    in_order_of_the_text,
    paper_desk,
    solves,
)

_SPLITS: tuple[Split, ...] = ("train", "heldout")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
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
    env = paper_desk()
    show_table([_play(env, *name) for name in names])


def _play(env: GuiEnv, split: Split, name: str) -> Played:
    task = make_task(name)
    composed = compose(task.family, split, int(name[-6:]))
    plan = composed.plan
    return Played(
        task.family,
        task.difficulty,
        solves(env, name, plan.turns),
        solves(env, name, []),
        tuple(solves(env, name, turns) for turns in plan.near()),
        (
            solves(env, name, in_order_of_the_text(composed)),
            solves(env, name, first_that_is_recognised(composed)),
        ),
    )


if __name__ == "__main__":
    main()
