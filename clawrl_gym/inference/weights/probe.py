"""Probe: whether what is served is what was trained.

After each publication the engine and the learner read the same short text of N tokens. With L the
learner's log-probs of them and E the engine's, d and e how they moved since the last verified
version, and |x| the root of the mean square:

    gap      |E - L|            other weights, or part of them, where it is beyond the noise and
                                beyond a quarter of what the learner moved
    arrived  b = sum(e d) / sum(d d)     about 1; 0 when old weights still answer, 1/2 when half did
             s = |e - b d| / (|d| sqrt(N - 1))     how exactly b is known, by what it leaves over

The noise is how far engine and learner are apart on the same weights: at the start, and at the last
verified version, since what bfloat16 rounds grows with the log-probs that are learned. What
requests beside the probe change in the engine's numbers is in s: the more they do, the less b
decides. So b is asked for once the learner has moved by MOVED times the noise; until then the
reference stays, so that small steps add up. A gap alone would let a publication pass that never
arrived, where a step changes less than the gap allows.

In float32 on one kind of device numbers are exact to EXACT_GAP, and any larger gap is refused.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

from clawrl_gym.core.errors import PolicyError

GAP, ARRIVED, REFUSED = "learner/probe_gap", "learner/probe_arrived", "learner/refused"
EXACT_GAP = 1e-4
_MOST_AT_START = {True: 1e-2, False: 2.0}
"""Most difference of engine and learner on the same weights: of each token in float32, else on
average. More means other weights."""
MOVED = 6.0
"""Times the noise, from where on a movement is one: the learner's own rounding then hides at most a
twentieth of it."""
_NOISIEST = 8.0
"""Times the noise that a gap may be, whatever the load."""
_UNEXPLAINED = 0.25
"""Share of the learner's movement that may be missing in the engine."""
_ARRIVED = 0.75
"""Halfway between half and all."""
_SURE = 4.0
"""Times s: so far is b from what it is by chance."""
_LEAST_NOISE = 1e-7


@dataclass(frozen=True, slots=True)
class Reading:
    """The learner's reading of the text."""

    ids_T: list[int]
    logprobs_T: list[float]
    """Log-probs of all ids but the first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of probing one version."""

    gap: float
    """The largest difference of a token, relative where it is unlikely."""
    arrived: float | None
    """Share of the movement that arrived; None: the learner has not moved enough to tell."""
    refusal: str | None
    """Why it is not what was trained."""

    @property
    def metrics(self) -> dict[str, float]:
        arrived = {} if self.arrived is None else {ARRIVED: self.arrived}
        return {GAP: self.gap, REFUSED: float(self.refusal is not None)} | arrived


@dataclass(frozen=True, slots=True)
class _Verified:
    """Both sides' log-probs of a version that they agreed on."""

    learner: Sequence[float]
    engine: Sequence[float]
    noise: float


@dataclass(frozen=True, slots=True)
class _Arrived:
    """Share of a movement that is in the engine."""

    share: float
    error: float
    """Error of the share, by the unexplained rest."""

    @property
    def is_missing(self) -> bool:
        return not self.share >= _ARRIVED and not self.share + _SURE * self.error >= 1.0

    @property
    def is_sure(self) -> bool:
        return _SURE * self.error <= 1.0 - _ARRIVED


