"""What sandboxes cost when thousands are alive: start, memory, commands, hand-over, end.

    python bench/sandbox.py [--alive 5000] [--threads 4] [--seconds 5] [--gym 16]
                            [--swerex PYTHON --containers 4]

Starts so many, steps all of them by turns, ends them. In the same run, before that, what others do:
Gymnasium's AsyncVectorEnv over an environment of ours (`--gym 0` leaves it out), and SWE-ReX in
containers where PYTHON is one that has `swe-rex` (a virtual environment of its own) and an engine
answers. Prints one line of JSON. Nothing is left afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from bench import sandbox_peers
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits, Sandbox
from clawrl_gym.envs.sandbox.launcher_client import launcher_client

Result = TypeVar("Result")
Figures = dict[str, float | int | str]
_MOST_ALIVE = 30_000
_BLOCK = 250
"""Starts are told by the first and the last so many."""
_COMMAND_S = 60.0
_COMMANDS = {"echo": "echo", "fork": "/bin/true", "pipeline": "echo a | tr a b"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alive", type=int, default=500, help=f"at a time, at most {_MOST_ALIVE}")
    parser.add_argument("--threads", type=int, default=4, help="that start, step and end them")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each kind of command")
    parser.add_argument("--gym", type=int, default=0, help="environments of an AsyncVectorEnv")
    parser.add_argument("--swerex", default="", help="a Python that has swe-rex")
    parser.add_argument("--containers", type=int, default=4, help="of SWE-ReX")
    args = parser.parse_args()
    if not 1 <= args.alive <= _MOST_ALIVE:
        parser.error(f"got --alive {args.alive}, expected 1 to {_MOST_ALIVE}")
    figures: Figures = {"load": round(os.getloadavg()[0], 1)}
    if args.gym:
        figures |= sandbox_peers.gymnasium(args.gym, args.threads, args.seconds)
    figures |= sandbox_peers.swerex(args.swerex, args.containers, args.seconds)
    launcher_client()  # the launcher's own start is not a sandbox's
    with ThreadPoolExecutor(args.threads) as pool:
        figures |= measure(args.alive, args.threads, args.seconds, pool)
    print(json.dumps(figures))


def measure(alive: int, threads: int, seconds: float, pool: ThreadPoolExecutor) -> Figures:
    before_kb, own, launchers = _available_kb(), _descriptors("self"), _descriptors(_launcher())
    blocks, sandboxes = _start(alive, pool)
    figures: Figures = {
        "limits": launcher_client().limits_kind,
        "alive": alive,
        "threads": threads,
        "starts_per_s": round(alive / sum(wall_s for _, wall_s in blocks), 1),
        "starts_per_s_first": round(blocks[0][0] / blocks[0][1], 1),
        "starts_per_s_last": round(blocks[-1][0] / blocks[-1][1], 1),
        "starts_per_s_least": round(min(count / wall_s for count, wall_s in blocks), 1),
        "memory_kb_each": round((before_kb - _available_kb()) / alive),
        "descriptors_each": round((_descriptors("self") - own) / alive, 2),
        "launcher_descriptors_each": round((_descriptors(_launcher()) - launchers) / alive, 2),
    }
    try:
        for name, command in _COMMANDS.items():
            count, stepped, wall_s = step_all(sandboxes, command, threads, seconds, pool)
            figures[f"{name}_per_s"] = round(count / wall_s)
            figures[f"{name}_sandboxes"] = stepped
        some = sandboxes[:100]
        heirs = list(pool.map(_timed, [sandbox.successor for sandbox in some]))
        sandboxes[:100] = [heir for heir, _ in heirs]
        figures |= _percentiles("successor_ms", [ms for _, ms in heirs])
    finally:
        started_s = time.monotonic()
        list(pool.map(lambda sandbox: sandbox.close(), sandboxes))
        figures["all_closed_s"] = round(time.monotonic() - started_s, 2)
    return figures


def _start(alive: int, pool: ThreadPoolExecutor) -> tuple[list[tuple[int, float]], list[Sandbox]]:
    """(How many, seconds) by block, and the sandboxes."""
    blocks, sandboxes = [], list[Sandbox]()
    while len(sandboxes) < alive:
        count, started_s = min(_BLOCK, alive - len(sandboxes)), time.monotonic()
        sandboxes += pool.map(lambda _: open_sandbox(Limits()), range(count))
        blocks.append((count, time.monotonic() - started_s))
    return blocks, sandboxes


def step_all(
    sandboxes: Sequence[Sandbox],
    command: str,
    threads: int,
    seconds: float,
    pool: ThreadPoolExecutor,
) -> tuple[int, int, float]:
    """Commands, sandboxes that ran one, seconds: each thread goes round its share."""
    end_s = time.monotonic() + seconds

    def go_round(share: Sequence[Sandbox]) -> int:
        count = 0
        while time.monotonic() < end_s:
            sandbox = share[count % len(share)]
            assert sandbox.exec(command, _COMMAND_S).exit_code == 0
            count += 1
        return count

    shares = [share for at in range(threads) if (share := sandboxes[at::threads])]
    started_s = time.monotonic()
    counts = list(pool.map(go_round, shares))
    wall_s = time.monotonic() - started_s
    stepped = sum(min(count, len(share)) for count, share in zip(counts, shares, strict=True))
    return sum(counts), stepped, wall_s


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    started_s = time.monotonic()
    result = call()
    return result, (time.monotonic() - started_s) * 1e3


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": len(ordered) // 2, "p95": min(len(ordered) - 1, len(ordered) * 95 // 100)}
    return {f"{name}_{key}": round(ordered[index], 2) for key, index in at.items()}


def _launcher() -> str:
    return str(launcher_client().launcher_pid)


def _descriptors(process: str) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def _available_kb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
