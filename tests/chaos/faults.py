"""What can be done to a run: by name, how it is struck and how the run may take it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.chaos.cluster import ClusterTarget
from tests.chaos.judge import DELAY_S
from tests.chaos.processes import Process, find, playing
from tests.chaos.target import Target

STOPPED_S = 20.0
"""How long a stopped process is stopped, and a slow judge is slow."""
SLOWER = 100
_FULL_S = 8.0
_ABSENT_S = 5.0
"""Until somebody starts again what is not the run's to start."""

Ends = Literal["never", "always", "maybe"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    strike: Callable[[Target, random.Random], str]
    """Returns what was hit when the fault is over; raises NothingToHit."""
    ends: Ends = "never"
    """Whether the driver ends of it."""
    codes: tuple[int, ...] = (1, 3)
    """Exit codes with which it may end."""
    possible: Callable[[Target], bool] = lambda target: True
    """In that kind of run."""
    is_served_through: bool = False
    """`serve` goes on where a training run ends."""

    def ends_of(self, target: Target) -> Ends:
        return "never" if self.is_served_through and target.scenario.serves else self.ends


class NothingToHit(Exception):
    """The run has no such process now."""


def _victim(part: str, target: Target, draw: random.Random) -> Process:
    if part == "driver":
        own = find(target.pid)
        candidates = [] if own is None else [own]
    else:
        candidates = playing(part, target.processes)
    if not candidates:
        raise NothingToHit(part)
    return draw.choice(candidates)


def _kill(part: str) -> Callable[[Target, random.Random], str]:
    def strike(target: Target, draw: random.Random) -> str:
        victim = _victim(part, target, draw)
        os.kill(victim.pid, signal.SIGKILL)
        return str(victim)

    return strike


def _stop(part: str) -> Callable[[Target, random.Random], str]:
    def strike(target: Target, draw: random.Random) -> str:
        victim = _victim(part, target, draw)
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            target.wait(STOPPED_S)
        finally:
            if victim.runs:
                os.kill(victim.pid, signal.SIGCONT)
        return str(victim)

    return strike


@dataclass(frozen=True, slots=True)
class Foreign:
    """A server that is not the run's own: somebody else starts it again when it is dead."""

    name: str
    pid: Callable[[Target], int]
    start: Callable[[Target], object]


_JUDGE = Foreign("the judge", lambda target: target.judge.pid, lambda target: target.judge.start())
_DOCKERD = Foreign(
    "dockerd", lambda target: target.docker.pid, lambda target: target.docker.start()
)


def _kill_foreign(server: Foreign) -> Callable[[Target, random.Random], str]:
    def strike(target: Target, draw: random.Random) -> str:
        os.kill(server.pid(target), signal.SIGKILL)
        target.wait(_ABSENT_S)
        server.start(target)
        return server.name

    return strike


def _stop_foreign(server: Foreign) -> Callable[[Target, random.Random], str]:
    def strike(target: Target, draw: random.Random) -> str:
        pid = server.pid(target)
        os.kill(pid, signal.SIGSTOP)
        try:
            target.wait(STOPPED_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        return server.name

    return strike


def _slow_judge(target: Target, draw: random.Random) -> str:
    target.judge.delay(SLOWER * DELAY_S)
    target.wait(STOPPED_S)
    target.judge.delay(DELAY_S)
    return f"{SLOWER * DELAY_S:g} s an answer"


def _fill_disk(target: Target, draw: random.Random) -> str:
    with target.full_disk():
        target.wait(_FULL_S)
    return "the run's disk"


def _interrupt(target: Target, draw: random.Random) -> str:
    number = draw.choice([signal.SIGINT, signal.SIGTERM])
    target.send(number)
    return number.name


def _kill_node(target: Target, draw: random.Random) -> str:
    assert isinstance(target, ClusterTarget)
    target.kill_node()
    target.wait(_ABSENT_S)
    target.rejoin()
    return "a node's raylet"


def _cut_network(target: Target, draw: random.Random) -> str:
    assert isinstance(target, ClusterTarget)
    target.cut()
    target.wait(STOPPED_S)
    target.mend()
    target.wait(_ABSENT_S)  # a node that was given up ends itself
    target.rejoin()
    return "a node's network"


def _has(part: str) -> Callable[[Target], bool]:
    return lambda target: part in target.scenario.parts


def _trains(target: Target) -> bool:
    return not target.scenario.serves


def _is_judged(target: Target) -> bool:
    return target.scenario.judged


def _is_in_cluster(target: Target) -> bool:
    return target.scenario.in_cluster


def _has_own_ray(target: Target) -> bool:
    return not target.scenario.in_cluster


def _is_in_docker(target: Target) -> bool:
    return target.scenario.in_docker


def _has_own_disk(target: Target) -> bool:
    return target.disk.is_mount()


FAULTS: dict[str, Fault] = {
    "kill gateway": Fault(_kill("gateway"), possible=_has("gateway")),
    "kill worker": Fault(_kill("worker"), possible=_trains),
    "kill launcher": Fault(_kill("launcher"), possible=_has("launcher")),
    "kill sandbox": Fault(_kill("sandbox"), possible=_has("sandbox")),
    "kill chromium": Fault(_kill("chromium"), possible=_has("chromium")),
    "kill learner": Fault(_kill("learner")),
    "kill engine": Fault(_kill("engine")),
    "kill api server": Fault(_kill("api server")),
    "kill fork server": Fault(_kill("fork server")),
    "kill judge": Fault(_kill_foreign(_JUDGE), possible=_is_judged),
    "kill dockerd": Fault(_kill_foreign(_DOCKERD), possible=_is_in_docker),
    "kill node": Fault(_kill_node, possible=_is_in_cluster),
    "cut network": Fault(_cut_network, possible=_is_in_cluster),
    "kill raylet": Fault(_kill("raylet"), "always", (3,), _has_own_ray, is_served_through=True),
    "kill gcs": Fault(_kill("gcs"), "always", (3,), _has_own_ray, is_served_through=True),
    "kill driver": Fault(_kill("driver"), "always", (-signal.SIGKILL,)),
    "interrupt driver": Fault(_interrupt, "always", (130, 143)),
    "stop gateway": Fault(_stop("gateway"), possible=_has("gateway")),
    "stop worker": Fault(_stop("worker"), possible=_trains),
    "stop launcher": Fault(_stop("launcher"), possible=_has("launcher")),
    "stop chromium": Fault(_stop("chromium"), possible=_has("chromium")),
    "stop learner": Fault(_stop("learner")),
    "stop engine": Fault(_stop("engine")),
    "stop api server": Fault(_stop("api server")),
    "stop fork server": Fault(_stop("fork server")),
    "stop judge": Fault(_stop_foreign(_JUDGE), possible=_is_judged),
    "stop dockerd": Fault(_stop_foreign(_DOCKERD), possible=_is_in_docker),
    "stop raylet": Fault(_stop("raylet"), possible=_has_own_ray),
    "stop gcs": Fault(_stop("gcs"), possible=_has_own_ray),
    "stop driver": Fault(_stop("driver")),
    "full disk": Fault(_fill_disk, "maybe", (1,), _has_own_disk, is_served_through=True),
    "slow judge": Fault(_slow_judge, possible=_is_judged),
}
"""By the name that tables show and `--only` takes."""
