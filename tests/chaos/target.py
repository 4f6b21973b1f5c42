"""A real run under fire: it is started, gone on with after its end, watched, and cleaned up after.

Everything of it lies below one place: the run's folder (on a small disk of its own as root, which
can be filled), the ledger, what each of its lives printed; its TMPDIR is a folder of its own, too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.chaos.docker import DockerEngine
from tests.chaos.judge import JudgeServer
from tests.chaos.leftovers import Traces
from tests.chaos.processes import Process, below
from tests.chaos.scenarios import Scenario
from tests.chaos.talker import Talker
from tests.e2e.runs import ROOT, command

DISK_MB = 900
"""Size of the small disk; a run wants 500 MB free when it starts."""
_POLL_S = 0.25
_CLOSE_LOOK_S = 5.0


class Target:
    """One training run with all its lives."""

    def __init__(self, place: Path, scenario: Scenario, seed: int, steps: int, *more: str) -> None:
        """`more`: overrides beside those of the scenario."""
        self.place = place.resolve()
        self.scenario = scenario
        self.steps = steps
        self._seed = seed
        self._more = more
        self.place.mkdir(parents=True, exist_ok=True)
        self.ledger = self.place / "ledger"
        self.disk = self.place / "disk"
        self.folder = self.disk / "run"
        self.judge = JudgeServer(self.place)
        self.docker = DockerEngine(self.place.parent / "docker")
        self._temporary_link = self.place / "tmp"
        self._process: subprocess.Popen[bytes] | None = None
        self._lives = len(list(self.place.glob("life-*.log")))
        self._looked_s = 0.0

    # Its life

    def start(self) -> None:
        """Begin the run, or go on with it."""
        self._prepare()
        if self.scenario.judged:
            self.judge.start()
        self._lives += 1
        if not (self.folder / "run.db").exists():
            shutil.rmtree(self.folder, ignore_errors=True)  # it ended before its first episode
        self._process = self._spawn(self._line())
        self.traces = Traces(self.pid, self.place, self.temporary)

    def _spawn(self, line: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as output:
            return subprocess.Popen(
                line,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | self._variables(),
                start_new_session=True,
            )

    def _prepare(self) -> None:
        if not self._temporary_link.is_symlink():  # short: Ray's sockets lie below it
            self._temporary_link.symlink_to(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
        self.temporary.mkdir(exist_ok=True)
        self.disk.mkdir(exist_ok=True)
        if os.geteuid() == 0 and not self.disk.is_mount():
            options = f"size={DISK_MB}m,mode=700"  # where that is not allowed, no disk gets full
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", self.disk], check=False)

    def _variables(self) -> dict[str, str]:
        docker = {"DOCKER_HOST": self.docker.start()} if self.scenario.in_docker else {}
        return {"TMPDIR": str(self.temporary), **docker}

    def _line(self) -> list[str]:
        if self.folder.exists():
            return [sys.executable, "-m", "clawrl_gym.train", f"resume={self.folder}", "ui=line"]
        judge = [f"judge.base_url=http://127.0.0.1:{self.judge.port}/v1"]
        return command(
            self.folder,
            *self.scenario.overrides,
            *(judge if self.scenario.judged else ()),
            f"trainer.steps={self.steps}",
            f"seed={self._seed}",
            "agent=tests.chaos.ledger:LedgerAgent",
            f"agent.options.agent={self.scenario.agent}",
            f"agent.options.file={self.ledger}",
            *self._more,
        )

    @property
    def temporary(self) -> Path:
        return self._temporary_link.resolve()

    @property
    def pid(self) -> int:
        """Process id of the driver."""
        assert self._process is not None
        return self._process.pid

    @property
    def processes(self) -> list[Process]:
        """All that the driver has started, oldest first."""
        return below(self.pid)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """A signal to the driver."""
        os.kill(self.pid, number)

    # What it says

    @property
    def _log(self) -> Path:
        return self.place / f"life-{self._lives:03d}.log"

    @property
    def printed(self) -> list[str]:
        """The lines of this life."""
        return self._log.read_text(errors="replace").splitlines()

    @property
    def last_words(self) -> str:
        """The end of what it printed, in one line."""
        return f"exit code {self.exit_code}: " + " / ".join(self.printed[-4:])[-300:]

    # How far it is

    @property
    def updates(self) -> int:
        """Made so far."""
        return sum(1 for _ in self._rows("SELECT version FROM updates"))

    @property
    def reached(self) -> bool:
        """Whether the run has ended at its target."""
        return self.exit_code == 0 and self.updates == self.steps

    def ends_after(self, since_s: float) -> list[float]:
        """When episodes ended, in order, from the first on that began after a moment."""
        query = """SELECT ended_s FROM sessions
            WHERE ended_s >= (SELECT min(ended_s) FROM sessions
                WHERE created_s > ? AND ended_s IS NOT NULL AND reward IS NOT NULL)
            AND reward IS NOT NULL ORDER BY ended_s"""
        return [float(ended_s) for (ended_s,) in self._rows(query, since_s)]

    def recovery_s(self, since_s: float, updates: int, within_s: float) -> float | None:
        """The longest wait for the end of an episode from a moment on: first for one that began
        after it, then from one to the next, until so many updates are made.

        None when there was none in that time, or the run ended.
        """
        while True:
            ends_s = self.ends_after(since_s)
            if ends_s and self.updates >= updates:
                return max(end - begin for begin, end in pairwise([since_s, *ends_s]))
            if self.exit_code is not None or time.time() > since_s + within_s:
                return None
            self.look()
            time.sleep(_POLL_S)

    def wait_for_end(self, within_s: float) -> bool:
        """Whether the driver ended in that time."""
        deadline_s = time.monotonic() + within_s
        while self.exit_code is None and time.monotonic() < deadline_s:
            self.look()
            time.sleep(_POLL_S)
        return self.exit_code is not None

    def wait(self, pause_s: float) -> None:
        """Let it run, and watch it."""
        self.wait_for_end(pause_s)

    def look(self) -> None:
        """Note what it uses."""
        closely = time.monotonic() > self._looked_s + _CLOSE_LOOK_S
        if closely:
            self._looked_s = time.monotonic()
        self.traces.look(closely=closely)

    def _rows(self, query: str, *values: object) -> list[tuple[float, ...]]:
        """Rows of run.db; none while there is no such file, or no table in it."""
        try:
            db = sqlite3.connect(f"file:{self.folder / 'run.db'}?mode=ro", uri=True, timeout=30)
        except sqlite3.OperationalError:
            return []
        try:
            return db.execute(query, values).fetchall()
        except sqlite3.OperationalError:
            return []
        finally:
            db.close()

    # Its disk and its end

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Inside, there is no room on its disk."""
        with tempfile.TemporaryFile(dir=self.disk) as hog:
            fill_disk(hog.fileno())
            yield

    def close(self) -> None:
        """End what still runs, and give back what the harness itself took."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
        self.judge.stop()
        if self.scenario.in_docker:
            self.docker.stop()
        if self._temporary_link.is_symlink():
            shutil.rmtree(self._temporary_link.resolve(), ignore_errors=True)
            self._temporary_link.unlink()

    def remove_disk(self) -> None:
        """Its records are kept beside it."""
        if self.disk.is_mount():
            records = (*self.folder.glob("run.db*"), *self.folder.glob("*.jsonl"))
            for file in (*records, *self.folder.glob("logs/*.log")):
                shutil.copy(file, self.place)
            subprocess.run(["umount", "-l", self.disk], check=True)


class ServingTarget(Target):
    """`serve`, and clients that talk to it all the time; an episode is an answer."""

    CLIENTS = 2

    def start(self) -> None:
        super().start()
        self._talkers = self._talkers_of_life()

    def _talkers_of_life(self) -> list[Talker]:
        self._end_talks()
        url = f"http://127.0.0.1:{self.judge.port}"  # a port that stays, and no judge is there
        key_file = self.folder / "gateway.key"
        names = [f"talk{number}x{self._lives}" for number in range(self.CLIENTS)]
        return [Talker(name, url, key_file, self.ledger) for name in names]

    def _end_talks(self) -> None:
        for talker in getattr(self, "_talkers", ()):
            talker.close()

    def _line(self) -> list[str]:
        port = f"gateway.port={self.judge.port}"
        common = [sys.executable, "-m", "clawrl_gym.serve", "ui=line"]
        return [*common, f"run.dir={self.folder}", port, *self.scenario.overrides, *self._more]

    def ends_after(self, since_s: float) -> list[float]:
        """When answers came, in order, from the first on that was asked for after a moment."""
        talks = [talk for talker in self._talkers for talk in list(talker.answered)]
        first_s = min((ended_s for began_s, ended_s in talks if began_s > since_s), default=None)
        if first_s is None:
            return []
        return sorted(ended_s for _, ended_s in talks if ended_s >= first_s)

    @property
    def reached(self) -> bool:
        return False

    def close(self) -> None:
        self._end_talks()
        super().close()


def fill_disk(descriptor: int) -> None:
    """Have an open, empty file take all there is. The run writes meanwhile: nobody can know how
    much that will be."""
    size_bytes = 0
    for step_bytes in (16 << 20, 4 << 10):
        with contextlib.suppress(OSError):  # there is no room for so much more
            while True:
                os.posix_fallocate(descriptor, size_bytes, step_bytes)
                size_bytes += step_bytes
