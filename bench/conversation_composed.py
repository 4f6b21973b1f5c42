"""Composed conversations, held with their users: how many of them the oracle satisfies, saying
nothing, who is nearly right or tries it on, who has every skill and remembers the last message
alone, and who keeps a wish once it was complained about; by difficulty.

    python -m bench.conversation_composed [TASKS_A_FAMILY]
"""

from __future__ import annotations

import sys
import time

from bench.composed_table import Played, show_table
from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.conversation.composed.generated import (
    ComposedTask,
    composed_tasks,
    make_task,
)
from tests.support.talk_agents import (
    NEAR,
    TRICKS,
    Moment,
    Said,
    earns,
    forgets,
    is_slip,
    learns,
    right,
)

_SPLITS: tuple[Split, ...] = ("train", "heldout")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    names = [
        name
        for split in _SPLITS
        for ids in [composed_tasks().ids(split)]
        for name in ids[: count * len(ids.families)]
    ]
    start = time.process_time()
    tasks = [make_task(name) for name in names]
    each_ms = (time.process_time() - start) / len(names) * 1e3
    print(f"{len(names)} tasks, {each_ms:.1f} ms each to make")
    show_table([_play(task) for task in tasks], ("forgets", "learns"))


def _play(task: ComposedTask) -> Played:
    near = (speaker for speaker in (*NEAR, *TRICKS) if is_slip(task, speaker))
    return Played(
        task.family,
        task.difficulty,
        earns(task, right),
        earns(task, _silent),
        tuple(earns(task, speaker) for speaker in near),
        (earns(task, forgets), earns(task, learns)),
    )


def _silent(_: Moment) -> Said:
    return Said("", {})


if __name__ == "__main__":
    main()
