"""WeightChecks: of each publication, that what is served is what the learner has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from clawrl_gym.config import LearnerConfig, PolicyConfig
from clawrl_gym.core.errors import NotServed, PolicyError, PolicyUnavailable
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.weights.probe import GAP, REFUSED, Finding, Probe, Reading

_AT_ONCE = 3
"""Readings in one batch, when the engine's noise is measured."""


class WeightCheck:
    """WeightCheck of one version: called with each engine that serves it, which raises NotServed;
    accepted when all do."""

    def __init__(
        self, probe: Probe, reading: Reading, user: str, version: int, say: Callable[[str], None]
    ) -> None:
        self.metrics: Mapping[str, float] = {}
        self._readings: list[tuple[Finding, list[float]]] = []
        """Findings and readings of the engines that were asked."""
        self._probe = probe
        self._reading = reading
        self._user = user
        self._version = version
        self._say = say

    async def __call__(self, engine: EngineClient) -> None:
        reading, user = self._reading, self._user
        try:
            logprobs = await engine.logprobs(reading.ids_T, version=self._version, user=user)
        except PolicyUnavailable as error:  # it takes what is current when it is back
            return self._say(f"version {self._version} could not be verified: {error}")
        finding = self._probe.compare(user, reading.logprobs_T, logprobs)
        self._readings.append((finding, logprobs))
        if finding.gap >= self.metrics.get(GAP, 0.0):
            self.metrics = finding.metrics
        if finding.refusal is not None:
            self.metrics = finding.metrics
            raise NotServed(finding.refusal)

    def mark_verified(self) -> None:
        """Note that it serves: the next version is compared with it."""
        for finding, logprobs in self._readings[:1]:
            self._probe.mark_verified(self._user, finding, self._reading.logprobs_T, logprobs)


class WeightChecks:
    """Makes them. What numbers do is measured at the first one, by the version before it."""

    def __init__(
        self,
        servers: PolicyServers,
        say: Callable[[str], None],
        *,
        is_exact: bool,
        can_probe: bool = True,
    ) -> None:
        """`is_exact`: engine and learner compute in float32. `can_probe`: engines can be asked."""
        self._servers = servers
        self._say = say
        self._probe: Probe | None = Probe(is_exact=is_exact)
        self._can_probe = can_probe
        self._start: Reading | None = None

    def begin(self, reading: Reading | None) -> None:
        """Begin with the learner's reading of the version that is served now."""
        self._start = reading
        if reading is None or not self._can_probe:
            self._probe = None
            who = "learner" if reading is None else "engine"
            self._say(
                f"the {who} has no probe: what is served is not compared with what is learned"
            )

    async def of(
        self, reading: Reading | None, user: str, version: int, served: int
    ) -> WeightCheck | None:
        """WeightCheck of a version that is about to be published; None where it cannot be verified.

        `served`: the newest version for all. Raises PolicyError when other weights were served than
        the learner's from the start.
        """
        if reading is None or self._probe is None or self._start is None:
            return None
        if not self._probe.is_measured and not await self._measure(self._start, served):
            return None
        return WeightCheck(self._probe, reading, user, version, self._say)

    async def _measure(self, start: Reading, served: int) -> bool:
        async def ask(engine: EngineClient) -> list[list[float]]:
            read = partial(engine.logprobs, start.ids_T, version=served)
            alone = await read()
            return [alone, *await asyncio.gather(*(read() for _ in range(_AT_ONCE)))]

        assert self._probe is not None
        try:
            readings = await self._servers.measure(ask)
        except PolicyUnavailable:
            return False
        except PolicyError as error:
            self._say(f"the engine cannot be probed ({error}): what it serves is not compared")
            self._probe = None
            return False
        if readings is not None:
            self._probe.measure(start.logprobs_T, readings)
        return readings is not None


def computes_exactly(
    policy: PolicyConfig, learner: LearnerConfig, own: str, device: Device
) -> bool:
    """Whether engine and learner compute alike, in float32; `own` is the element type of the
    model's files."""
    served = own if policy.dtype == "auto" else policy.dtype
    base = "float32" if learner.adapter is None else learner.base
    learned = own if base == "served" else base
    in_float32 = served == learned == "float32" and not learner.offload
    return in_float32 and device == "cpu"


def refused(weight_check: WeightCheck | None) -> dict[str, float]:
    """Metrics of a publication that was refused, for whatever reason."""
    return {**({} if weight_check is None else weight_check.metrics), REFUSED: 1.0}
