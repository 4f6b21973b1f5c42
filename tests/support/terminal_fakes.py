"""A sandbox in memory for tests of what stands around it: no process, no isolation.

It understands four commands, `put PATH TEXT`, `drop PATH`, `hang` and `die`, and any command
that a test scripts. An action that may submit ends in `submit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import ExecResult, Limits

Script = dict[str, Callable[["MemorySandbox"], ExecResult]]


@dataclass
class MemorySandbox:
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    script: Script = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    submitted: bool = False
    dead: bool = False
    closed: bool = False
    generation: int = 0
    heirs: list[Self] = field(default_factory=list)

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        self._require_alive()
        self.ran.append(command)
        if command in self.script:
            return self.script[command](self)
        if command.startswith("submit() {"):
            return self._with_submit(command.partition("; }; ")[2])
        if "unset -f submit" in command:
            submitted, self.submitted = self.submitted, False
            return ExecResult("", 0 if submitted else 1)
        match command.split(maxsplit=2):
            case ["put", path, text]:
                self.files[f"/root/{path}"] = text.encode()
            case ["drop", path]:
                del self.files[f"/root/{path}"]
            case ["hang"]:
                return ExecResult("", None, timed_out=True)
            case ["die"]:
                self.dead = True
                self._require_alive()
            case ["rm", *_] if "/logs/verifier" in command:
                self.files = {p: d for p, d in self.files.items() if "/logs/verifier" not in p}
        return ExecResult("", 0)

    def _with_submit(self, action: str) -> ExecResult:
        """`submit` as the last line, or behind `&&`."""
        before, is_behind, _ = action.partition(" && submit")
        result = self.exec(before.removesuffix("submit").strip(), 1.0)
        self.submitted = not is_behind or result.exit_code == 0
        return result

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._require_alive()
        self.files[path] = data
        self.modes[path] = mode

    def read(self, path: str, max_bytes: int) -> bytes:
        self._require_alive()
        if path in self.folders:
            raise SandboxError(f"{path} is no regular file")
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def mode(self, path: str) -> int:
        self._require_alive()
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.modes.get(path, 0o644)

    def tree(self, path: str, max_entries: int) -> dict[str, int]:
        self._require_alive()
        below = [name for name in self.files if name.startswith(f"{path}/")]
        return {name.removeprefix(f"{path}/"): 0o100_000 | self.mode(name) for name in below}

    def successor(self) -> Self:
        self._require_alive()
        self.closed = True
        heir = type(self)(dict(self.files), dict(self.modes), self.script)
        heir.generation = self.generation + 1
        self.heirs.append(heir)
        return heir

    def close(self) -> None:
        self.closed = True

    def _require_alive(self) -> None:
        if self.dead or self.closed:
            raise SandboxError("the sandbox has ended")


@dataclass
class MemoryOpener:
    """Opens sandboxes and remembers them."""

    script: Script = field(default_factory=dict)
    opened: list[MemorySandbox] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    broken: bool = False

    def __call__(self, limits: Limits, **options: Any) -> MemorySandbox:
        if self.broken:
            raise SandboxError("no sandbox can be opened")
        self.asked.append({"limits": limits, **options})
        self.opened.append(MemorySandbox(script=self.script))
        return self.opened[-1]
