"""Access of this machine's root to a container without asking the engine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Required, TypedDict

from clawrl_gym.envs.sandbox import processes


class _Mount(TypedDict, total=False):
    Destination: Required[str]
    Type: str


class _State(TypedDict):
    Pid: int


class _Driver(TypedDict, total=False):
    Name: str
    Data: dict[str, str] | None


class Inspection(TypedDict, total=False):
    """Fields that are read of the engine's description of a container."""

    Id: Required[str]
    State: Required[_State]
    Mounts: list[_Mount] | None
    GraphDriver: _Driver | None


@dataclass(frozen=True, slots=True)
class HostView:
    """Where a container is on this machine; all empty on another machine, or for others than root.

    `layer` and `root` are its overlay, of which it sees mounts of its own on top: never the
    kernel's files, whatever links lead to.
    """

    pid: int = 0
    """Process id of its first process."""
    process: str = ""
    """That process for ever (`processes.identity`): the kernel gives its number to others later."""
    layer: str = ""
    """Folder with what it wrote."""
    root: str = ""
    """Path of its whole root; empty when volumes hide some of it."""
    volumes: tuple[str, ...] = ()
    """Folders of volumes that the image asks for, inside; known on any machine."""

    @classmethod
    def of(cls, inspected: Inspection) -> HostView:
        volumes = tuple(
            mount["Destination"]
            for mount in inspected.get("Mounts") or ()
            if mount.get("Type") != "bind"  # shown by us, and nothing that it wrote
        )
        pid = int(inspected["State"]["Pid"])
        try:
            process = processes.identity(pid)
            groups = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            process = groups = ""
        if os.geteuid() != 0 or inspected["Id"] not in groups:
            return cls(volumes=volumes)
        driver = inspected.get("GraphDriver") or {}
        data = driver.get("Data") or {} if driver.get("Name") == "overlay2" else {}
        root, layer = data.get("MergedDir", ""), data.get("UpperDir", "")
        if not _same_folder(root, f"/proc/{pid}/root") or not Path(layer).is_dir():
            return cls(pid, process, volumes=volumes)
        return cls(pid, process, layer, "" if volumes else root, volumes)


def _same_folder(path: str, expected: str) -> bool:
    try:
        return path.startswith("/") and os.path.samefile(path, expected)  # noqa: PTH121 (a proc link)
    except OSError:
        return False
