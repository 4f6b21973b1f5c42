"""How the weights come about by which an answer resembles complaints, from the ones in `answers/`.

Logistic regression by AdaGrad on single answers, seeded. The answers were written for this, by
language and kind, after the rules and without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from clawrl_gym.judge.resemblance import (
    COMPLAINT,
    CONTRADICTS,
    SIZE,
    Resemblance,
    features_of,
)

ANSWERS = Path(__file__).parent / "answers"
KINDS = ("complaint", "praise", "neutral", "future")
_FOLDS = 10
_EPOCHS = 12
_RATE = 0.5
_BIAS_RATE = 0.02
_DECAY = 1e-4


@dataclass(frozen=True)
class Answer:
    """What a person may say."""

    language: str
    kind: str
    """One of KINDS."""
    text: str


def answers() -> list[Answer]:
    """All of them, each once."""
    found: dict[tuple[str, str], Answer] = {}
    for path in sorted(ANSWERS.glob("*.yaml")):
        for kind, lines in yaml.safe_load(path.read_text("utf-8")).items():
            for line in filter(None, map(str.strip, lines.splitlines())):
                found.setdefault((path.stem, line), Answer(path.stem, kind, line))
    return list(found.values())


def fitted(training: Sequence[Answer]) -> Resemblance:
    """By stochastic gradients; the same for the same answers."""
    draw = np.random.default_rng(0)
    features_A = [np.array(features_of(answer.text)) for answer in training]
    complains_A = [float(answer.kind == "complaint") for answer in training]
    weights_F, squares_F, bias = np.zeros(SIZE), np.full(SIZE, 1e-6), 0.0
    for _ in range(_EPOCHS):
        for at in draw.permutation(len(training)):
            features = features_A[at]
            scale = 1 / np.sqrt(len(features))
            logit = weights_F[features].sum() * scale + bias
            error = 1 / (1 + np.exp(-logit)) - complains_A[at]
            gradient = error * scale + _DECAY * weights_F[features]
            squares_F[features] += gradient**2
            weights_F[features] -= _RATE * gradient / np.sqrt(squares_F[features])
            bias -= _BIAS_RATE * error
    return Resemblance(weights_F.astype(np.float16), float(bias))


def unseen_logits(everything: Sequence[Answer]) -> NDArray[np.float64]:
    """Of each answer by weights that were fitted without its fold."""
    folds = np.random.default_rng(1).permutation(len(everything)) % _FOLDS
    logits = np.zeros(len(everything))
    for fold in range(_FOLDS):
        reading = fitted([a for a, own in zip(everything, folds, strict=True) if own != fold])
        for at in np.flatnonzero(folds == fold):
            logits[at] = reading.logit(everything[at].text)
    return logits


def report(everything: Sequence[Answer], logits: NDArray[np.float64]) -> None:
    """How often answers that were not seen resemble complaints, by language and kind."""
    print(f"{len(everything)} answers; not seen, above {COMPLAINT:g} / below -{CONTRADICTS:g}:")
    for code in sorted({answer.language for answer in everything}):
        shares = []
        for kind in KINDS:
            own = np.array([a.language == code and a.kind == kind for a in everything])
            above, below = (logits[own] > COMPLAINT).mean(), (logits[own] < -CONTRADICTS).mean()
            shares.append(f"{kind} {above:.0%} / {below:.0%} of {own.sum()}")
        print(code, ", ".join(shares))
