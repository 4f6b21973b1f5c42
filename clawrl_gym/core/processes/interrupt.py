"""Ctrl-C and SIGTERM for the commands of this package, from their first import to their last line.

The first signal cancels the work, so that everything is closed in order. A second one, or a wait of
`PATIENCE_S`, ends the process at once, with all that it has started. Before anything runs, the
first signal does. The last line says how to resume. Needs only the standard library, and does
nothing in a process that was not started as a command.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from clawrl_gym.core.errors import ClawError, ConfigError, first_of
from clawrl_gym.core.files.scratch import remove_all
from clawrl_gym.core.processes.descendants import end_descendants

COMMANDS = ("train", "sft", "serve", "evaluate", "rejudge", "bench")
PATIENCE_S = 3.5
"""Seconds that closing in order may take."""
HOLDING_S = PATIENCE_S + 1.0
"""Seconds for a process that only waits for another command to close and to end."""
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
_NOTHING = "nothing to resume"
_RESTORE_TERMINAL = b"\x1b[?1047l\x1b[?25h"
"""Return to the first screen and show the cursor; without effect where both are already so."""
Handler = Callable[[int, FrameType | None], object] | int | None
"""A handler as `signal.signal` takes and returns it."""


class Interrupts:
    """Signals of this process. The one instance is `INTERRUPTS`: signals belong to a process."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that came; None before one came."""
        self.patience_s = PATIENCE_S
        self.silent = False
        """True when another process reports how the command ended."""
        self._catching = False
        self._ways_on: list[str] = []
        self._cancel: Callable[[], object] | None = None
        self._came = threading.Event()
        self._ending = threading.Lock()

    def catch(self) -> dict[signal.Signals, Handler]:
        """Handle SIGINT and SIGTERM from now on; returns the handlers before."""
        self._catching = True
        return {number: signal.signal(number, self._on_signal) for number in EXIT_CODES}

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM inside; outside of the main thread nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = self.catch()
        try:
            yield
        finally:
            self._catching = self._on_signal in before.values()
            for number, handler in before.items():
                signal.signal(number, handler)

    def renew(self) -> None:
        """Take the signals back from a library that took them; nothing where they were not ours."""
        if self._catching and threading.current_thread() is threading.main_thread():
            self.catch()

    @contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Call `cancel` on the first signal inside, and leave the work some time to close."""
        # Started now: a handler may come at a moment at which no thread can be started.
        threading.Thread(target=self._lose_patience, name="interrupt", daemon=True).start()
        self._cancel = cancel
        try:
            yield
        finally:
            self._cancel = None

    @contextmanager
    def goes_on(self, how: str) -> Iterator[None]:
        """Say how to resume when the block ends by a signal or by an error (as its note).

        A configuration that is refused would be refused again: there it says nothing.
        """
        self._ways_on.append(how)
        try:
            yield
        except BaseException as error:
            if not isinstance(first_of(error), ConfigError):
                error.add_note(how)
            raise
        finally:
            if self.signal is None:
                self._ways_on.remove(how)

    def end(self) -> NoReturn:
        """End this process and all that it has started, now, with the signal's exit code."""
        with self._ending:
            number = self.signal or signal.SIGTERM
            way_on = self._ways_on[-1] if self._ways_on else _NOTHING
            end_process(
                EXIT_CODES[number], "" if self.silent else f"stopped by {number.name}: {way_on}\n"
            )

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ending.locked():  # it came a third time
            os._exit(EXIT_CODES[signal.Signals(number)])
        first = self.signal is None
        self.signal = self.signal or signal.Signals(number)
        if not first or self._cancel is None:
            self.end()
        self._came.set()
        self._cancel()

    def _lose_patience(self) -> None:
        self._came.wait()
        threading.Event().wait(self.patience_s)
        self.end()


INTERRUPTS = Interrupts()


def catch_from_the_start() -> None:
    """Catch signals from the package's import on, in a process that is one of its commands.

    While `python -m clawrl_gym.COMMAND` imports the package, and only then, `sys.argv` begins
    with "-m".
    """
    program = sys.argv[0] if sys.argv else ""
    modules = {f"clawrl_gym.{command}" for command in COMMANDS}
    scripts = {f"clawrl-{command}" for command in COMMANDS}
    begins = program == "-m" and not modules.isdisjoint(sys.orig_argv)
    if begins or program.rpartition("/")[2] in scripts:
        INTERRUPTS.catch()


def exit_code_of_short(work: Callable[[], object], stopped: str = "stopped") -> int:
    """Exit code of a command that starts nothing: an error is one line, a Ctrl-C one word."""
    try:
        work()
    except ClawError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{stopped}\n")
        return EXIT_CODES[signal.SIGINT]
    return 0


def end_process(code: int, last_words: str = "") -> NoReturn:
    """End this process and all that it has started, now; no exit handlers run."""
    end_descendants()
    remove_all()
    if last_words:
        _write(last_words)
    os._exit(code)


def restore_terminal() -> None:
    """Restore the terminal after a process that ended at once or was killed."""
    with contextlib.suppress(OSError):
        if os.isatty(1):
            os.write(1, _RESTORE_TERMINAL)


def _write(text: str) -> None:
    """Write to standard error, whatever holds its locks; left out where nobody reads."""
    restore_terminal()
    with contextlib.suppress(OSError, ValueError):
        _, ready, _ = select.select([], [2], [], 0)
        if ready:
            os.write(2, text.encode())
