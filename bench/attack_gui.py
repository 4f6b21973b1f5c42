"""Replies that try to be graded 1 on generated pages without doing what was asked for.

    python bench/attack_gui.py

One task of each family, on a page without a browser: what is graded is the state of the task's
servers and the answer. Prints a line for each attack that came through and a line of sums; exit
code 1 when one did. The attacks are in tests/support/gui_attacks.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clawrl_gym.core.errors import ClawError
from tests.support.gui_attacks import ATTACKS, attacked_tasks, reward_of
from tests.support.gui_sites import paper_env


def main() -> int:
    env, started_s, rewarded, lost, changed = paper_env(), time.monotonic(), 0, 0, 0
    tasks = attacked_tasks(every=1)
    for task_id in tasks:
        for attack in ATTACKS:
            try:
                reward = reward_of(env, task_id, attack)
            except ClawError as error:
                lost += 1
                print(f"  no grade: {task_id}: {attack.name}: {str(error)[:200]}")
                continue
            changed += "expected" in env.report
            if reward > 0:
                rewarded += 1
                print(f"  rewarded: {task_id}: {attack.name}")
    seconds = time.monotonic() - started_s
    print(f"{len(tasks)} tasks, {len(ATTACKS)} attacks each: {rewarded} rewarded, {lost} without a "
          f"grade, {changed} with a wrong state or answer, {seconds:.0f} s")  # fmt: skip
    return 1 if rewarded or lost else 0


if __name__ == "__main__":
    sys.exit(main())
