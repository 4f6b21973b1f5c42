"""Carries out one planned run or measurement after the other, each in a process of its own.

A finished run is kept; one that something outside ended resumes where it stopped; one that failed
is run again from the beginning, and its folder is kept aside. No failure ends the bench.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from clawrl_gym.comparison.measurement import Measurement
from clawrl_gym.comparison.plan import PlannedRun, quoted
from clawrl_gym.comparison.record import TOOK_TOO_LONG, RunRecord, read_record, write_record
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.processes.descendants import die_with_parent
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.ui.text import one_line

_LOOK_EVERY_S = 1.0
_TAIL_BYTES = 4096
"""Bytes at the end of a log in which its newest line is searched."""
_STOP_S = 60.0
"""Seconds that a run may take to close everything."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The processes that do the work."""

    train: Sequence[str] = (sys.executable, "-m", "clawrl_gym.train")
    measure: Sequence[str] = (sys.executable, "-m", "clawrl_gym.comparison.measurement_process")


class RunWatcher(Protocol):
    """Observer of runs and measurements."""

    def begins(self, run: PlannedRun | Measurement, how: str) -> None: ...

    def reached(self, run: PlannedRun | Measurement, step: int, newest_line: str) -> None: ...

    def ended(self, run: PlannedRun | Measurement, record: RunRecord) -> None: ...


class PlanRunner:
    """Completes what is planned."""

    def __init__(
        self, watcher: RunWatcher, timeout_s: float, commands: Commands | None = None
    ) -> None:
        self._watcher = watcher
        self._timeout_s = timeout_s
        self._commands = commands or Commands()

    async def complete(self, run: PlannedRun) -> RunRecord:
        """Run what of a run is missing; returns how it went, in the end."""
        record = read_record(run.record_file)
        if record is not None and record.finished:
            self._watcher.ended(run, record)
            return record
        if record is not None and record.interrupted and is_resumable(run.folder):
            resumed = await self._train(run, record, (f"resume={quoted(run.folder)}",), "resumes")
            if resumed.finished or resumed.interrupted:
                self._watcher.ended(run, resumed)
                return resumed
        set_aside(run.folder)
        fresh = RunRecord(run.arguments)
        arguments = (*run.arguments, f"run.dir={quoted(run.folder)}")
        record = await self._train(run, fresh, arguments, "begins")
        self._watcher.ended(run, record)
        return record

    async def measure(self, measurement: Measurement) -> RunRecord:
        """Measure what of a measurement is missing; returns how it went, in the end."""
        record = read_record(measurement.record_file) or RunRecord(measurement.arguments)
        if measurement.progress() < measurement.steps:
            measurement.write()
            how = "begins" if record.starts == 0 else "resumes"
            command = (*self._commands.measure, *measurement.arguments)
            record = await self._attempt(measurement, record, command, how)
        else:
            record = replace(record, exit_code=0, failure="")
        self._watcher.ended(measurement, record)
        return record

    async def _train(
        self, run: PlannedRun, record: RunRecord, arguments: Sequence[str], how: str
    ) -> RunRecord:
        return await self._attempt(run, record, (*self._commands.train, *arguments, "ui=line"), how)

    async def _attempt(
        self, run: PlannedRun | Measurement, record: RunRecord, command: Sequence[str], how: str
    ) -> RunRecord:
        """Start the process and wait for its end; cancelled, it has it close everything first."""
        record = record.begun()
        write_record(run.record_file, record)
        self._watcher.begins(run, how)
        started_s = time.monotonic()
        code, failure = None, ""
        try:
            code = await self._process(run, command)
            failure = "" if code == 0 else failure_of(run.log_file, code)
        except TimeoutError:
            code, failure = TOOK_TOO_LONG, f"took longer than {self._timeout_s:g} s"
        finally:
            wall_s = record.wall_s + time.monotonic() - started_s
            record = replace(record, exit_code=code, wall_s=round(wall_s, 1), failure=failure)
            write_record(run.record_file, record)
        return record

    async def _process(self, run: PlannedRun | Measurement, command: Sequence[str]) -> int:
        with run.log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=asyncio.subprocess.STDOUT,
                process_group=0, preexec_fn=die_with_parent,
            )  # fmt: skip
        watching = asyncio.create_task(self._watch(run))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await process.wait()
        finally:
            watching.cancel()
            await asyncio.shield(stop(process))

    async def _watch(self, run: PlannedRun | Measurement) -> None:
        while True:
            self._watcher.reached(run, run.progress(), newest_line(run.log_file))
            await asyncio.sleep(_LOOK_EVERY_S)


async def stop(process: asyncio.subprocess.Process) -> None:
    """End a run that still goes, orderly if it can; and whatever it may have left behind."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def check_settings(runs: Sequence[PlannedRun]) -> None:
    """Raise ConfigError when a folder holds a run of other settings: they cannot be compared."""
    for run in runs:
        record = read_record(run.record_file)
        if record is not None and record.arguments != run.arguments:
            raise ConfigError(
                f"{str(run.folder)!r} was run with {' '.join(record.arguments)}, and now it is "
                f"{' '.join(run.arguments)}; choose another dir=PATH, or remove the folder and "
                f"{str(run.record_file)!r}"
            )
        if record is None and run.folder.exists():
            raise ConfigError(
                f"{str(run.folder)!r} is there and was not made by a bench; choose another "
                "dir=PATH, or move it away"
            )


def is_resumable(folder: Path) -> bool:
    """Whether there is enough of a run to resume it."""
    return RunFolder(folder).exists and (folder / "run.db").exists()


def set_aside(folder: Path) -> None:
    """Keep a failed run under another name."""
    if not folder.exists():
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.failed{number}")).exists():
        number += 1
    folder.rename(aside)


def newest_line(log: Path) -> str:
    """The last line that a run wrote; empty before its first line."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
        return next((one_line(line, 200) for line in reversed(lines) if line.strip()), "")
    return ""


def failure_of(log: Path, code: int) -> str:
    """Why a run failed: its last error, else its last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [one_line(line, 300) for line in lines[-200:] if line.strip()]
    errors = [line for line in lines if line.startswith("error:")] or lines
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{ended}: {errors[-1]}" if errors else ended
