"""What the commands share: help from the configuration, one clear line for an error, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from clawrl_gym.config import BenchConfig, CommandConfig, EvaluateConfig
from clawrl_gym.core.errors import ClawError, ConfigError
from clawrl_gym.run import sweep
from clawrl_gym.run.help import help_text

INTERRUPTED = 130
_HELP = ("-h", "--help")
C = TypeVar("C", bound=CommandConfig | EvaluateConfig | BenchConfig)


def command(
    name: str,
    doc: str | None,
    configure: Callable[[list[str]], C],
    main: Callable[[C], Coroutine[object, object, int]],
    arguments: list[str] | None = None,
) -> int:
    """What `python -m clawrl_gym.NAME ARGUMENTS` does; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if set(_HELP) & set(arguments):
        overrides = [argument for argument in arguments if argument not in _HELP]
        return _exit_code(lambda: _print_help(name, doc or "", configure(overrides)))
    if set(sweep.FLAGS) & set(arguments):
        return _multirun(name, [part for part in arguments if part not in sweep.FLAGS])
    return run_command(lambda: configure(arguments), main)


def _print_help(name: str, doc: str, config: BaseModel) -> int:
    sys.stdout.write(help_text(name, doc, config))
    return 0


def _multirun(name: str, arguments: list[str]) -> int:
    if name != "train":
        sys.stderr.write(
            f"error: got --multirun, which {name} has not, expected clawrl_gym.train --multirun; "
            "python -m clawrl_gym.bench compares recipes over seeds\n"
        )
        return 2
    return _exit_code(lambda: asyncio.run(_interruptible(sweep.run_sweep(arguments))))


def run_command(configure: Callable[[], C], main: Callable[[C], Coroutine[Any, Any, int]]) -> int:
    """Configure a command and run it; every error on purpose is one line on standard error."""

    def run() -> int:
        config = configure()
        if config.dry_run:
            sys.stdout.write(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
            return 0
        return asyncio.run(_interruptible(main(config)))

    return _exit_code(run)


def _exit_code(run: Callable[[], int]) -> int:
    try:
        return run()
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except ClawError as error:
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
        return 1
    except BaseExceptionGroup as group:
        sys.stderr.write(f"error: {_first_of(group)}\n")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED


def _first_of(group: BaseExceptionGroup[BaseException]) -> str:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return f"{type(first).__name__}: {first}"


async def _interruptible(running: Any) -> int:
    """Cancel on the first SIGINT or SIGTERM, so that everything is closed in order."""
    task = asyncio.ensure_future(running)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, task)
    try:
        return int(await task)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _stop(task: asyncio.Task[Any]) -> None:
    """A second signal while closing ends the process at once; its children die with it."""
    if task.cancelling():
        os._exit(INTERRUPTED)
    sys.stderr.write("\nstopping: closing everything in order\n")
    task.cancel()
