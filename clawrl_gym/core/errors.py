"""Every error this package raises on purpose.

    ClawError
    ├── ConfigError        the user's configuration or command line; one clear line, exit code 2
    ├── EnvError           the environment or its sandbox failed (never a reward)
    │   ├── SandboxError   isolation missing, sandbox died, limit of the host
    │   ├── TaskError      a task's own files are wrong
    │   └── NoVerdict      a task's verifier gives no verdict, whatever the agent did
    ├── AgentFault         the agent itself spoilt its episode or its grade (a reward of 0)
    ├── PolicyError        the engine or the gateway failed
    │   ├── ContextError   the prompt does not fit the model's context (a clean truncation)
    │   ├── RequestError   the engine refused the request itself: asking again is useless
    │   │   └── RequestTooLarge  it has more bytes than are read
    │   ├── ReplyTimeout   a policy that works had not ended its reply in time
    │   └── NotServed      new weights or an adapter were refused; the old ones serve on
    ├── TrainerError       the learner failed
    │   └── LearnerDied    its process ended: it can be started again from the last checkpoint
    ├── ClusterError       Ray, which holds workers and learner, did not start or has ended
    ├── TransferError      files did not arrive on another machine as they were sent
    └── StoreError         the run's database or folder cannot be used
        ├── DiskFull       there is no room for what is to be written
        └── NoRoom         what serves ended of a full disk, and is to be started again

Errors propagate. Four borders (environment, policy, judge, trainer) wrap foreign exceptions once,
with `boundary`; from there they are recorded as data.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_NO_SPACE = os.strerror(errno.ENOSPC)
"""Errors of other processes and languages arrive as text only."""


class ClawError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(ClawError):
    """The configuration or the command line is wrong."""


class ConfigErrors(ConfigError):
    """Several things are wrong; one line for each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class EnvError(ClawError):
    """An environment failed for reasons that are not the agent's: retried, never rewarded."""


class SandboxError(EnvError):
    """A sandbox could not be made or has died."""


class TaskError(EnvError):
    """A task's own files are wrong or missing."""


class NoVerdict(EnvError):
    """The verifier gave no verdict even without the agent's work: the task is broken.

    Raised instead of a reward, after the verifier was asked on a machine that the agent never
    touched. The episode is not run again, and the task is not drawn again.
    """


class AgentFault(ClawError):
    """The agent made it impossible to continue or to grade its own episode: a failure.

    Environments raise it wherever an episode may fail by what the agent did, in `step`, `finish`
    or a `TaskEnv`'s `_act` and `_grade`: a grade that cannot be read (no permission, a FIFO where
    a file was, gigabytes, no number), a sandbox that it destroyed. The episode ends with a reward
    of 0, is trained on and counted, and is never run again. EnvError is for what is provably not
    the agent's doing: that is run again, and lost when it fails again.
    """


class PolicyError(ClawError):
    """The engine, or the gateway in front of it, failed."""


class PolicyUnavailable(PolicyError):
    """The engine is starting, dying or overloaded: the same request may succeed later or
    elsewhere."""


class ContextError(PolicyError):
    """The prompt does not fit the context: the episode is truncated, nothing is broken."""


class RequestError(PolicyError):
    """The engine refused the request itself: asking again is useless."""


class RequestTooLarge(RequestError):
    """The request has more bytes than are read."""


class ReplyTimeout(PolicyError):
    """A policy that works had not ended its reply in time: the reply is too long."""


class NotServed(PolicyError):
    """New weights, or a new adapter, were refused: the old ones serve on."""


class TrainerError(ClawError):
    """The learner failed."""


class LearnerDied(TrainerError):
    """The learner's process ended: it can be started again from the last checkpoint."""


class ClusterError(ClawError):
    """Ray did not start, or one of its own processes ended: nothing in it can continue."""


class HeadLost(ClusterError):
    """The head of a joined cluster is gone: Ray's own end waits for it, and breaks the process."""


class TransferError(ClawError):
    """Files did not arrive as they were sent, or there is no room for them."""


class StoreError(ClawError):
    """The run's database or folder cannot be used."""


class DiskFull(StoreError):
    """There is no room for what is to be written; nothing of it was acknowledged."""


class NoRoom(StoreError):
    """A service ended because a disk was full: it is restarted once there is room."""


@contextmanager
def boundary(wrapper: type[ClawError], doing: str) -> Iterator[None]:
    """Wrap whatever foreign exception leaves the block in `wrapper`, once, saying what was done."""
    try:
        yield
    except ClawError:
        raise
    except Exception as error:
        raise wrapper(f"{doing}: {type(error).__name__}: {error}") from error


def first_of(error: BaseException) -> BaseException:
    """The first error in a group, however deep; any other error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def lacks_room(error: BaseException | None) -> bool:
    """Whether the error came from a full disk, however it was wrapped on its way."""
    if isinstance(error, BaseExceptionGroup):
        return any(lacks_room(one) for one in error.exceptions)
    while error is not None:
        if isinstance(error, DiskFull) or _NO_SPACE in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
