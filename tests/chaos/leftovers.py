"""What a run uses on a machine, noted while it lives, and what of it is there when it is over.

Only what was seen to be the run's own counts: other runs on the machine do not disturb.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from clawrl_gym.envs.sandbox.processes import identity
from tests.chaos.processes import Process, below, find

_SHARED = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/")
_FOR_GOOD = ("/run/clawrl-gym/",)
"""State of the machine, which is meant to stay: the file whose locks are uid slots."""
_CACHES = ("torchinductor_",)
"""In a temporary folder, with the user's name: one for all runs."""
_PAUSE_S = 0.25


class Traces:
    """Traces of one life of a run, from a driver's start to its end."""

    def __init__(self, driver: int, place: Path, temporary: Path) -> None:
        """What is below `place` is meant to stay; `temporary` is the TMPDIR of this run alone."""
        self._driver = driver
        self._place = place
        self._temporary = temporary
        self._processes: dict[tuple[int, int], Process] = {}
        self._cgroups: set[str] = set()
        self._ports: set[int] = set()
        self._files: set[Path] = set()
        self.names: set[str] = set()
        """In the temporary folder when it was looked at last."""

    def look(self, *, closely: bool = False) -> None:
        """Note which processes there are; closely: also ports and files that they have open."""
        own = find(self._driver)
        alive = below(self._driver) + ([own] if own else [])
        self._processes.update({(one.pid, one.started): one for one in alive})
        for process in alive:
            if "sandbox.launcher" in process.line:
                with contextlib.suppress(OSError):
                    self._cgroups.add(f"clawrl-{identity(process.pid)}")
        self.names = self.in_temporary()
        if closely:
            pids = {process.pid for process in alive}
            self._ports |= {port for pid, port in _listening() if pid in pids}
            for process in alive:
                self._files.update(self._open_files(process.pid))

    def in_temporary(self) -> set[str]:
        """Names in the temporary folder now."""
        names = (path.name for path in self._temporary.iterdir())
        return {name for name in names if not name.startswith(_CACHES)}

    def living(self) -> list[Process]:
        """Those of the processes seen that still run."""
        return [process for process in self._processes.values() if process.runs]

    def orphans(self, within_s: float) -> list[str]:
        """Processes that the living run has lost sight of, if they are there for so long."""
        return _until_none(self._orphans, within_s)

    def _orphans(self) -> list[str]:
        mine = {process.pid for process in below(self._driver)} | {self._driver}
        lost = [process for process in self.living() if process.pid not in mine]
        folders = [
            str(folder)
            for folder in self._cgroup_folders()
            if find(int(folder.name.split("-")[2])) is None
        ]
        return [f"process {process}" for process in lost] + [f"cgroup {name}" for name in folders]

    def left(self, within_s: float) -> list[str]:
        """What is there after the run's end, if it is there for so long."""
        return _until_none(self._left, within_s)

    def left_names(self) -> list[str]:
        """What of the last look is still in the temporary folder."""
        return sorted(self.names & self.in_temporary())

    def _left(self) -> list[str]:
        alive = self.living()
        held = {port for pid, port in _listening() if pid in {process.pid for process in alive}}
        return [
            *(f"process {process}" for process in alive),
            *(f"cgroup {folder}" for folder in self._cgroup_folders()),
            *(f"port {port}" for port in self._ports & held),
            *(f"mount {line}" for line in self._mounts()),
            *(f"file {path}" for path in self._files if path.exists()),
        ]

    def _cgroup_folders(self) -> Iterator[Path]:
        for place, folders, _ in os.walk("/sys/fs/cgroup"):  # it bears with folders that go
            yield from (Path(place, name) for name in folders if name in self._cgroups)

    def _mounts(self) -> list[str]:
        """Mounts in the host's own namespace that name the run's places."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        places = [line.split()[4] for line in lines]
        own = (f"{self._place / 'disk'}/", f"{self._temporary}/")
        return [place for place in places if place.startswith(own)]

    def _open_files(self, pid: int) -> Iterator[Path]:
        """Files in places that others use too, by descriptors and by mappings."""
        names: set[str] = set()
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
                return  # a sandbox, whose /tmp is its own
            names.update(str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir())
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            names.update(line.split(maxsplit=5)[-1] for line in lines)
        own = (f"{self._place}/", f"{self._temporary}/")
        for name in names:
            if name.startswith(_SHARED) and not name.startswith((*_FOR_GOOD, *own)):
                yield Path(name)


def _listening() -> set[tuple[int | None, int]]:
    return {
        (socket.pid, socket.laddr[1])
        for socket in psutil.net_connections("inet")
        if socket.status == psutil.CONN_LISTEN and socket.laddr
    }


def _until_none(look: Callable[[], list[str]], within_s: float) -> list[str]:
    deadline_s = time.monotonic() + within_s
    while (found := look()) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)
    return found
