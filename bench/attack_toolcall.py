"""Code that tries to be graded 1 by programs of tool-call tasks without solving anything.

    python bench/attack_toolcall.py

Prints a line for each attack that came through and a table; exit code 1 when one did. Programs and
attacks are in tests/support/toolcall_attacks.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clawrl_gym.core.errors import ClawError
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from tests.support.toolcall_attacks import ATTACKS, HONEST, LIMITS, PROGRAMS, reward_of


def main() -> int:
    sandboxes, came_through = Sandboxes.of(LIMITS), 0
    print(f"{'program':24} {'attacks':>7} {'rewarded':>8} {'no grade':>8} {'right':>6} {'s':>5}")
    for name, program in PROGRAMS.items():
        started_s, rewarded, lost = time.monotonic(), 0, 0
        for attack in ATTACKS:
            try:
                if reward_of(program, attack.code, sandboxes) > 0:
                    rewarded += 1
                    print(f"  rewarded: {name}: {attack.name}")
            except ClawError as error:
                lost += 1
                print(f"  no grade: {name}: {attack.name}: {str(error)[:200]}")
        right = sum(reward_of(program, code, sandboxes) for code in HONEST)
        came_through += rewarded + lost + (right != len(HONEST))
        seconds = time.monotonic() - started_s
        print(f"{name:24} {len(ATTACKS):7} {rewarded:8} {lost:8} {right:6.0f} {seconds:5.0f}")
    return 1 if came_through else 0


if __name__ == "__main__":
    sys.exit(main())
