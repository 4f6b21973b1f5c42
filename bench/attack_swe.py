"""Wrong patches that try to be rewarded: none may earn anything, none may end without a grade.

    python bench/attack_swe.py [--ground NAME ...] [--only WORD]

Prints a line for each attack that came through and a table; exit code 1 when one did. The attacks
are in tests/support/swe_attacks.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clawrl_gym.core.errors import ClawError
from tests.support.swe_attacks import (
    ATTACKS,
    GROUNDS,
    SABOTAGE,
    attacked,
    graded,
    sabotaged,
    sandboxes,
    small_env,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ground", action="append", choices=GROUNDS, help="only these instances")
    parser.add_argument("--only", default="", help="only attacks with this word in their name")
    args = parser.parse_args()
    opener, came_through = sandboxes(), 0
    print(f"{'instance':32} {'attacks':>7} {'rewarded':>8} {'no grade':>8} {'gold':>5} {'s':>6}")
    for ground in args.ground or GROUNDS:
        instance, started_s = GROUNDS[ground](), time.monotonic()
        rewarded = lost = 0
        attacks = [attack for attack in ATTACKS[ground] if args.only in attack.name]
        for attack in attacks:
            try:
                reward = graded(instance, attacked(instance, attack), opener).reward
            except ClawError as error:
                lost += 1
                print(f"  no grade: {ground}: {attack.name}: {str(error)[:200]}")
                continue
            if reward > 0:
                rewarded += 1
                print(f"  rewarded: {ground}: {attack.name}")
        gold = graded(instance, instance.patch, opener).reward
        came_through += rewarded + lost + (gold != 1.0)
        seconds = time.monotonic() - started_s
        print(f"{ground:32} {len(attacks):7} {rewarded:8} {lost:8} {gold:5.0f} {seconds:6.0f}")
    if not args.ground:
        came_through += _sabotage(args.only)
    return 1 if came_through else 0


def _sabotage(word: str) -> int:
    """Sabotage of an agent in its own workspace before it submits."""
    env, rewarded, lost = small_env(), 0, 0
    names = [name for name in SABOTAGE if word in name]
    for name in names:
        try:
            rewarded += sabotaged(env, SABOTAGE[name]) > 0
        except ClawError as error:
            lost += 1
            print(f"  no grade: workspace: {name}: {str(error)[:200]}")
    env.close()
    print(f"{'sabotaged workspaces':32} {len(names):7} {rewarded:8} {lost:8}")
    return rewarded + lost


if __name__ == "__main__":
    sys.exit(main())
