"""Reads exchange files and compares what a trainer computes with them; needs numpy alone.

A file holds a batch, the settings of a loss, and what follows from both: advantages, the tokens
that are trained on, ratios, the loss and its gradient. The policy is a table of logits with a row
for the token before: log p(b | a) = log_softmax(table[a])[b], an embedding with as many outputs as
tokens, so any trainer can hold it as a model.

    from tools.conformance.exchange import Result, compare, load_cases

    for case in load_cases():
        result = Result(advantages=..., loss=...)  # what your trainer gives
        print(case.name, compare(case, result) or "passes")

The folder can be copied: nothing here imports what lies outside of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = "rl-exchange/1"
CASES = Path(__file__).parent / "cases"
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Episode:
    """The unit of a reward; it has one sequence, or more where its turns do not extend."""

    group: int
    reward: float | None
    """None: the environment failed, which says nothing about the policy."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Ids as they were sampled and observed; streams have one entry for each of them."""

    episode: int
    ids: list[int]
    sampled: list[bool]
    """True where the policy sampled the id; other ids are context."""
    behaviour_logprobs: list[float | None]
    """Under the distribution that was really sampled from; None where nothing was sampled."""
    versions: list[int]
    """Weights that sampled each id; -1 where nothing was sampled."""
    sampling: dict[str, float]
    """Filters before sampling: `top_k`, `top_p` or `min_p`; empty: the whole vocabulary."""
    allowed: list[list[int] | None] | None
    """Ids that the filters left at each place, where the loss is computed among these alone."""


@dataclass(frozen=True, slots=True)
class Case:
    """An exchange file."""

    name: str
    about: str
    sources: list[str]
    """Papers that the formulas are from."""
    settings: dict[str, Any]
    """The loss; docs/conformance.md says what each key means."""
    weights: dict[str, Table]
    """`current` is differentiated; `proximal`, `reference` and `behaviour` where the case has them,
    `behaviour/N` for each version."""
    episodes: list[Episode]
    sequences: list[Sequence]
    turns: list[dict[str, Any]]
    """Turns of cases about merging: requests and replies in ids, in order."""
    vocabulary: list[str]
    """Text of each id in cases about tokens; text is encoded by the longest match."""
    expected: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """Results of a trainer; None: not asked, or not known. Shapes are those of `expected`."""

    advantages: list[float | None] | None = None
    """Advantage by episode; None for one that is left out."""
    trained: list[list[bool]] | None = None
    """Whether the id is in the loss's mean, by sequence and place."""
    behaviour_logprobs: list[list[float | None]] | None = None
    """Log-probs that the engine records of its own samples."""
    ratios: list[list[float | None]] | None = None
    """Current over proximal policy, before clipping; None where an id is not trained on."""
    importance: list[list[float | None]] | None = None
    """Weight for samples of another policy, truncated; 0 where the id is masked for it."""
    loss: float | None = None
    logprob_gradient: list[list[float | None]] | None = None
    """Gradient of the loss, by the log-prob of each id that is trained on."""
    gradient_norm: float | None = None
    """Norm of the loss's gradient, by the current table."""


def load_cases(folder: Path = CASES) -> list[Case]:
    """All cases, by name."""
    return [load_case(path) for path in sorted(folder.glob("*.json"))]


def load_case(path: Path | str) -> Case:
    """A file, or one of ours by its name. Raises ValueError for another format."""
    path = path if isinstance(path, Path) else CASES / f"{path}.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    if values.get("format") != FORMAT:
        raise ValueError(f"{path} has the format {values.get('format')!r}, expected {FORMAT!r}")
    return Case(
        name=values["name"],
        about=values["about"],
        sources=values["sources"],
        settings=values["settings"],
        weights={name: np.asarray(rows, float) for name, rows in values["weights"].items()},
        episodes=[Episode(**episode) for episode in values["episodes"]],
        sequences=[_sequence(sequence) for sequence in values["sequences"]],
        turns=values.get("turns", []),
        vocabulary=values.get("vocabulary", []),
        expected=values["expected"],
    )


def _sequence(values: dict[str, Any]) -> Sequence:
    return Sequence(
        episode=values["episode"],
        ids=values["ids"],
        sampled=[bool(one) for one in values["sampled"]],
        behaviour_logprobs=values["behaviour_logprobs"],
        versions=values["versions"],
        sampling=values.get("sampling", {}),
        allowed=values.get("allowed"),
    )


def logprobs(
    table: Table, ids: list[int], allowed: list[list[int] | None] | None = None
) -> list[float]:
    """Log-prob of each id after the one before it; of the first one 0."""
    values = [0.0]
    for at in range(1, len(ids)):
        row = table[ids[at - 1]]
        among = None if allowed is None else allowed[at]
        logits = row if among is None else row[among]
        top = float(logits.max())
        values.append(float(row[ids[at]]) - top - float(np.log(np.exp(logits - top).sum())))
    return values


def compare(case: Case, result: Result, rtol: float = 1e-5, atol: float = 1e-7) -> list[str]:
    """Differences of a result from the file, a line for each field; empty: it passes."""
    lines = []
    for field in fields(result):
        own = getattr(result, field.name)
        if own is None or field.name not in case.expected:
            continue
        line = _difference(own, case.expected[field.name], rtol, atol)
        if line is not None:
            lines.append(f"{field.name}: {line}")
    return lines


def _difference(own: Any, expected: Any, rtol: float, atol: float) -> str | None:
    """The first entry that differs."""
    if not isinstance(expected, list):
        return _of_numbers(own, expected, rtol, atol)
    if len(own) != len(expected):
        return f"got {len(own)} entries, expected {len(expected)}"
    for at, (one, other) in enumerate(zip(own, expected, strict=True)):
        line = _difference(one, other, rtol, atol)
        if line is not None:
            return f"[{at}] {line}"
    return None


def _of_numbers(own: Any, expected: Any, rtol: float, atol: float) -> str | None:
    if own is None or expected is None:
        return None if own is None and expected is None else f"got {own}, expected {expected}"
    if abs(own - expected) <= atol + rtol * abs(expected):
        return None
    return f"got {own:.9g}, expected {expected:.9g}"
