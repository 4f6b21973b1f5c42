"""Cost of the Python tool: an interpreter's start, a call, and many that sleep at once.

    python bench/interpreter.py [--starts 40] [--calls 200] [--asleep 32]

Prints one line of JSON. Nothing is left afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.launcher_client import launcher_client
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.toolcall.toolsets.interpreter import Interpreter

_LIMITS = {"memory_mb": 256, "disk_mb": 32, "pids": 32}
_CALL_S = 60.0
_MOST_ASLEEP = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--asleep", type=int, default=32, help=f"at most {_MOST_ASLEEP}")
    parser.add_argument("--sandbox", choices=("bubblewrap", "docker"), default="bubblewrap")
    args = parser.parse_args()
    if not 1 <= args.asleep <= _MOST_ASLEEP or args.starts < 1 or args.calls < 1:
        parser.error(f"expected --starts and --calls of 1 or more, --asleep 1 to {_MOST_ASLEEP}")
    if args.sandbox == "bubblewrap":
        launcher_client()  # the launcher's own start is not an interpreter's
    sandboxes = Sandboxes.of({**_LIMITS, "type": args.sandbox})
    make = partial(Interpreter, partial(sandboxes.open, SandboxSpec()))
    print(json.dumps(measure(make, args.starts, args.calls, args.asleep)))


def measure(
    make: Callable[[], Interpreter], starts: int, calls: int, asleep: int
) -> dict[str, float | int]:
    figures: dict[str, float | int] = {"load": round(os.getloadavg()[0], 1)}
    start_ms, first_ms = [], []
    for _ in range(starts):
        interpreter = make()
        start_ms.append(_timed_ms(interpreter.start))
        first_ms.append(_timed_ms(partial(interpreter.run, "1 + 1", _CALL_S)))
        interpreter.close()
    interpreter = make()
    call_ms = [_timed_ms(lambda: interpreter.run("x = 6 * 7\nx", _CALL_S)) for _ in range(calls)]
    interpreter.close()
    figures |= {**_percentiles("start_ms", start_ms), **_percentiles("first_call_ms", first_ms)}
    return figures | _percentiles("call_ms", call_ms) | _sleeping(make, asleep)


def _sleeping(make: Callable[[], Interpreter], count: int) -> dict[str, float | int]:
    """Interpreters that each sleep one second, on a thread each."""
    interpreters = [make() for _ in range(count)]
    try:
        with ThreadPoolExecutor(count) as threads:
            list(threads.map(Interpreter.start, interpreters))
            sleep = "import time\ntime.sleep(1)"
            started_s = time.monotonic()
            list(threads.map(lambda one: one.run(sleep, _CALL_S), interpreters))
            return {"asleep": count, "asleep_s": round(time.monotonic() - started_s, 3)}
    finally:
        for interpreter in interpreters:
            interpreter.close()


def _timed_ms(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return (time.perf_counter() - started_s) * 1e3


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"{name}_p50": round(statistics.median(ordered), 2),
        f"{name}_p95": round(ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)], 2),
    }


if __name__ == "__main__":
    main()
