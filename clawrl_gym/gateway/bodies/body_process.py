"""The process that reads large bodies for a gateway, one after another.

It is asked and answers over its standard input and output: frames of a length and so many bytes.
The first frame is its settings; then come two for each body, and one goes back. It ends when its
input does, and so with the gateway, however that ends.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from typing import IO

from clawrl_gym.gateway.bodies.reading import RequestReader, Sender
from clawrl_gym.gateway.wire.refusals import refusal_of

SIZE_BYTES = 8
Head = tuple[str, tuple[str, ...], Sender]
"""Method of a `RequestReader`, its arguments before the body, and who sent that."""
_NICER = 5
"""Requests that are under way go first."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refused:
    """A body was refused; an exception itself keeps too much to be sent."""

    arguments: tuple[int, str, str, str | None]
    """The arguments of a `Refusal`."""


def framed(content: bytes) -> list[bytes]:
    """The parts of a frame."""
    return [len(content).to_bytes(SIZE_BYTES), content]


def _next_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end."""
    size = stream.read(SIZE_BYTES)
    return stream.read(int.from_bytes(size)) if len(size) == SIZE_BYTES else None


def _answer(reader: RequestReader, head: bytes, raw: bytes) -> object:
    method, arguments, sender = pickle.loads(head)
    try:
        return getattr(reader, method)(*arguments, raw, sender)
    except Exception as error:  # noqa: BLE001 - whatever it is, the client shall read it
        refusal = refusal_of(error)
        if refusal.status == 500:
            _log.error("a body could not be read", exc_info=error)
        return Refused((refusal.status, str(refusal), refusal.code, refusal.param))


def main() -> None:
    """Answer frames until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway says when it is over
    os.nice(_NICER)
    gc.disable()  # what a body is made of is freed by counting references
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    settings = _next_frame(requests)
    if settings is None:
        return
    reader = RequestReader(*pickle.loads(settings))
    while (head := _next_frame(requests)) is not None:
        raw = _next_frame(requests)
        if raw is None:
            return
        for part in framed(pickle.dumps(_answer(reader, head, raw), pickle.HIGHEST_PROTOCOL)):
            answers.write(part)
        answers.flush()
        del head, raw
        gc.collect()
