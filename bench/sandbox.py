"""What a sandbox costs: start, command, successor and end, and memory for each that is alive.

    python bench/sandbox.py [--alive 50] [--threads 2] [--commands 200]

Prints one line of JSON. Nothing is left afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.launcher_client import launcher_client

Result = TypeVar("Result")
_MOST_ALIVE = 500
_COMMAND_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alive", type=int, default=50, help=f"at a time, at most {_MOST_ALIVE}")
    parser.add_argument("--threads", type=int, default=2, help="that start and stop them")
    parser.add_argument("--commands", type=int, default=200, help="for the round trip")
    args = parser.parse_args()
    if not 1 <= args.alive <= _MOST_ALIVE:
        parser.error(f"got --alive {args.alive}, expected 1 to {_MOST_ALIVE}")
    launcher_client()  # the launcher's own start is not a sandbox's
    print(json.dumps(measure(args.alive, args.threads, args.commands)))


def measure(alive: int, threads: int, commands: int) -> dict[str, float | int | str]:
    before_kb = _available_kb()
    started_s = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        opened = list(pool.map(lambda _: _timed(lambda: open_sandbox(Limits())), range(alive)))
        wall_s = time.monotonic() - started_s
        sandboxes = [sandbox for sandbox, _ in opened]
        each_kb = (before_kb - _available_kb()) / alive
        first = sandboxes[0]
        echo_ms = [_timed(lambda: first.exec("echo", _COMMAND_S))[1] for _ in range(commands)]
        fork_ms = [_timed(lambda: first.exec("/bin/true", _COMMAND_S))[1] for _ in range(commands)]
        heirs = [_timed(sandbox.successor) for sandbox in sandboxes]
        ended = list(pool.map(lambda heir: _timed(heir[0].close)[1], heirs))
    return {
        "limits": launcher_client().limits_kind,
        "alive": alive,
        "threads": threads,
        "starts_per_s": round(alive / wall_s, 1),
        "memory_kb_each": round(each_kb),
        "load": round(os.getloadavg()[0], 1),
        **_percentiles("start_ms", [ms for _, ms in opened]),
        **_percentiles("echo_ms", echo_ms),
        **_percentiles("fork_ms", fork_ms),
        **_percentiles("successor_ms", [ms for _, ms in heirs]),
        **_percentiles("close_ms", ended),
    }


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    started_s = time.monotonic()
    result = call()
    return result, (time.monotonic() - started_s) * 1e3


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": len(ordered) // 2, "p95": min(len(ordered) - 1, len(ordered) * 95 // 100)}
    return {f"{name}_{key}": round(ordered[index], 2) for key, index in at.items()}


def _available_kb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
