"""What the four loops did when, as read from timeline.jsonl, and how busy each was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from clawrl_gym.core.metrics import LOOPS

_IDLE_NAMES = frozenset({"wait", "idle"})
_SWAP_NAMES = frozenset({"swap", "publish", "reload"})


@dataclass(frozen=True, slots=True)
class Span:
    """One line of timeline.jsonl; seconds since the first span of the run."""

    loop: str
    name: str
    start_s: float
    end_s: float
    error: str | None = None
    tokens: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second; 0 where the span counts none."""
        return self.tokens / max(1e-3, self.end_s - self.start_s)

    @property
    def is_idle(self) -> bool:
        """Waiting, said by the loop itself."""
        return self.name in _IDLE_NAMES

    @property
    def is_swap(self) -> bool:
        """A weight swap of the engine."""
        return self.loop == "serve" and self.name in _SWAP_NAMES


def spans_of(rows: Sequence[dict[str, Any]]) -> list[Span]:
    """Spans of a timeline file, times counted from the first; lines that are none are left out."""
    spans = [span for row in rows if (span := _span_of(row)) is not None]
    zero = min((span.start_s for span in spans), default=0.0)
    return [
        replace(span, start_s=span.start_s - zero, end_s=span.end_s - zero)
        for span in sorted(spans, key=lambda span: span.start_s)
    ]


def _span_of(row: dict[str, Any]) -> Span | None:
    start_s, end_s = row.get("start_s"), row.get("end_s")
    if not isinstance(start_s, int | float) or not isinstance(end_s, int | float):
        return None
    if end_s < start_s:
        return None
    tokens = row.get("tokens", 0.0)
    return Span(
        str(row.get("loop")), str(row.get("name")), start_s, end_s,
        error=str(row["error"]) if row.get("error") else None,
        tokens=float(tokens) if isinstance(tokens, int | float) else 0.0,
    )  # fmt: skip


def busy_share(spans: Sequence[Span], start_s: float, end_s: float) -> float:
    """Share of start..end in which at least one span that is not idle runs."""
    covered, reached = 0.0, start_s
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.is_idle:
            continue
        low, high = max(span.start_s, reached), min(span.end_s, end_s)
        covered += max(0.0, high - low)
        reached = max(reached, high)
    return covered / (end_s - start_s) if end_s > start_s else 0.0


def training_window(spans: Sequence[Span]) -> tuple[float, float]:
    """From the first to the last span of the train loop; the whole when there is none."""
    chosen = [span for span in spans if span.loop == "train"] or list(spans)
    if not chosen:
        return 0.0, 0.0
    return min(span.start_s for span in chosen), max(span.end_s for span in chosen)


def busy_of_loops(spans: Sequence[Span]) -> dict[str, float]:
    """Busy share of each loop that has spans, over the training window."""
    window = training_window(spans)
    lanes = {loop: [span for span in spans if span.loop == loop] for loop in LOOPS}
    return {loop: busy_share(lane, *window) for loop, lane in lanes.items() if lane}
