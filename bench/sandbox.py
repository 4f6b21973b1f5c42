"""Cost of sandboxes when thousands are alive: start, memory, commands, hand-over, end.

    python bench/sandbox.py [--alive 5000] [--threads 4] [--seconds 5] [--gym 16]
                            [--swerex PYTHON --containers 4]

Starts so many, steps all of them by turns, closes a hundred one by one and ends the others at once,
as a process does when it ends. `start_cpu_ms` is what a start costs all its processes but one that
lives for a moment: the wall time depends on what else runs. In the same run, before that, others:
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
from clawrl_gym.envs.sandbox.interface import Limits, Sandbox, SandboxSpec
from clawrl_gym.envs.sandbox.launcher_client import launcher_client
from clawrl_gym.envs.sandbox.processes import children
from clawrl_gym.envs.sandbox.ready import ready_sandboxes
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes

Result = TypeVar("Result")
Figures = dict[str, float | int | str]
_MOST_ALIVE = 30_000
_BLOCK = 250
"""Start times are reported for this many of the first and of the last sandboxes."""
_OPENED, _EPISODE_S = 50, 0.02
"""Openings that are measured, after as many that are not; how long each is used."""
_COMMAND_S = 60.0
_COMMANDS = {"echo": "echo", "fork": "/bin/true", "pipeline": "echo a | tr a b"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alive", type=int, default=500, help=f"at a time, at most {_MOST_ALIVE}")
    parser.add_argument("--threads", type=int, default=4, help="threads that play them")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each kind of command")
    parser.add_argument("--gym", type=int, default=0, help="environments of an AsyncVectorEnv")
    parser.add_argument("--swerex", default="", help="a Python that has swe-rex")
    parser.add_argument("--containers", type=int, default=4, help="containers of SWE-ReX")
    args = parser.parse_args()
    if not 1 <= args.alive <= _MOST_ALIVE:
        parser.error(f"got --alive {args.alive}, expected 1 to {_MOST_ALIVE}")
    figures: Figures = {"load": round(os.getloadavg()[0], 1)}
    if args.gym:
        figures |= sandbox_peers.gymnasium(args.gym, args.threads, args.seconds)
    figures |= sandbox_peers.swerex(args.swerex, args.containers, args.seconds)
    launcher_client()  # the launcher's own start is not a sandbox's
    figures |= handed_over(0) | handed_over(8)
    ready_sandboxes().close()
    with ThreadPoolExecutor(args.threads) as pool:
        figures |= measure(args.alive, args.threads, args.seconds, pool)
    print(json.dumps(figures))


def handed_over(ready: int) -> dict[str, float]:
    """Opening one after the other, each used for a moment, with so many kept ready."""
    sandboxes = Sandboxes.of({"ready": ready})
    opened_ms = []
    for _ in range(2 * _OPENED):
        sandbox, ms = _timed(lambda: sandboxes.open(SandboxSpec()))
        opened_ms.append(ms)
        sandbox.exec("/bin/true", _COMMAND_S)
        time.sleep(_EPISODE_S)
        sandbox.close()
    return _percentiles(f"open_{'ready' if ready else 'fresh'}_ms", opened_ms[_OPENED:])


def measure(alive: int, threads: int, seconds: float, pool: ThreadPoolExecutor) -> Figures:
    before_kb, own, launchers = _available_kb(), _descriptors("self"), _descriptors(_launcher())
    blocks, sandboxes = _start(alive, pool)
    cpu_ms = [cpu_ms for _, _, cpu_ms in blocks]
    figures: Figures = {
        "limits": launcher_client().limits_kind,
        "alive": alive,
        "threads": threads,
        "starts_per_s": round(alive / sum(wall_s for _, wall_s, _ in blocks), 1),
        "starts_per_s_first": round(blocks[0][0] / blocks[0][1], 1),
        "starts_per_s_last": round(blocks[-1][0] / blocks[-1][1], 1),
        "starts_per_s_least": round(min(count / wall_s for count, wall_s, _ in blocks), 1),
        "start_cpu_ms_first": round(cpu_ms[0], 2),
        "start_cpu_ms_last": round(cpu_ms[-1], 2),
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
        ended_ms = [ms for _, ms in pool.map(_timed, [one.close for one in sandboxes[:100]])]
        figures |= _percentiles("close_ms", ended_ms)
        launcher, started_s = Path(f"/proc/{_launcher()}"), time.monotonic()
        launcher_client().close()
        while launcher.exists():  # it ends by itself when its owner no longer waits
            time.sleep(0.01)
        figures["all_ended_s"] = round(time.monotonic() - started_s, 2)
    return figures


def _start(
    alive: int, pool: ThreadPoolExecutor
) -> tuple[list[tuple[int, float, float]], list[Sandbox]]:
    """(How many, seconds, milliseconds of CPU for each) by block, and the sandboxes."""
    blocks, sandboxes = [], list[Sandbox]()
    launcher = launcher_client().launcher_pid
    while len(sandboxes) < alive:
        count = min(_BLOCK, alive - len(sandboxes))
        known, spent_ms = set(children(launcher)), _cpu_ms(launcher) + time.process_time() * 1e3
        started_s = time.monotonic()
        sandboxes += pool.map(lambda _: open_sandbox(Limits()), range(count))
        wall_s = time.monotonic() - started_s
        spent_ms = _cpu_ms(launcher) + time.process_time() * 1e3 - spent_ms
        spent_ms += sum(_tree_cpu_ms(pid) for pid in children(launcher) if pid not in known)
        blocks.append((count, wall_s, spent_ms / count))
    return blocks, sandboxes


def _tree_cpu_ms(pid: int) -> float:
    return _cpu_ms(pid) + sum(map(_tree_cpu_ms, children(pid)))


def _cpu_ms(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


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
