"""Recipe of the weights that tell how an answer resembles complaints or praise: from written lists.

Softmax regression by AdaGrad on single answers, seeded. `answers/` holds answers as they are, by
language and kind; `situations/` holds them by situation, too, and with alternatives in braces, of
which a few combinations are taken: "{too|far too} {long|short}"; `exchanges/` holds them with the
request and the reply before them. Most of what people say is neither complaint nor praise:
`followups/` holds answers to a question of the reply, acknowledgements and requests with bad words
about others, which are put after drawn replies, as are the requests of other exchanges. All were
written after the rules and without them. The lists of `TALK` were each written by somebody else,
who saw neither the rules nor another list: a bound holds for unseen talk if it holds for each of
them by weights made without it.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.judge.signals.language import Language, declared
from clawrl_gym.judge.signals.resemblance import SIZE, Odds, Resemblance, asks, features_of
from clawrl_gym.judge.signals.user_rules import Hit, opening_of

ANSWERS = Path(__file__).parent / "answers"
SITUATIONS = Path(__file__).parent / "situations"
EXCHANGES = Path(__file__).parent / "exchanges"
FOLLOWUPS = Path(__file__).parent / "followups"
_ROOT = Path(__file__).parent.parent.parent
TALK = (
    _ROOT / "tests" / "fixtures" / "judge_blind" / "dev_talk.jsonl",
    *sorted((Path(__file__).parent / "talk").glob("*.jsonl")),
)
_RULES = _ROOT / "conf" / "judge" / "rule.yaml"
KINDS = ("complaint", "praise", "neutral", "future")
_MIXED = "mixed"
"""The situation of an answer that has no other."""
_COMBINATIONS = 8
"""Most combinations of one line's alternatives."""
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_SPACE_BEFORE_SIGN = re.compile(r"\s+(?=[,.!?])")
TAKEN_BACK = _ROOT / "tests" / "fixtures" / "replies" / "taken_back.yaml"
_BEFORE = {
    "undeserved": (("", ""), ("Sort my photos by year.", "I have sorted them into 12 folders.")),
    "deserved": (("", ""),),
}
"""Requests and replies before praise."""
_REQUESTS = 2
"""Requests of other exchanges after each reply."""
_WITH_MORE = 200
"""Praise with a request behind it, and complaints after a question, in each language."""
_TOPICS = 40
"""Requests of other exchanges that each change of the topic begins."""
_DRAWN = (("answer", 0, 4), ("statement", 3, 1), ("other", 3, 1))
"""Follow-ups, and after how many replies each is put: as they are, and with a question behind."""
_EPOCHS = 3
_AVERAGED_EPOCHS = 2
"""The last ones, whose weights are averaged."""
_TRAININGS = 2
_RATE = 0.2
_BIAS_RATE = 0.002
_DECAY = 1e-4
_IN_CONTEXT_COUNTS = 3.0
"""Weight of an answer with what it answers, in other answers."""
_TALK_COUNTS = 10.0
_TALK = "talk"
_CHUNK = 200
_CLASSES = {"complaint": 1, "praise": 2}
"""Class by kind; anything else is 0."""
_Features = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True)
class Answer:
    """A possible answer of a person."""

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


def followups() -> list[Answer]:
    """Answers that are neither complaint nor praise, after drawn requests and replies; some praise
    that is followed by a request, and complaints after a question."""
    replies: dict[str, list[Answer]] = {}
    for answer in exchanges(EXCHANGES):
        replies.setdefault(answer.language, []).append(answer)
    return [
        each
        for path in sorted(FOLLOWUPS.glob("*.yaml"))
        for each in _followups(path.stem, plain_values(path.read_text("utf-8")), replies[path.stem])
    ]


def _followups(code: str, lists: dict[str, str], replies: Sequence[Answer]) -> Iterator[Answer]:
    draw = random.Random(zlib.crc32(code.encode()))
    lines = {name: text.splitlines() for name, text in lists.items()}

    def after(text: str, asked: bool) -> Answer:
        before = draw.choice(replies)
        question = f" {draw.choice(lines['questions'])}" if asked else ""
        return Answer(code, "neutral", text, _MIXED, before.request, before.reply + question)

    for name, told, asked in _DRAWN:
        for text in lines[name]:
            yield from (after(text, False) for _ in range(told))
            yield from (after(text, True) for _ in range(asked))
    praise, blame = (
        [each for each in replies if each.kind == kind] for kind in ("praise", "complaint")
    )
    for _ in range(_WITH_MORE):
        content, asked_next = draw.choice(praise), draw.choice(replies).request
        yield replace(
            content, text=f"{content.text.rstrip(' .!,')}{draw.choice('.!,')} {asked_next}"
        )
        doubted = draw.choice(blame)
        question = draw.choice(lines["questions"])
        yield replace(doubted, reply=f"{doubted.reply} {question}")
    for topic in lines["topic"]:
        yield from (after(f"{topic} {draw.choice(replies).request}", False) for _ in range(_TOPICS))
    for _ in range(_REQUESTS * len({each.reply for each in replies})):
        yield after(draw.choice(replies).request, False)


