"""A sandbox of somebody else's: a bash in a folder of its own, found by its import path.

It isolates nothing, so it is for tests alone. `/root` of a task is the folder.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

import clawrl_gym as cg
from clawrl_gym.envs.sandbox.interface import ExecResult, SandboxSpec

if TYPE_CHECKING:
    from clawrl_gym.config import SandboxConfig


class Options(BaseModel):
    shell: str = "bash"


class FolderSandbox:
    """It declares nothing: what `Sandbox` asks for and no more."""

    Options = Options

    def __init__(self, shell: str, workdir: str, root: Path | None = None) -> None:
        self._shell, self._workdir = shell, workdir
        self._root = root or Path(tempfile.mkdtemp(prefix="clawrl-test-"))
        self._place(workdir).mkdir(parents=True, exist_ok=True)

    @classmethod
    def from_config(cls, config: SandboxConfig, spec: SandboxSpec) -> FolderSandbox:
        return cls(Options.model_validate(config.options).shell, spec.workdir)

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        done = subprocess.run(
            [self._shell, "-c", command],
            cwd=self._place(self._workdir),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
        return ExecResult(done.stdout.decode(errors="replace"), done.returncode)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(mode)

    def read(self, path: str, max_bytes: int) -> bytes:
        return self._place(path).read_bytes()[:max_bytes]

    def mode(self, path: str) -> int:
        return stat.S_IMODE(self._place(path).stat().st_mode)

    def successor(self) -> FolderSandbox:
        return type(self)(self._shell, self._workdir, self._root)

    def close(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def _place(self, path: str) -> Path:
        return self._root / path.lstrip("/")


class ListingSandbox(FolderSandbox):
    """It can say what is in a folder, be started ahead, and needs nothing of a node."""

    capabilities: ClassVar[cg.SandboxCapabilities] = cg.SandboxCapabilities(
        lists_files=True, pooled=True, node_resource=None
    )

    def tree(self, path: str, max_entries: int) -> dict[str, int]:
        folder = self._place(path)
        found = {str(one.relative_to(folder)): one.lstat().st_mode for one in folder.rglob("*")}
        if len(found) > max_entries:
            raise cg.EnvError(f"got {len(found)} files in {path}, expected {max_entries} at most")
        return found


class BoastingSandbox(FolderSandbox):
    """It declares what it has no method for."""

    capabilities: ClassVar[cg.SandboxCapabilities] = cg.SandboxCapabilities(lists_files=True)


class WordySandbox(FolderSandbox):
    """It declares in words."""

    capabilities: ClassVar[tuple[str, ...]] = ("lists_files",)
