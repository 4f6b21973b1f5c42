"""How the weights come about by which an answer resembles complaints, from written answers.

Logistic regression by AdaGrad on single answers, seeded. `answers/` holds answers as they are, by
language and kind; `situations/` holds them by situation, too, and with alternatives in braces, of
which a few combinations are taken: "{too|far too} {long|short}". All were written for this, after
the rules and without them.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator, Sequence
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
from clawrl_gym.judge.speech import compared
from clawrl_gym.judge.user_rules import opening_of

ANSWERS = Path(__file__).parent / "answers"
SITUATIONS = Path(__file__).parent / "situations"
KINDS = ("complaint", "praise", "neutral", "future")
_MIXED = "mixed"
"""The situation of an answer that has no other."""
_COMBINATIONS = 8
"""Of one line's alternatives."""
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_SPACE_BEFORE_SIGN = re.compile(r"\s+(?=[,.!?])")
_FOLDS = 10
_EPOCHS = 12
_RATE = 0.2
_BIAS_RATE = 0.02
_DECAY = 1e-4


@dataclass(frozen=True)
class Answer:
    """What a person may say."""

    language: str
    kind: str
    """One of KINDS."""
    text: str
    situation: str = _MIXED


def answers() -> list[Answer]:
    """All of them, each once."""
    found: dict[tuple[str, str], Answer] = {}
    for path in sorted(ANSWERS.glob("*.yaml")):
        for kind, line in _lines(yaml.safe_load(path.read_text("utf-8"))):
            found.setdefault((path.stem, line), Answer(path.stem, kind, line))
    for path in sorted(SITUATIONS.glob("*.yaml")):
        for situation, kinds in yaml.safe_load(path.read_text("utf-8")).items():
            for kind, line in _lines(kinds):
                for text in combinations(line):
                    answer = Answer(path.stem, kind, text, situation)
                    found.setdefault((path.stem, text), answer)
    return list(found.values())


def combinations(line: str) -> list[str]:
    """A few of what the line's alternatives make; every alternative of a short list is in one."""
    parts = [part.split("|") for part in _ALTERNATIVES.split(line)]
    draw = random.Random(zlib.crc32(line.encode()))
    shuffled = [draw.sample(part, len(part)) for part in parts]
    texts: dict[str, None] = {}
    for at in range(3 * _COMBINATIONS):
        drawn = (part[at] if at < len(part) else draw.choice(part) for part in shuffled)
        text = _SPACE_BEFORE_SIGN.sub("", " ".join("".join(drawn).split()))
        if text and len(texts) < _COMBINATIONS:
            texts[text] = None
    return list(texts)


def fitted(training: Sequence[Answer]) -> Resemblance:
    """By stochastic gradients; the same for the same answers."""
    draw = np.random.default_rng(0)
    features_A = [_features(answer) for answer in training]
    complains_A = [float(answer.kind == "complaint") for answer in training]
    weights_F, squares_F, bias = np.zeros(SIZE), np.full(SIZE, 1e-6), 0.0
    for _ in range(_EPOCHS):
        for at in draw.permutation(len(training)):
            places, values = features_A[at]
            logit = weights_F[places] @ values + bias
            error = 1 / (1 + np.exp(-logit)) - complains_A[at]
            gradient = error * values + _DECAY * weights_F[places]
            squares_F[places] += gradient**2
            weights_F[places] -= _RATE * gradient / np.sqrt(squares_F[places])
            bias -= _BIAS_RATE * error
    return Resemblance(weights_F.astype(np.float16), float(bias))


def unseen_logits(everything: Sequence[Answer]) -> NDArray[np.float64]:
    """Of each answer by weights fitted without its situation, or its tenth of the mixed ones."""
    tenths = np.random.default_rng(1).permutation(len(everything)) % _FOLDS
    parts = [
        f"{_MIXED} {tenth}" if answer.situation == _MIXED else answer.situation
        for answer, tenth in zip(everything, tenths, strict=True)
    ]
    logits = np.zeros(len(everything))
    for part in sorted(set(parts)):
        reading = fitted([a for a, own in zip(everything, parts, strict=True) if own != part])
        for at, own in enumerate(parts):
            if own == part:
                logits[at] = reading.logit(_compared(everything[at]))
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


def _lines(kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    for kind, lines in kinds.items():
        yield from ((kind, line) for line in filter(None, map(str.strip, lines.splitlines())))


def _features(answer: Answer) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    features = features_of(_compared(answer))
    return np.array(list(features)), np.array(list(features.values()))


def _compared(answer: Answer) -> str:
    """What the judge compares of it."""
    return compared(opening_of(answer.text))
