"""What vLLM's log tells people: which phase of the start-up it is in, and why it died."""

from __future__ import annotations

import re
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
_PREFIX = re.compile(r"^(\(.*?pid=\d+\) )?((INFO|WARNING|ERROR) [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
_ERROR = re.compile(r"^\s*([\w.]*(Error|Exception)\b|Value error,|error:|.*: error:)")
_ENGINE_GONE = "EngineDeadError"
_GENERIC = ("Engine core initialization failed", _ENGINE_GONE, "leaked", "CancelledError")
_TAIL_BYTES = 256 * 1024


class ServerLog:
    """The part of a log file that one launch of the server writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = self._position = path.stat().st_size if path.exists() else 0

    def new_phases(self) -> list[str]:
        """Phases that began since the last call, in order."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        return [phase for line in lines for sign, phase in _PHASES if sign in line]

    def last_words(self) -> str:
        """The error that this launch ended with; its last lines when there is none."""
        lines = [_PREFIX.sub("", line).rstrip() for line in self._tail()]
        errors = [
            line.strip()
            for line in lines
            if _ERROR.match(line) and not any(word in line for word in _GENERIC)
        ]
        if errors:
            return errors[-1][:600]
        if any(_ENGINE_GONE in line for line in lines):
            return "its engine ended without a word, as when the system kills it for its memory"
        words = [line.strip() for line in takewhile(_before_exit, lines) if line.strip()]
        return " | ".join(words[-3:])[:600] or "it said nothing"

    def _tail(self) -> list[str]:
        size = self._path.stat().st_size
        with self._path.open("rb") as file:
            file.seek(max(self._begin, size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()


def _before_exit(line: str) -> bool:
    """False from where the interpreter ends and libraries count what they leave."""
    return not line.startswith("nanobind:")


def advice(words: str) -> str | None:
    """What to change in the configuration, for the failures that configuration causes."""
    return next((cure for sign, cure in _ADVICE if sign in words), None)
