"""Whether a serving run learns: the verdicts on its turns, over the weights that answered them.

Of each turn the verdict that counts is counted, once. Shares are of clear verdicts (+1 and -1):
a neutral one and an abstention say nothing about better or worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from markupsafe import Markup

from clawrl_gym.core.metrics import wilson
from clawrl_gym.core.types import Verdict, VerdictKind
from clawrl_gym.store import effective
from clawrl_gym.ui.svg import Column, Series, bar_chart, line_chart
from clawrl_gym.ui.text import number, share

FEWEST_CLEAR = 10
"""Clear verdicts from which the first ones are compared with the newest."""
_MOST_COMPARED = 50
_MOST_BUCKETS = 20
_BUCKET_CLEAR = 5
"""Clear verdicts that a point of the curve is made of, at least."""
_VALUES: tuple[Literal[-1, 0, 1] | None, ...] = (1, 0, -1, None)
_VALUE_NAMES = ("+1", "0", "-1", "abstained")
_COLOURS = ("positive", "soft", "negative", "abstained")
_GIVERS: dict[VerdictKind, str] = {
    "feedback": "people, by feedback",
    "rule": "the judge, by rules",
    "model": "the judge, a model",
}
_SIZE = (440, 220)


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """One turn of a conversation that has a verdict."""

    version: int
    """Version of the newest weights that answered."""
    kind: VerdictKind
    """Kind of the verdict that counts."""
    value: Literal[-1, 0, 1] | None
    overruled: bool
    """A person said otherwise than the judge."""

    @property
    def is_clear(self) -> bool:
        """Whether it says good or bad."""
        return bool(self.value)


@dataclass(frozen=True, slots=True)
class VerdictShare:
    """Number of clear verdicts, and of those that were +1."""

    good: int
    clear: int

    @classmethod
    def of(cls, turns: Iterable[JudgedTurn]) -> Self:
        values = [turn.value for turn in turns if turn.is_clear]
        return cls(values.count(1), len(values))

    @property
    def value(self) -> float:
        return self.good / self.clear

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, Wilson's."""
        return wilson(self.good, self.clear)


@dataclass(frozen=True, slots=True)
class VerdictBucket:
    """The judged turns that neighbouring weight versions answered."""

    first_version: int
    last_version: int
    turns: list[JudgedTurn]

    @property
    def middle(self) -> float:
        return (self.first_version + self.last_version) / 2

    @property
    def counts(self) -> tuple[int, ...]:
        """Counts of +1, 0, -1 and abstentions."""
        counted = Counter(turn.value for turn in self.turns)
        return tuple(counted[value] for value in _VALUES)


def judged_turn(version: int, verdicts: Sequence[Verdict]) -> JudgedTurn:
    """A turn that `version` answered, of its verdicts, oldest first; there is at least one."""
    verdict = effective(verdicts) or verdicts[-1]
    judged = [other.value for other in verdicts if other.kind != "feedback"]
    overruled = verdict.kind == "feedback" and bool(judged) and judged[-1] != verdict.value
    return JudgedTurn(version, verdict.kind, verdict.value, overruled)


