"""Reading of vLLM's log: the phase of the start-up, and the reason of its end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

_PHASES = (
    ("Resolved architecture", "reading the model"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Starting to load model", "loading weights"),
    ("torch.compile takes", "compiling"),
    ("Capturing CUDA graphs", "compiling"),
    ("KV cache size:", "warming up"),
    ("Starting vLLM server", "opening the port"),
)
_LESS_MEMORY = (
    "free memory, or lower policy.kv_cache_gb (CPU) or policy.gpu_memory_utilization (GPU)"
)
_ADVICE = (
    (
        "To serve at least one request",
        "lower policy.max_model_len, or give the cache more memory: "
        "policy.kv_cache_gb on a CPU, policy.gpu_memory_utilization on a GPU",
    ),
    ("greater than the derived max_model_len", "lower policy.max_model_len"),
    ("Available memory on node", _LESS_MEMORY),
    ("Free memory on device", _LESS_MEMORY),
    ("out of memory", _LESS_MEMORY),
    ("Address already in use", "choose another policy.port, or 0 for a free one"),
    ("Model architectures", "this vLLM cannot serve the model: choose another policy.model"),
)
_PROCESS = re.compile(r"^\(.*?pid=\d+\) ")
_LEVEL = re.compile(r"^(INFO|WARNING|ERROR) [\d-]+ [\d:]+ \[[^\]]*\] ?")
_ERROR = re.compile(r"^\s*([\w.]*(Error|Exception)\b|Value error,|error:|.*: error:)")
_FATAL = ("EngineCore failed to start", "EngineCore encountered a fatal error")
"""Lines of vLLM just before the error that its engine ended with."""
_SERVES = "Starting vLLM server"
_ENDS = ("[shutdown]", "nanobind:")
"""Marks from which on everything follows from the end: nothing there is its cause."""
_ENGINE_GONE = ("engine core exited unexpectedly", "EngineDeadError")
_GENERIC = ("Engine core initialization failed", *_ENGINE_GONE, "leaked", "CancelledError",
            "validation error for")  # fmt: skip
WITHOUT_A_WORD = "its engine ended without a word, as when the system kills it for its memory"
_TAIL_BYTES = 256 * 1024


class ServerLog:
    """The part of a log file that one launch of the server writes; a log that was emptied meanwhile
    is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = self._position = path.stat().st_size if path.exists() else 0

    def new_phases(self) -> list[str]:
        """Phases that began since the last call, in order."""
        if self._position > self._path.stat().st_size:
            self._position = 0
        with self._path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        return [phase for line in lines for sign, phase in _PHASES if sign in line]

    def last_words(self) -> str:
        """The error that this launch ended with; its last lines when there is none.

        A server that serves also logs errors of single requests: they are not what it ended with.
        """
        tail = [_PROCESS.sub("", line) for line in self._tail()]
        lines = [_LEVEL.sub("", line).strip() for line in tail]
        fatal = next((at for at, line in enumerate(lines) if _is_any(_FATAL, line)), None)
        if fatal is not None and (cause := _errors(lines[fatal:])):
            return cause[0][:600]
        if _is_any(_ENGINE_GONE[:1], " ".join(lines)):
            return WITHOUT_A_WORD
        before = list(takewhile(lambda line: not _is_any(_ENDS, line), lines))
        uncaught = _errors(line for line in tail[: len(before)] if not _LEVEL.match(line))
        logged = [] if _is_any((_SERVES,), " ".join(before)) else _errors(before)
        if error := (uncaught[:1] or logged[-1:]):
            return error[0][:600]
        if _is_any(_ENGINE_GONE, " ".join(lines)):
            return WITHOUT_A_WORD
        words = [line for line in before if line]
        return " | ".join(words[-3:])[:600] or "it said nothing"

    def _tail(self) -> list[str]:
        size = self._path.stat().st_size
        begin = self._begin if self._begin <= size else 0
        with self._path.open("rb") as file:
            file.seek(max(begin, size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()


def _errors(lines: Iterable[str]) -> list[str]:
    """Errors that say what went wrong, and not that something did."""
    return [line.strip() for line in lines if _ERROR.match(line) and not _is_any(_GENERIC, line)]


def _is_any(signs: Iterable[str], line: str) -> bool:
    return any(sign in line for sign in signs)


def advice(words: str) -> str | None:
    """A change of the configuration, for the failures that configuration causes."""
    return next((cure for sign, cure in _ADVICE if sign in words), None)
