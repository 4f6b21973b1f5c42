"""Runs one arm with one seed: trains and measures it, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.learning.ours import adapter_of, training_of
from bench.learning.settings import Settings
from clawrl_gym.core.processes.descendants import adopt_orphans, descendants, end_descendants
from clawrl_gym.core.provenance import git_commit, tree_memory_gb

_EVERY_S = 5.0
"""Reading what a process takes stops it for a moment: each second cost a tenth of a core."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a command took."""

    wall_s: float
    peak_gib: float
    """Memory of all its processes together, shared pages counted once."""
    cpu_s: float
    """CPU time of all its processes: other work on the machine hardly changes it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Folder of results."""

    out: Path

    def result(self, arm: str, seed: int) -> Path:
        return self.out / f"{arm}-seed{seed}.json"

    @property
    def before(self) -> Path:
        """Held-out rewards of the model as it is."""
        return self.out / "before.json"

    def work(self, arm: str, seed: int) -> Path:
        """Folder of what a run leaves beside its result: logs, weights, its own records."""
        return self.out / "work" / f"{arm}-seed{seed}"


def read_result(path: Path, settings: Settings) -> dict[str, Any] | None:
    """A finished result; None where there is none. Ends the command for one of other settings."""
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    own, theirs = settings.as_json(), result["settings"]
    if own != theirs:
        named = [name for name in own if own[name] != theirs.get(name)]
        raise SystemExit(
            f"{path} was measured with another {', '.join(named)}: "
            f"{[theirs.get(name) for name in named]}, and now it is {[own[n] for n in named]}; "
            "take another folder with --out, or the same options"
        )
    return result


def measure_before(settings: Settings, place: Place, timeout_s: float) -> dict[str, Any]:
    """Held-out rewards of the model as it is, once for all arms."""
    found = read_result(place.before, settings)
    if found is not None:
        return found
    folder = place.work("before", 0)
    held_out, _ = _held_out(settings, 0, folder, None, timeout_s)
    return _write(place.before, {"settings": settings.as_json(), "held_out": held_out})


def measure_arm(
    settings: Settings, arm: str, seed: int, place: Place, timeout_s: float
) -> dict[str, Any]:
    """Train and measure, unless that is done already."""
    path = place.result(arm, seed)
    found = read_result(path, settings)
    if found is not None:
        return found
    folder = place.work(arm, seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if arm.startswith("trl"):
        options = [json.dumps(settings.as_json()), arm, str(seed), str(folder)]
        command = [sys.executable, "-m", "bench.learning.trl_arm", *options]
    else:
        options = [*settings.overrides(arm, seed), f"run.dir={folder / 'run'}", "ui=line"]
        command = [sys.executable, "-m", "clawrl_gym.train", *options]
    usage = run_measured(command, folder / "train.log", settings.threads, timeout_s)
    if arm.startswith("trl"):
        training, adapter = json.loads((folder / "train.json").read_text()), folder / "adapter"
    else:
        training, adapter = training_of(folder / "run"), adapter_of(folder / "run")
    held_out, _ = _held_out(settings, seed, folder, adapter, timeout_s)
    result = {
        "settings": settings.as_json(),
        "arm": arm,
        "seed": seed,
        "commit": git_commit(),
        "wall_s": usage.wall_s,
        "cpu_s": usage.cpu_s,
        "peak_gib": usage.peak_gib,
        "training": training,
        "held_out": held_out,
    }
    return _write(path, result)


def _held_out(
    settings: Settings, seed: int, folder: Path, adapter: Path | None, timeout_s: float
) -> tuple[dict[str, Any], Usage]:
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "held_out.json"
    options = [json.dumps(settings.as_json()), str(seed), str(out)]
    options += [] if adapter is None else [str(adapter)]
    command = [sys.executable, "-m", "bench.learning.held_out", *options]
    usage = run_measured(command, folder / "held_out.log", settings.threads, timeout_s)
    values: dict[str, Any] = json.loads(out.read_text())
    return values, usage


def run_measured(command: list[str], log: Path, threads: int, timeout_s: float) -> Usage:
    """Run a command to its end. Ends this one when it fails or takes too long."""
    adopt_orphans()
    started_s = time.monotonic()
    peak = 0.0
    cpu_s: dict[int, float] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            while process.poll() is None:
                peak = max(peak, tree_memory_gb() - _own_gib())
                cpu_s |= _cpu_seconds()
                if time.monotonic() - started_s > timeout_s:
                    raise SystemExit(f"no end within {timeout_s:g} s, see {log}: {command}")
                time.sleep(_EVERY_S)
        finally:
            end_descendants()
    if process.returncode:
        tail = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"exit code {process.returncode} of {command}, see {log}:\n{tail}")
    return Usage(time.monotonic() - started_s, peak, sum(cpu_s.values()))


def _cpu_seconds() -> dict[int, float]:
    """CPU seconds by process that this one has started and that still lives."""
    seconds = {}
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            fields = stat.rpartition(")")[2].split()
            seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def _own_gib() -> float:
    """Memory of this process alone."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    kib = next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(kib) / 2**20


def _write(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(values, indent=1))
    partial.replace(path)
    return values
