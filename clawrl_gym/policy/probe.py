"""Probe: whether what is served is what was trained.

After each publication the engine and the learner read the same short text. With L the learner's
log-probs of its tokens and E the engine's, d and e how they moved since the last proved version:

    gap      max |E - L| / max(1, |L|)   within what numbers allow (see `measure`)
    arrived  sum(e d) / sum(d d)         about 1; 0 when old weights still answer

The second is asked for once the learner has moved by more than numbers do by themselves; until
then the reference stays, so that small steps add up. A gap alone would let a publication pass that
never arrived, where a step changes less than the gap allows.
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
"""What engine and learner may differ by on the same weights: at most in float32, else on average.
More are other weights."""
_ARRIVED = 0.5
_MOVED = 3.0
"""Times the noise, from where on a movement is one."""
_LEAST_NOISE = 1e-7


@dataclass(frozen=True, slots=True)
class Reading:
    """What the learner says of the text."""

    ids_T: list[int]
    logprobs_T: list[float]
    """Of all ids but the first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe of one version showed."""

    gap: float
    arrived: float | None
    """None: the learner has not moved enough to tell."""
    refusal: str | None
    """Why it is not what was trained."""

    @property
    def metrics(self) -> dict[str, float]:
        arrived = {} if self.arrived is None else {ARRIVED: self.arrived}
        return {GAP: self.gap, REFUSED: float(self.refusal is not None)} | arrived


@dataclass(frozen=True, slots=True)
class _Proved:
    """Both sides' log-probs of a version that they agreed on."""

    learner: Sequence[float]
    engine: Sequence[float]


class Probe:
    """Compares readings; it asks nobody."""

    def __init__(self, *, is_exact: bool) -> None:
        """`is_exact`: engine and learner compute in float32, on the same kind of device."""
        self._is_exact = is_exact
        self._proved: dict[str, _Proved] = {}
        self._start: _Proved | None = None
        self.tolerance = EXACT_GAP
        """Of the gap."""
        self._noise = _LEAST_NOISE

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
                f"vLLM serves other weights than the learner has: their log-probs of the same text "
                f"differ by {distance:.3g}, expected at most {_MOST_AT_START[self._is_exact]:g}"
            )
        self.tolerance = max(EXACT_GAP, 4 * noise, 2 * _gap(first, learner))
        self._noise = max([_LEAST_NOISE, _size(gaps), *map(_size, apart)])
        self._start = _Proved(learner, first)

    def compare(self, user: str, learner: Sequence[float], engine: Sequence[float]) -> Finding:
        """What the readings of a new version say, against the last one of this user's that was
        proved, or that both began with."""
        before = self._proved.get(user) or self._start
        assert before is not None
        gap = _gap(engine, learner)
        moved = _differences(learner, before.learner)
        arrived = None
        if _size(moved) > _MOVED * self._noise:
            along = zip(_differences(engine, before.engine), moved, strict=True)
            arrived = sum(e * d for e, d in along) / sum(d * d for d in moved)
        return Finding(gap, arrived, self._refusal(gap, arrived))

    def accept(
        self, user: str, finding: Finding, learner: Sequence[float], engine: Sequence[float]
    ) -> None:
        """Compare what comes with this version, if it was told from the one before."""
        if finding.arrived is not None:
            self._proved[user] = _Proved(learner, engine)

    def _refusal(self, gap: float, arrived: float | None) -> str | None:
        if not gap <= self.tolerance:  # NaN, too
            return (
                f"vLLM's log-probs of the probe differ from the learner's by up to {gap:.3g}, "
                f"expected at most {self.tolerance:.3g}"
            )
        if arrived is not None and not arrived >= _ARRIVED:
            return (
                f"vLLM's log-probs of the probe show {arrived:.0%} of what the learner's moved "
                "since the last proved version, expected all: the new weights have not arrived"
            )
        return None


def _gap(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference; of what is unlikely to its size, as numbers are rounded."""
    gaps = [abs(x - y) / max(1.0, abs(y)) for x, y in zip(one, other, strict=True)]
    return nan if any(map(isnan, gaps)) else max(gaps)


def _differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [x - y for x, y in zip(one, other, strict=True)]


def _size(differences: Sequence[float]) -> float:
    """Root of the mean square."""
    return sqrt(statistics.fmean(x * x for x in differences))
