"""Shared frame of the commands: help from the configuration, errors in one line, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from clawrl_gym.config import (
    BenchConfig,
    CommandConfig,
    EvaluateConfig,
    RejudgeConfig,
    SftConfig,
)
from clawrl_gym.core import redact
from clawrl_gym.core.errors import (
    ClawError,
    ClusterError,
    ConfigError,
    ConfigErrors,
    HeadLost,
    NoRoom,
    first_of,
)
from clawrl_gym.core.processes.interrupt import HOLDING_S, INTERRUPTS, end_process
from clawrl_gym.run import sweep
from clawrl_gym.run.help import help_text
from clawrl_gym.serving.supervisor import NO_ROOM

_HELP = ("-h", "--help")
_CODES = ((ConfigError, 2), (ClusterError, 3), (NoRoom, NO_ROOM))
"""Exit codes of errors; 1 for all others. After 3 the same command can resume at once; 4 is told to
what watches over `serve` alone."""
C = TypeVar("C", bound=CommandConfig | SftConfig | EvaluateConfig | RejudgeConfig | BenchConfig)


def command(
    name: str,
    doc: str | None,
    configure: Callable[[list[str]], C],
    check: Callable[[C], Iterable[str]],
    main: Callable[[C], Coroutine[object, object, int]],
    arguments: list[str] | None = None,
) -> int:
    """Run `python -m clawrl_gym.NAME ARGUMENTS`; returns the exit code.

    `check` finds everything that `main` would be refused for, and describes what it would start.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    redact.install(redact.secrets_of_process(arguments, os.environ))
    if set(_HELP) & set(arguments):
        overrides = [argument for argument in arguments if argument not in _HELP]
        return exit_code_of(lambda: _print_help(name, doc or "", configure(overrides)))
    if set(sweep.FLAGS) & set(arguments):
        return _multirun(name, [part for part in arguments if part not in sweep.FLAGS])
    return run_command(lambda: configure(arguments), check, main)


def _print_help(name: str, doc: str, config: BaseModel) -> int:
    sys.stdout.write(help_text(name, doc, config))
    return 0


def _multirun(name: str, arguments: list[str]) -> int:
    if name != "train":
        sys.stderr.write(
            f"error: got --multirun, which {name} does not have, expected clawrl_gym.train "
            "--multirun; python -m clawrl_gym.bench compares recipes over seeds\n"
        )
        return 2
    INTERRUPTS.patience_s = HOLDING_S
    return exit_code_of(lambda: asyncio.run(_interruptible(sweep.run_sweep(arguments))))


def run_command(
    configure: Callable[[], C],
    check: Callable[[C], Iterable[str]],
    main: Callable[[C], Coroutine[Any, Any, int]],
) -> int:
    """Configure a command and run it; every error on purpose is one line on standard error."""

    def run() -> int:
        config = configure()
        values = config.model_dump(mode="json")
        redact.install(redact.secrets_in(values))
        if config.dry_run:
            lines = list(check(config))
            sys.stdout.write(yaml.safe_dump(redact.hidden(values), sort_keys=False))
            sys.stdout.write("".join(f"# {redact.clean(line)}\n" for line in lines))
            return 0
        return asyncio.run(_interruptible(main(config)))

    return exit_code_of(run)


def run_coroutine(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run what takes no configuration; every error on purpose is one line on standard error."""
    return exit_code_of(lambda: asyncio.run(_interruptible(main())))


def exit_code_of(run: Callable[[], int]) -> int:
    """Exit code of a command; an error on purpose is one line on standard error."""
    try:
        with INTERRUPTS.caught():
            return run()
    except (ClawError, BaseExceptionGroup) as error:
        code = _say(error)
        if isinstance(first_of(error), HeadLost):
            sys.stdout.flush()
            end_process(code)
        return code
    except Exception:  # noqa: BLE001 - a defect: its traceback is shown, but no key in it
        sys.stderr.write(redact.clean(traceback.format_exc()))
        return 1


def _say(error: BaseException) -> int:
    """The error in a line, with how to resume where something can; returns the exit code."""
    first = first_of(error)
    notes = dict.fromkeys([*getattr(first, "__notes__", ()), *getattr(error, "__notes__", ())])
    kind = "" if isinstance(first, ConfigError) else f"{type(first).__name__}: "
    problems = first.lines if isinstance(first, ConfigErrors) else (str(first),)
    lines = [f"error: {kind}{problem}" for problem in problems]
    sys.stderr.write(redact.clean("\n".join([*lines, *notes])) + "\n")
    return next((code for cause, code in _CODES if isinstance(first, cause)), 1)


async def _interruptible(running: Coroutine[Any, Any, int]) -> int:
    """Cancel on the first SIGINT or SIGTERM, so that everything is closed in order.

    Threads that still start or fetch something are not waited for: they end with the process.
    """
    task = asyncio.ensure_future(running)
    loop = asyncio.get_running_loop()
    with INTERRUPTS.cancelling(lambda: loop.call_soon_threadsafe(_stop, task)):
        try:
            return await task
        except BaseException as error:
            if INTERRUPTS.signal is None:
                raise
            if not isinstance(error, asyncio.CancelledError):
                _say(error)
            sys.stdout.flush()
            INTERRUPTS.end()


def _stop(task: asyncio.Task[Any]) -> None:
    if not INTERRUPTS.silent:
        sys.stderr.write("\nstopping: closing everything in order\n")
    task.cancel()