def taken_back() -> list[Answer]:
    """Praise that is none: irony, and thanks that ask for amends; and praise that continues."""
    return [
        Answer(code, "complaint" if kind == "undeserved" else "praise", text, kind, *before)
        for code, lists in plain_values(TAKEN_BACK.read_text("utf-8")).items()
        for kind, lines in lists.items()
        for text in filter(None, lines.splitlines())
        for before in _BEFORE[kind]
    ]


def talk(path: Path) -> list[Answer]:
    """A list of writers who saw neither rules nor these lists."""
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return [
        Answer(row["lang"], row["label"], row["next"], _TALK, row["request"], row["reply"])
        for row in rows
    ]


def fitted(training: Sequence[Answer]) -> Resemblance:
    """The same for the same answers."""
    return _fitted(training, numbered(training))


def _fitted(training: Sequence[Answer], features_A: Sequence[_Features]) -> Resemblance:
    """The mean of several trainings: in which order answers come decides near the bounds."""
    trained = [_trained(training, features_A, seed) for seed in range(_TRAININGS)]
    weights_FC = np.mean([weights_FC for weights_FC, _ in trained], axis=0)
    bias_C = np.mean([bias_C for _, bias_C in trained], axis=0)
    weights_FK = (weights_FC[:, 1:] - weights_FC[:, :1]).astype(np.float16)
    return Resemblance(weights_FK, bias_C[1:] - bias_C[0])


def _trained(
    training: Sequence[Answer], features_A: Sequence[_Features], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Train by stochastic gradients."""
    draw = np.random.default_rng(seed)
    class_A = [_CLASSES.get(answer.kind, 0) for answer in training]
    counts_A = [_counts(answer) for answer in training]
    weights_FC, squares_FC = np.zeros((SIZE, 3)), np.full((SIZE, 3), 1e-6)
    bias_C, sums_FC, biases_C = np.zeros(3), np.zeros((SIZE, 3)), np.zeros(3)
    for epoch in range(_EPOCHS):
        for at in draw.permutation(len(training)):
            places, values = features_A[at]
            rows_FC = weights_FC[places]
            logits_C = values @ rows_FC + bias_C
            error_C = np.exp(logits_C - logits_C.max())
            error_C /= error_C.sum()
            error_C[class_A[at]] -= 1
            error_C *= counts_A[at]
            gradient_FC = values[:, None] * error_C + _DECAY * rows_FC
            squared_FC = squares_FC[places] + gradient_FC**2
            squares_FC[places] = squared_FC
            weights_FC[places] = rows_FC - _RATE * gradient_FC / np.sqrt(squared_FC)
            bias_C -= _BIAS_RATE * error_C
        if epoch >= _EPOCHS - _AVERAGED_EPOCHS:
            sums_FC, biases_C = sums_FC + weights_FC, biases_C + bias_C
    return sums_FC / _AVERAGED_EPOCHS, biases_C / _AVERAGED_EPOCHS


def _counts(answer: Answer) -> float:
    if answer.situation == _TALK:
        return _TALK_COUNTS
    return _IN_CONTEXT_COUNTS if answer.reply else 1.0


def unseen_odds(training: Sequence[Answer], lists: Sequence[Sequence[Answer]]) -> list[list[Odds]]:
    """Log-odds of each list's answers, by weights that were made of the training and the other
    lists."""
    features_A = numbered(training)
    features_L = [numbered(listed) for listed in lists]
    odds = []
    for left_out, listed in enumerate(lists):
        others = [at for at in range(len(lists)) if at != left_out]
        weights = _fitted(
            [*training, *(each for at in others for each in lists[at])],
            [*features_A, *(each for at in others for each in features_L[at])],
        )
        odds.append([weights.odds(e.text, e.request, e.reply, hit_of(e)) for e in listed])
    return odds


def _lines(kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    for kind, lines in kinds.items():
        yield from ((kind, line) for line in filter(None, map(str.strip, lines.splitlines())))


def numbered(listed: Sequence[Answer]) -> list[_Features]:
    """Places of each answer's features, and their values."""
    with Pool() as pool:
        return pool.map(_numbered, listed, chunksize=_CHUNK)


def _numbered(answer: Answer) -> _Features:
    features = features_of(answer.text, answer.request, answer.reply, hit_of(answer))
    return np.array(list(features)), np.array(list(features.values()))


def hit_of(answer: Answer) -> Hit | None:
    """The rule of its language that holds for an answer."""
    return _languages()[answer.language].rules.find(opening_of(answer.text), asks(answer.reply))


@cache
def _languages() -> dict[str, Language]:
    return declared(JudgeConfig.model_validate(plain_values(_RULES.read_text("utf-8"))))