def first_and_newest(turns: Sequence[JudgedTurn]) -> tuple[VerdictShare, VerdictShare] | None:
    """Shares of the first and the newest, equally many clear verdicts; None while too few."""
    clear = [turn for turn in turns if turn.is_clear]
    if len(clear) < FEWEST_CLEAR:
        return None
    compared = min(_MOST_COMPARED, len(clear) // 2)
    return VerdictShare.of(clear[:compared]), VerdictShare.of(clear[-compared:])


def differ(first: VerdictShare, newest: VerdictShare) -> bool:
    """Whether the intervals are apart."""
    return newest.interval[0] > first.interval[1] or newest.interval[1] < first.interval[0]


def comparison_words(first: VerdictShare, newest: VerdictShare) -> str:
    """A sentence that compares the two, and says whether chance may explain it."""
    if not differ(first, newest):
        return "So far the difference may be chance: the intervals overlap."
    how = "better" if newest.value > first.value else "worse"
    return f"The newest turns are judged {how} than the first, beyond chance."


def buckets_of(turns: Sequence[JudgedTurn]) -> list[VerdictBucket]:
    """Buckets by weight version; neighbours are merged until each holds enough clear verdicts."""
    by_version: dict[int, list[JudgedTurn]] = {}
    for turn in turns:
        by_version.setdefault(turn.version, []).append(turn)
    clear = sum(turn.is_clear for turn in turns)
    enough = max(_BUCKET_CLEAR, -(-clear // _MOST_BUCKETS))
    buckets: list[VerdictBucket] = []
    for version in sorted(by_version):
        own = by_version[version]
        if buckets and _clear_in(buckets[-1].turns) < enough:
            last = buckets.pop()
            buckets.append(VerdictBucket(last.first_version, version, [*last.turns, *own]))
        else:
            buckets.append(VerdictBucket(version, version, own))
    if len(buckets) > 1 and _clear_in(buckets[-1].turns) < enough:
        rest, last = buckets.pop(), buckets.pop()
        merged = [*last.turns, *rest.turns]
        buckets.append(VerdictBucket(last.first_version, rest.last_version, merged))
    return buckets


def _clear_in(turns: Sequence[JudgedTurn]) -> int:
    return sum(turn.is_clear for turn in turns)


@dataclass(frozen=True, slots=True)
class VerdictCharts:
    """A page's charts of verdicts."""

    shares: Markup
    """The share of +1 over updates, with 95 % intervals."""
    counts: Markup
    """Number of judged turns by verdict, over updates."""
    keys: list[tuple[str, str]]
    """(colour, name) of each value."""
    givers: list[list[str]]
    """A line for each who gave verdicts that count: name, turns, by value, share of +1."""
    overruled: int
    """Turns of which a person said otherwise than the judge."""


def verdict_charts(turns: Sequence[JudgedTurn]) -> VerdictCharts | None:
    """Charts of verdicts; None where nothing was judged."""
    if not turns:
        return None
    buckets = buckets_of(turns)
    return VerdictCharts(
        _share_chart(buckets),
        _count_chart(buckets),
        list(zip(_COLOURS, _VALUE_NAMES, strict=True)),
        _counts_by_giver(turns),
        sum(turn.overruled for turn in turns),
    )


def _share_chart(buckets: Sequence[VerdictBucket]) -> Markup:
    points, bars = [], []
    for bucket in buckets:
        shared = VerdictShare.of(bucket.turns)
        if shared.clear:
            points.append((bucket.middle, shared.value))
            bars.append((bucket.middle, *shared.interval))
    series = Series("judged good", "heldout", points, bars)
    return line_chart(
        [series], width=_SIZE[0], height=_SIZE[1], x_range=_versions(buckets), y_range=(0.0, 1.0),
        form=share, label="Share of +1 among the clear verdicts, over updates",
    )  # fmt: skip


def _count_chart(buckets: Sequence[VerdictBucket]) -> Markup:
    columns = [
        Column(
            bucket.first_version - 0.5, bucket.last_version + 0.5, _words(bucket),
            tuple(map(float, reversed(bucket.counts))),
        )
        for bucket in buckets
    ]  # fmt: skip
    return bar_chart(
        columns, tuple(reversed(_COLOURS)), width=_SIZE[0], height=_SIZE[1],
        x_range=_versions(buckets), label="Verdicts by value, over updates",
    )  # fmt: skip


def _words(bucket: VerdictBucket) -> list[str]:
    first, last = bucket.first_version, bucket.last_version
    title = f"update {first}" if first == last else f"updates {first} to {last}"
    named = zip(_VALUE_NAMES, bucket.counts, strict=True)
    return [title, *(f"{name}: {count}" for name, count in named if count)]


def _versions(buckets: Sequence[VerdictBucket]) -> tuple[float, float]:
    return buckets[0].first_version - 0.5, buckets[-1].last_version + 0.5


def _counts_by_giver(turns: Sequence[JudgedTurn]) -> list[list[str]]:
    lines = []
    for kind, name in _GIVERS.items():
        own = [turn for turn in turns if turn.kind == kind]
        if own:
            lines.append(_counts(name, own))
    return lines if len(lines) < 2 else [*lines, _counts("all", turns)]


def _counts(name: str, turns: Sequence[JudgedTurn]) -> list[str]:
    counted = Counter(turn.value for turn in turns)
    good = VerdictShare.of(turns)
    percent = share(good.value) if good.clear else "-"
    return [name, number(len(turns)), *(number(counted[value]) for value in _VALUES), percent]
