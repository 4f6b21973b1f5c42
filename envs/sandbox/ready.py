"""Sandboxes that stand ready, so that a reset is a hand-over where one is there.

A template is all that says what a fresh sandbox is. One thread of the process starts a few of each
template that is asked for again and again. Each is handed over once, and no episode was ever in it;
those that nobody takes for a minute end, and all end with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from clawrl_gym.core.errors import ClawError, SandboxError
from clawrl_gym.envs.sandbox.interface import Sandbox

_TAKEN_FOR_EACH = 4
"""Times a template is taken before one more stands ready: a rare one costs no start."""
_MOST_TEMPLATES = 4
"""Most templates with ready sandboxes; the least recently taken one's are ended."""
_MOST_KNOWN = 64
"""Templates whose takes are counted."""
_IDLE_S = 60.0
_PROOF_S = 10.0
_END_S = 3.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Template:
    """Description of a fresh sandbox, and the function that starts one."""

    key: str
    """Equal for sandboxes that cannot be told apart."""
    start: Callable[[], Sandbox] = field(compare=False)
    most: int = field(compare=False)
    """Most sandboxes that may stand ready."""


@dataclass(slots=True)
class _Shelf:
    """Sandboxes of one template that stand ready."""

    template: Template
    ready: deque[Sandbox] = field(default_factory=deque)
    taken: int = 0
    taken_s: float = 0.0
    """Time when the last one was taken."""

    @property
    def shortage(self) -> int:
        return min(self.template.most, self.taken // _TAKEN_FOR_EACH) - len(self.ready)


class ReadySandboxes:
    """The ready sandboxes of one process, for all its threads."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.owner_pid = os.getpid()
        self._clock_s = clock_s
        self._shelves: OrderedDict[str, _Shelf] = OrderedDict()
        """Shelves by template, the one taken last at the end."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def take(self, template: Template) -> Sandbox:
        """One that stands ready and answers, else a fresh one. Raises SandboxError for neither."""
        while (sandbox := self._taken(template)) is not None:
            with contextlib.suppress(SandboxError):
                if sandbox.exec(":", _PROOF_S).exit_code == 0:
                    return sandbox
            sandbox.close()  # it ended while it stood there
        sandbox = template.start()
        if template.most:  # the same lines of its shell's input as one that stood ready
            sandbox.exec(":", _PROOF_S)
        return sandbox

    def close(self) -> None:
        """End all that stand ready; what is taken from now on is fresh."""
        if self.owner_pid != os.getpid():
            return
        with self._changed:
            self._closed = True
            thread = self._thread
            unwanted = [sandbox for shelf in self._shelves.values() for sandbox in shelf.ready]
            self._shelves.clear()
            self._changed.notify_all()
        if thread is not None:
            thread.join(_END_S)
        for sandbox in unwanted:
            sandbox.close()

    def _taken(self, template: Template) -> Sandbox | None:
        if template.most < 1:
            return None
        with self._changed:
            if self._closed:
                return None
            shelf = self._shelf(template)
            shelf.taken += 1
            shelf.taken_s = self._clock_s()
            sandbox = shelf.ready.popleft() if shelf.ready else None
            if shelf.shortage > 0:
                self._have_thread()
                self._changed.notify_all()
            return sandbox

    def _shelf(self, template: Template) -> _Shelf:
        shelf = self._shelves.setdefault(template.key, _Shelf(template))
        self._shelves.move_to_end(template.key)
        if len(self._shelves) > _MOST_KNOWN:
            del self._shelves[next(key for key, old in self._shelves.items() if not old.ready)]
        return shelf

    def _have_thread(self) -> None:
        if self._thread is None:
            atexit.unregister(self.close)  # before what sandboxes stand on, which is there by now
            atexit.register(self.close)
            self._thread = threading.Thread(
                target=self._refill, name="sandboxes-ready", daemon=True
            )
            self._thread.start()

    def _refill(self) -> None:
        try:
            while self._refill_once():
                pass
        except BaseException:
            with self._changed:
                self._thread = None
            raise

    def _refill_once(self) -> bool:
        """End what is unwanted and start one; False when nothing is there and nothing wanted."""
        with self._changed:
            unwanted, shelf = self._unwanted(), self._wanted()
            if not unwanted and shelf is None:
                if self._closed or not self._shelves:
                    self._thread = None  # the next take starts a new thread
                    return False
                self._changed.wait(_IDLE_S / 4)
        for sandbox in unwanted:
            sandbox.close()
        if shelf is not None:
            self._add_to(shelf)
        return True

    def _wanted(self) -> _Shelf | None:
        recent = reversed(self._shelves.values())
        return next((shelf for shelf in recent if shelf.shortage > 0), None)

    def _unwanted(self) -> list[Sandbox]:
        """Sandboxes of templates that others or the clock have outlived."""
        oldest_s = self._clock_s() - _IDLE_S
        stocked = [key for key, shelf in self._shelves.items() if shelf.ready]
        old = [key for key, shelf in self._shelves.items() if shelf.taken_s <= oldest_s]
        doomed = {*stocked[:-_MOST_TEMPLATES], *old}
        return [sandbox for key in doomed for sandbox in self._shelves.pop(key).ready]

    def _add_to(self, shelf: _Shelf) -> None:
        try:
            sandbox = shelf.template.start()
        except ClawError as error:  # reported to the next caller
            _log.debug("no sandbox was made ready: %s", error)
            shelf.taken = 0
            return
        with self._changed:
            if self._shelves.get(shelf.template.key) is shelf:
                shelf.ready.append(sandbox)
                return
        sandbox.close()


_lock = threading.Lock()
_ready: ReadySandboxes | None = None


def ready_sandboxes() -> ReadySandboxes:
    """This process's own; a forked child has none of its parent's."""
    global _ready
    with _lock:
        if _ready is None or _ready.owner_pid != os.getpid():
            _ready = ReadySandboxes()
        return _ready
