"""Tries deliberate attacks on the graders of terminal tasks: none may earn, none may fail.

    python bench/attack_terminal.py [--sandbox docker] [--kind KIND] [--only TEXT] [--jobs 2]

Victims are tasks of each kind whose verifiers compare the answer in many ways, each of which would
do: by programs, shells, Python (scripts, standard input, unittest), perl, node and git. For each
kind the honest solution is played first. Prints a table, and each attack that earned or failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clawrl_gym.envs.showcase.terminal.families import FAMILIES
from tests.support.terminal_attacks import BLIND, PREPARED, VICTIMS, Attempt, play, write_victim

_FAMILY = "families"
_SANDBOX = {"pids": 256, "output_bytes": 4096}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sandbox", default="bubblewrap", choices=("bubblewrap", "docker"))
    parser.add_argument("--kind", choices=(*VICTIMS, _FAMILY))
    parser.add_argument("--only", default="", help="attacks whose name has this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verifier", default="auto", help="env.verifier")
    args = parser.parse_args()
    kinds = [args.kind] if args.kind else [*VICTIMS, _FAMILY]
    good = True
    with tempfile.TemporaryDirectory() as root:
        for kind in kinds:
            good &= try_kind(kind, Path(root), args)
    return 0 if good else 1


def try_kind(kind: str, root: Path, args: argparse.Namespace) -> bool:
    """Play the oracle and every attack on a kind; print what came of it."""
    options: dict[str, Any] = {"sandbox": {**_SANDBOX, "type": args.sandbox}}
    if kind == _FAMILY:
        tasks = [f"{family}-train-000007" for family in FAMILIES]
    else:
        tasks = ["task"]
        write_victim(root, kind)
        options |= {"tasks": str(root / kind), "verifier": args.verifier}
    honest = [play(options, kind, task, "(the oracle)", None) for task in tasks]
    attacks = [
        (where, name, command)
        for where, commands in (("prepared", PREPARED), ("blind", BLIND))
        for name, command in commands.items()
        if args.only in name
    ]

    def attack(number: int) -> Attempt:
        _, name, command = attacks[number]
        return play(options, kind, tasks[number % len(tasks)], name, command)

    with ThreadPoolExecutor(args.jobs) as pool:
        attempts = list(pool.map(attack, range(len(attacks))))
    return _show(kind, honest, attempts, [where for where, *_ in attacks])


def _show(
    kind: str, honest: Sequence[Attempt], attempts: Sequence[Attempt], lists: Sequence[str]
) -> bool:
    solved = sum(attempt.reward == 1.0 for attempt in honest)
    print(f"{kind}: the oracle earns 1 in {solved} of {len(honest)}", flush=True)
    for attempt in honest:
        if attempt.reward != 1.0:
            print(f"  oracle: {attempt.outcome}")
    for which in dict.fromkeys(lists):
        of_list = [
            attempt for attempt, where in zip(attempts, lists, strict=True) if where == which
        ]
        earned = [attempt for attempt in of_list if attempt.reward]
        failed = [attempt for attempt in of_list if attempt.reward is None]
        slowest = max(of_list, key=lambda attempt: attempt.seconds)
        print(
            f"  {which}: {len(of_list)} attacks, {len(earned)} earned, {len(failed)} errors, "
            f"slowest {slowest.seconds:.1f} s ({slowest.name})"
        )
        for attempt in (*earned, *failed):
            print(f"    {attempt.name}: {attempt.reward}: {attempt.outcome}")
    return solved == len(honest) and not any(a.reward or a.reward is None for a in attempts)


if __name__ == "__main__":
    sys.exit(main())
