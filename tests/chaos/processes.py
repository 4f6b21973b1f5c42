"""The processes of one run, by the part that each plays, as /proc tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.processes.descendants import descendants


@dataclass(frozen=True, slots=True)
class Process:
    """One process, for ever: a number that is used again is another one."""

    pid: int
    started: int
    """Clock ticks since the machine's start."""
    parent: int
    name: str
    line: str

    @property
    def runs(self) -> bool:
        """Whether it is still there; zombies are not."""
        now = find(self.pid)
        return now is not None and now.started == self.started

    def __str__(self) -> str:
        return f"{self.pid} {self.line[:100] or self.name}"


def find(pid: int) -> Process | None:
    """None when it is gone, or a zombie."""
    place = Path(f"/proc/{pid}")
    try:
        stat = (place / "stat").read_text(errors="replace")
        line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[19]), int(fields[1]), head.partition("(")[2], line.strip())


def below(pid: int) -> list[Process]:
    """All living processes below one, oldest first."""
    found = (find(one) for one in descendants(pid))
    return sorted((p for p in found if p is not None), key=lambda process: process.started)


Says = Callable[[Process, "Process | None"], bool]
"""Whether a process with this parent plays a part."""


def _says(words: str) -> Says:
    return lambda process, parent: words in process.line


def _is(name: str) -> Says:
    return lambda process, parent: process.name == name


def _below_its_like(words: str, *, like: bool) -> Says:
    """Tell apart a process and its parent, which have the same command line."""
    return lambda process, parent: (
        words in process.line and like == (parent is not None and words in parent.line)
    )


_VLLM = "clawrl_gym.inference.vllm.process"

PARTS: dict[str, Says] = {
    "gateway": _below_its_like("clawrl_gym.serve", like=True),
    "worker": _says("ray::RolloutWorker"),
    "launcher": _says("clawrl_gym.envs.sandbox.launcher"),
    "learner": _says("ray::LearnerActor"),
    "fork server": _below_its_like(_VLLM, like=False),
    "api server": _below_its_like(_VLLM, like=True),
    "engine": _says("VLLM::EngineCore"),
    "raylet": _is("raylet"),
    "gcs": _is("gcs_server"),
    "sandbox": _is("bwrap"),
    "chromium": lambda process, parent: process.name.startswith("chrom"),
}
"""Which process of a run plays a part; with `serve` the gateway is the process that the driver, its
supervisor, keeps alive."""


def playing(part: str, processes: Iterable[Process]) -> list[Process]:
    """Those of a run's processes that play a part; none where it has no process of its own now."""
    return [process for process in processes if PARTS[part](process, find(process.parent))]