class Probe:
    """Compares readings; it asks nobody."""

    def __init__(self, *, is_exact: bool) -> None:
        """`is_exact`: engine and learner compute in float32, on the same kind of device."""
        self._is_exact = is_exact
        self._verified: dict[str, _Verified] = {}
        self._start: _Verified | None = None
        self.tolerance = EXACT_GAP
        """Tolerance of the largest gap; in float32 only."""

    @property
    def is_measured(self) -> bool:
        return self._start is not None

    def measure(self, learner: Sequence[float], engine: Sequence[Sequence[float]]) -> None:
        """Begin with weights that both have: `engine` are several readings, alone and in batches.

        What they differ by among themselves, and from the learner, is what numbers do. Raises
        PolicyError when that is too much for the same weights.
        """
        first, *others = engine
        apart = [_differences(first, other) for other in others]
        gaps = _differences(first, learner)
        noise = max([0.0, *(_gap(other, first) for other in others)])
        distance = _gap(first, learner) if self._is_exact else statistics.fmean(map(abs, gaps))
        if not distance <= _MOST_AT_START[self._is_exact]:
            raise PolicyError(
                "the engine serves other weights than the learner has: their log-probs of the same "
                f"text differ by {distance:.3g}, "
                f"expected at most {_MOST_AT_START[self._is_exact]:g}"
            )
        self.tolerance = max(EXACT_GAP, 4 * noise, 2 * _gap(first, learner))
        size = max([_LEAST_NOISE, _size(gaps), *map(_size, apart)])
        self._start = _Verified(learner, first, size)

    def compare(self, user: str, learner: Sequence[float], engine: Sequence[float]) -> Finding:
        """Compare the readings of a new version with the last one of this user's that was verified,
        or with the ones that both began with."""
        before = self._before(user)
        moved = _differences(learner, before.learner)
        arrived = None
        if _size(moved) > MOVED * before.noise:
            arrived = _arrived(_differences(engine, before.engine), moved)
        gap = _gap(engine, learner)
        refusal = self._refusal_of_gap(gap, learner, engine, before)
        if refusal is None and arrived is not None and arrived.is_missing:
            refusal = (
                f"the engine's log-probs of the probe show {arrived.share:.0%} of what the "
                "learner's moved since the last verified version, expected all: the new weights "
                "have not arrived"
            )
        return Finding(gap, None if arrived is None else arrived.share, refusal)

    def mark_verified(
        self, user: str, finding: Finding, learner: Sequence[float], engine: Sequence[float]
    ) -> None:
        """Compare what comes with this version, if it was told from the one before."""
        before = self._before(user)
        moved = _differences(learner, before.learner)
        if finding.arrived is None:
            return
        if _arrived(_differences(engine, before.engine), moved).is_sure:
            own = _size(_differences(engine, learner))
            noise = before.noise if self._is_exact else max(before.noise, own)
            self._verified[user] = _Verified(learner, engine, noise)

    def _before(self, user: str) -> _Verified:
        before = self._verified.get(user) or self._start
        assert before is not None
        return before

    def _refusal_of_gap(
        self, gap: float, learner: Sequence[float], engine: Sequence[float], before: _Verified
    ) -> str | None:
        if self._is_exact:
            if gap <= self.tolerance:
                return None
            return (  # NaN, too
                f"the engine's log-probs of the probe differ from the learner's by up to {gap:.3g},"
                f" expected at most {self.tolerance:.3g}"
            )
        size = _size(_differences(engine, learner))
        moved = _size(_differences(learner, before.learner))
        most = max(_NOISIEST * before.noise, _UNEXPLAINED * moved)
        if size <= most:
            return None
        return (
            f"the engine's log-probs of the probe differ from the learner's by {size:.3g} (root of "
            f"the mean square), expected at most {most:.3g}: {_NOISIEST:g} times what numbers do "
            f"({before.noise:.3g}), or {_UNEXPLAINED:.0%} of what the learner moved ({moved:.3g})"
        )


def _arrived(engine: Sequence[float], learner: Sequence[float]) -> _Arrived:
    """Compare both sides' movements."""
    size = sum(d * d for d in learner)
    share = sum(e * d for e, d in zip(engine, learner, strict=True)) / size
    left = sum((e - share * d) ** 2 for e, d in zip(engine, learner, strict=True))
    return _Arrived(share, sqrt(left / size / max(1, len(learner) - 1)))


def _gap(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference; of what is unlikely to its size, as numbers are rounded."""
    gaps = [abs(x - y) / max(1.0, abs(y)) for x, y in zip(one, other, strict=True)]
    return nan if any(map(isnan, gaps)) else max(gaps)


def _differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [x - y for x, y in zip(one, other, strict=True)]


def _size(differences: Sequence[float]) -> float:
    """Root of the mean square."""
    return sqrt(statistics.fmean(x * x for x in differences))
