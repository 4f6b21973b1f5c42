"""How the rule judge reads answers that neither its rules nor its weights were made from.

    PYTHONPATH=. python bench/judge_unseen.py

`bench/unseen_answers/` was written before the answers of `tools/complaints/situations/` and without
a look at any list. What one of those says in nearly the same letters is left out, so it is no test.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from clawrl_gym.judge.resemblance import SIZE, Resemblance, spelt
from clawrl_gym.judge.speech import Speech
from tests.fakes_judge import shipped_rules
from tools.complaints.recipe import KINDS, Answer, answers

_FOLDER = Path(__file__).parent / "unseen_answers"
_NEARLY = 0.85
"""Similarity of two texts in nearly the same letters."""


def main() -> None:
    listed = unseen()
    known = _known_texts()
    fresh = [answer for answer in listed if not _is_known(answer, known)]
    print(f"{len(fresh)} answers; {len(listed) - len(fresh)} more are nearly known and left out")
    alone = Speech(shipped_rules(), likeness=lambda: Resemblance(np.zeros(SIZE), 0.0))
    both = Speech(shipped_rules())
    read = [(answer, value(alone, answer), value(both, answer)) for answer in fresh]
    print(f"{'answers':<16}{'n':>6}   rules alone: -1, 0, +1, abstained   with weights: the same")
    for code in [*sorted({answer.language for answer in fresh}), "all"]:
        for kind in KINDS:
            own = [
                each for each in read if each[0].kind == kind and code in (each[0].language, "all")
            ]
            shares = "   ".join(_shares([each[at] for each in own]) for at in (1, 2))  # type: ignore[misc]
            print(f"{code} {kind:<13}{len(own):>6}   {shares}")


def unseen() -> list[Answer]:
    """The written answers."""
    return [
        Answer(path.stem, kind, line)
        for path in sorted(_FOLDER.glob("*.yaml"))
        for kind, lines in yaml.safe_load(path.read_text("utf-8")).items()
        for line in lines.splitlines()
    ]


def value(reader: Speech, answer: Answer) -> int | None:
    """After a reply that asked nothing."""
    found: int | None = reader.find(answer.text, "12345", "Here you are.").value
    return found


def _known_texts() -> dict[str, set[str]]:
    texts: dict[str, set[str]] = {}
    for answer in answers():
        texts.setdefault(answer.language, set()).add(_letters(answer.text))
    return texts


def _is_known(answer: Answer, known: dict[str, set[str]]) -> bool:
    text = _letters(answer.text)
    matcher = difflib.SequenceMatcher(b=text)
    for other in known[answer.language]:
        matcher.set_seq1(other)
        ratios = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
        if all(ratio() >= _NEARLY for ratio in ratios):
            return True
    return False


def _letters(text: str) -> str:
    return "".join(sign for sign in spelt(text) if sign.isalnum())


def _shares(values: Sequence[int | None]) -> str:
    counts = Counter(values)
    shares = (100 * counts[each] / len(values) for each in (-1, 0, 1, None))
    return " ".join(f"{share:5.1f} %" for share in shares)


if __name__ == "__main__":
    main()
