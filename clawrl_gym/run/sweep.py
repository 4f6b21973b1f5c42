"""`train --multirun`: a run for each combination of values, one after another.

    python -m clawrl_gym.train --multirun seed=1,2 learner.lr=1e-3,1e-4 run.root=runs/rates

Each run is a process and a folder of its own, `ROOT/NAME/seed=1,learner.lr=1e-3`, made exactly as
the same command line alone would make it. All of them are checked before the first one starts. One
that fails does not keep the others from running; a folder that holds a whole run is not run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config.compose import split_search_path
from clawrl_gym.config.run import RunConfig
from clawrl_gym.core.errors import ConfigError, ConfigErrors
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import HELDOUT_SUCCESS, METRICS_FILE
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.preflight.problems import Problems
from clawrl_gym.recipe.model_size import compose_sized
from clawrl_gym.recipe.repeat import FLAG, split_config

FLAGS = ("--multirun", "-m")
TRAIN = (sys.executable, "-m", "clawrl_gym.train")
_RESERVED = ("run.dir", "resume")
_FINISHED = "done"
"""A file in the folder of a run that ended well."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One combination of values."""

    values: tuple[str, ...]
    """KEY=VALUE of what differs from run to run."""
    arguments: tuple[str, ...]
    """Arguments of `clawrl_gym.train`, its folder included."""
    folder: Path
    config: RunConfig

    @property
    def name(self) -> str:
        return ",".join(self.values)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Result of a run of the sweep."""

    run: SweepRun
    exit_code: int
    duration_s: float
    first: float | None
    """Held-out success before the first update; None when it was not measured."""
    last: float | None
    """The newest held-out success."""


def plan_sweep(arguments: Sequence[str]) -> list[SweepRun]:
    """Every combination, in the order of the command line. Raises ConfigError for a wrong one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if split_config(arguments)[0] is not None:
        raise ConfigError(f"got {FLAG} together with --multirun, expected one of them")
    overrides, places = split_search_path(arguments)
    search_path = [part for place in places for part in ("--config-dir", place)]
    fixed: list[str] = []
    choices: list[list[str]] = []
    for override in overrides:
        key = override.lstrip("+~").split("=", 1)[0]
        if key in _RESERVED:
            raise ConfigError(
                f"got {key}= together with --multirun, expected run.root=DIR or run.name=NAME: "
                "every run of a sweep has a folder of its own in it"
            )
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException as error:
            raise ConfigError(f"cannot read {override!r}; expected KEY=VALUE") from error
        if parsed.is_sweep_override():
            choices.append([f"{key}={text}" for text in parsed.sweep_string_iterator()])
        else:
            fixed.append(override)
    if not choices:
        raise ConfigError("got --multirun and no key with several values, expected KEY=A,B")
    common = compose_sized("train", [*search_path, *fixed], RunConfig)
    name = common.run.name or f"sweep-{time.strftime('%Y%m%d-%H%M%S')}"
    runs = []
    for values in itertools.product(*choices):
        folder = Path(common.run.root) / name / _folder_name(values)
        own = [*search_path, *fixed, *values]
        address = common.learner.remote_checkpoints
        if address is not None:  # another sweep may have runs of the same name
            own.append(f"learner.remote_checkpoints='{address}/{name}'")
        place = f"run.dir='{folder}'"
        config = compose_sized("train", [*own, place], RunConfig)
        runs.append(SweepRun(values, (*own, place), folder, config))
    return runs


def check_sweep(runs: Sequence[SweepRun]) -> None:
    """Raise ConfigErrors with all that would keep one of the runs from beginning."""
    from clawrl_gym.preflight.preflight import preflight_training

    problems = Problems()
    for run in runs:
        if run.folder.exists():  # has begun: it resumes, or says itself why not
            continue
        try:
            preflight_training(run.config)
        except ConfigErrors as errors:
            problems.lines += [f"{run.name}: {line}" for line in errors.lines]
    problems.raise_if_any()


async def run_sweep(arguments: Sequence[str], command: Sequence[str] = TRAIN) -> int:
    """Run all, write a table; 0 when every run ended well, 1 when one did not."""
    if "dry_run=true" in arguments:
        runs = plan_sweep([part for part in arguments if part != "dry_run=true"])
        check_sweep(runs)
        for run in runs:
            sys.stdout.write(f"{run.folder}: {' '.join(run.arguments)}\n")
        return 0
    runs = plan_sweep(arguments)
    await asyncio.to_thread(check_sweep, runs)
    place = runs[0].folder.parent
    way_on = (
        "finish the run that was stopped by its own line above; the same command with "
        f"run.name={place.name} keeps what is done"
    )
    outcomes = []
    with INTERRUPTS.goes_on(way_on):
        for number, run in enumerate(runs, 1):
            sys.stdout.write(f"run {number} of {len(runs)}: {run.name} in {run.folder}\n")
            sys.stdout.flush()
            outcomes.append(await _run(run, command))
    sys.stdout.write(table(outcomes))
    return 0 if all(outcome.exit_code == 0 for outcome in outcomes) else 1


def table(outcomes: Sequence[RunOutcome]) -> str:
    """A line a run: its values, exit code, duration, held-out success before and after."""
    width = max(len("run"), *(len(outcome.run.name) for outcome in outcomes))
    lines = [f"{'run':<{width}}  exit  seconds  held-out"]
    for outcome in outcomes:
        success = f"{_percent(outcome.first)} -> {_percent(outcome.last)}"
        lines.append(
            f"{outcome.run.name:<{width}}  {outcome.exit_code:>4}  {outcome.duration_s:>7.0f}  "
            f"{success}"
        )
    return "\n".join(lines) + "\n"


async def _run(run: SweepRun, command: Sequence[str]) -> RunOutcome:
    """Stopping the sweep stops its run, in order."""
    start_s = time.monotonic()
    exit_code = 0
    if not (run.folder / _FINISHED).exists():
        process = await asyncio.create_subprocess_exec(
            *command, *run.arguments, start_new_session=True
        )
        try:
            exit_code = await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await asyncio.shield(process.wait())
            raise
        if exit_code == 0 and run.folder.is_dir():
            (run.folder / _FINISHED).touch()
    first, last = _heldout(run.folder)
    return RunOutcome(run, exit_code, time.monotonic() - start_s, first, last)


def _heldout(folder: Path) -> tuple[float | None, float | None]:
    values = [row.get(HELDOUT_SUCCESS) for row in read_json_lines(folder / METRICS_FILE)]
    measured = [float(value) for value in values if isinstance(value, int | float)]
    return (measured[0], measured[-1]) if measured else (None, None)


def _folder_name(values: Sequence[str]) -> str:
    return re.sub(r"[^\w.,=+-]", "_", ",".join(values))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
