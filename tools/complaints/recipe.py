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

from clawrl_gym.judge.context_features import context_features
from clawrl_gym.judge.resemblance import (
    COMPLAINT,
    SIZE,
    Resemblance,
    compared,
    features_of,
)

ANSWERS = Path(__file__).parent / "answers"
SITUATIONS = Path(__file__).parent / "situations"
EXCHANGES = Path(__file__).parent / "exchanges"
HELD_BACK = ("computer", "translation", "shop", "files", "pet")
"""Situations of exchanges by which the recipe is measured."""
KINDS = ("complaint", "praise", "neutral", "future")
_MIXED = "mixed"
"""The situation of an answer that has no other."""
_COMBINATIONS = 8
"""Of one line's alternatives."""
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_SPACE_BEFORE_SIGN = re.compile(r"\s+(?=[,.!?])")
_EPOCHS = 7
_AVERAGED_EPOCHS = 4
"""The last ones, whose weights are averaged."""
_TRAININGS = 4
_RATE = 0.2
_BIAS_RATE = 0.02
_DECAY = 1e-4
_EXCHANGE_COUNTS = 4.0
"""An exchange's text counts for so many others."""
_PARTS = 3
_CONTEXT_DECAY = 5.0
_NEWTON_STEPS = 20
_OTHERS_ABOVE = 0.17
"""Share of the exchanges that are no complaints and yet resemble them."""
_ALONE_ABOVE = 0.14
"""The same of answers that stand alone."""
_Features = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True)
class Answer:
    """What a person may say."""

    language: str
    kind: str
    """One of KINDS."""
    text: str
    situation: str = _MIXED
    request: str = ""
    reply: str = ""


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
    return [*found.values(), *exchanges(EXCHANGES)]


def exchanges(folder: Path) -> list[Answer]:
    """Answers with what they answer."""
    return [
        Answer(path.stem, kind, line, situation, fields["request"], fields["reply"])
        for path in sorted(folder.glob("*.yaml"))
        for situation, fields in yaml.safe_load(path.read_text("utf-8")).items()
        for kind, line in _lines({kind: fields[kind] for kind in KINDS if kind in fields})
    ]


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
    """The same for the same answers. The bias of a text that stands alone, and what counts for the
    text's logit and for what is taken up, are fitted on logits of situations not seen before."""
    features_A = [numbered(answer) for answer in training]
    weights_F, bias = _text_weights(training, features_A)
    exchanges = [at for at, answer in enumerate(training) if answer.reply]
    if not exchanges:
        return Resemblance(weights_F, bias)
    logits_A = unseen_logits(training, features_A)
    alone_A = np.array([not each.reply and each.kind != "complaint" for each in training])
    if alone_A.any():
        shift = float(COMPLAINT - np.quantile(logits_A[alone_A], 1 - _ALONE_ABOVE))
        bias, logits_A = bias + shift, logits_A + shift
    context_K = _context_weights([training[at] for at in exchanges], logits_A[exchanges])
    return Resemblance(weights_F, bias, context_K)


def unseen_logits(
    training: Sequence[Answer], features_A: Sequence[_Features]
) -> NDArray[np.float64]:
    """Of each answer, by weights of the text that were made without its situation."""
    part_A = np.array([_part_of(answer) for answer in training])
    logits_A = np.zeros(len(training))
    for part in range(_PARTS):
        others = np.flatnonzero(part_A != part)
        weights_F, bias = _text_weights(
            [training[at] for at in others], [features_A[at] for at in others]
        )
        for at in np.flatnonzero(part_A == part):
            places, values = features_A[at]
            logits_A[at] = weights_F[places].astype("float64") @ values + bias
    return logits_A


def _part_of(answer: Answer) -> int:
    name = answer.text if answer.situation == _MIXED else answer.situation
    return zlib.crc32(name.encode()) % _PARTS


def _text_weights(
    training: Sequence[Answer], features_A: Sequence[_Features]
) -> tuple[NDArray[np.float16], float]:
    """The mean of several trainings: in which order answers come decides near the bounds."""
    trained = [_trained(training, features_A, seed) for seed in range(_TRAININGS)]
    mean_F = np.mean([weights_F for weights_F, _ in trained], axis=0)
    return mean_F.astype(np.float16), float(np.mean([bias for _, bias in trained]))


def _trained(
    training: Sequence[Answer], features_A: Sequence[_Features], seed: int
) -> tuple[NDArray[np.float64], float]:
    """By stochastic gradients."""
    draw = np.random.default_rng(seed)
    complains_A = [float(answer.kind == "complaint") for answer in training]
    counts_A = [_EXCHANGE_COUNTS if answer.reply else 1.0 for answer in training]
    weights_F, squares_F, bias = np.zeros(SIZE), np.full(SIZE, 1e-6), 0.0
    sums_F, biases = np.zeros(SIZE), 0.0
    for epoch in range(_EPOCHS):
        for at in draw.permutation(len(training)):
            places, values = features_A[at]
            logit = weights_F[places] @ values + bias
            error = counts_A[at] * (1 / (1 + np.exp(-logit)) - complains_A[at])
            gradient = error * values + _DECAY * weights_F[places]
            squares_F[places] += gradient**2
            weights_F[places] -= _RATE * gradient / np.sqrt(squares_F[places])
            bias -= _BIAS_RATE * error
        if epoch >= _EPOCHS - _AVERAGED_EPOCHS:
            sums_F, biases = sums_F + weights_F, biases + bias
    return sums_F / _AVERAGED_EPOCHS, float(biases / _AVERAGED_EPOCHS)


def _context_weights(
    exchanges: Sequence[Answer], logits_E: NDArray[np.float64]
) -> NDArray[np.float64]:
    """By Newton's method; the constant such that so many of the others are above COMPLAINT."""
    features_E = [context_features(each.text, each.request, each.reply) for each in exchanges]
    rows = [at for at, features in enumerate(features_E) if features is not None]
    values_EK = np.array([[1.0, logits_E[at], *(features_E[at] or ())] for at in rows])
    complains_E = np.array([float(exchanges[at].kind == "complaint") for at in rows])
    kept_K = np.r_[0.0, np.full(values_EK.shape[1] - 1, _CONTEXT_DECAY)]
    context_K = np.zeros(values_EK.shape[1])
    for _ in range(_NEWTON_STEPS):
        shares_E = 1 / (1 + np.exp(-values_EK @ context_K))
        slope_K = values_EK.T @ (shares_E - complains_E) + kept_K * context_K
        curve_KK = (values_EK.T * (shares_E * (1 - shares_E))) @ values_EK + np.diag(kept_K)
        context_K -= np.linalg.solve(curve_KK + 1e-9 * np.eye(len(kept_K)), slope_K)
    others_E = (values_EK @ context_K)[complains_E == 0]
    context_K[0] += COMPLAINT - np.quantile(others_E, 1 - _OTHERS_ABOVE)
    return context_K


def _lines(kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    for kind, lines in kinds.items():
        yield from ((kind, line) for line in filter(None, map(str.strip, lines.splitlines())))


def numbered(answer: Answer) -> _Features:
    """Places of its features, and their values."""
    features = features_of(compared(answer.text), answer.request, answer.reply)
    return np.array(list(features)), np.array(list(features.values()))
