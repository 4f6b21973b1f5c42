"""Stands in for a run in tests of the chaos harness.

    python -m tests.project.fake_chaos_run FOLDER BEHAVIOUR

An episode every few milliseconds, a worker (`sleep`) that is started again when it dies, an end in
order at SIGINT and SIGTERM. A behaviour other than `good` does one thing wrong.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clawrl_gym.store import SessionRow, Store

WORKER = ("sleep", "654")
_EPISODE_S = 0.02


class Run:
    """What a real run has, in small."""

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self.exit_code = 0
        self.worker = subprocess.Popen(WORKER)
        self.scratch = Path(tempfile.mkdtemp())

    def replace_worker(self) -> None:
        if self.behaviour == "ends":
            sys.exit(1)
        if self.behaviour == "slow":
            time.sleep(1.0)
        self.worker = subprocess.Popen(WORKER)

    def close(self, folder: Path) -> None:
        if self.behaviour != "leaves":
            self.worker.kill()
            self.worker.wait()
            self.scratch.rmdir()
        sys.stdout.write("stopped by a signal\n")
        if self.behaviour != "silent":
            sys.stdout.write(f"resume with: python -m clawrl_gym.train resume={folder}\n")


async def play(folder: Path, run: Run) -> None:
    """Until a signal comes."""
    ended = asyncio.Event()

    def end(number: signal.Signals) -> None:
        run.exit_code = 128 + number
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    store = Store.open(folder)
    for episode in itertools.count():
        if ended.is_set():
            return await store.close()
        if run.worker.poll() is not None:
            run.replace_worker()
        name = f"g{os.getpid()}-{episode}-0-x"
        await store.add_session(SessionRow(name, None, None, "train", "rollout", time.time()))
        await asyncio.sleep(_EPISODE_S)
        await store.end_session(name, reward=1.0, stop_reason="terminated")


if __name__ == "__main__":
    a_run = Run(sys.argv[2])
    asyncio.run(play(Path(sys.argv[1]), a_run))
    a_run.close(Path(sys.argv[1]))
    sys.exit(a_run.exit_code)
