"""Runs of the real command in a process of its own, with a small budget."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRAINED_STEPS = 5
"""Updates of the run that several files look at."""


def command(folder: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "clawrl_gym.train", f"run.dir={folder}", "ui=line", *overrides]


def train(folder: Path, *overrides: str, timeout_s: float = 900) -> str:
    """Run to the end; returns what it printed. Fails when the exit code is not 0."""
    done = subprocess.run(
        command(folder, *overrides), cwd=ROOT, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """Start a run that the test will stop, in a process group of its own."""
    return subprocess.Popen(
        command(folder, *overrides),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def wait_for_line(run: subprocess.Popen[str], word: str, timeout_s: float = 300) -> None:
    """Read the run's output until a line begins with `word`."""
    assert run.stdout is not None
    deadline_s = time.monotonic() + timeout_s
    seen = []
    for line in run.stdout:
        seen.append(line)
        if line.startswith(word):
            return
        assert time.monotonic() < deadline_s, "".join(seen)
    raise AssertionError(f"the run ended before {word!r}: {''.join(seen)}")


def left_behind(folder: Path) -> list[str]:
    """Processes whose command line or environment still names the run's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            cmdline = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in cmdline:
            found.append(cmdline)
    return found


def still_alive(pids: set[int], within_s: float = 5.0) -> set[int]:
    """Which of these still run (zombies do not count) after at most `within_s`."""
    deadline_s = time.monotonic() + within_s
    while True:
        alive = {pid for pid in pids if _runs(pid)}
        if not alive or time.monotonic() > deadline_s:
            return alive
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def interrupt(run: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> str:
    """Signal the run and wait for its end; returns what it printed after the signal."""
    run.send_signal(number)
    return run.communicate(timeout=60)[0]
