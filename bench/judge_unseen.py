"""Verdicts of the rule judge on answers that neither its rules nor its weights were made from.

    PYTHONPATH=. python bench/judge_unseen.py               # answers by themselves
    PYTHONPATH=. python bench/judge_unseen.py --exchanges   # with what they answer, all lists
    PYTHONPATH=. python bench/judge_unseen.py --exchanges fresh last

`bench/unseen_answers/` was written before the answers of `tools/complaints/situations/` and without
a look at any list; `bench/unseen_exchanges/` before anything was made that reads a request and a
reply; `bench/unseen_later/` before the last third of the recipe's exchanges; `bench/unseen_fresh/`
without a look at the recipe, five situations that all languages share, and so was
`bench/unseen_last/`, six situations, before the last three fifths of the recipe's exchanges, and
`bench/unseen_blind/`, seven situations, before the last fifth of them. What a list of the recipe
says in nearly the same letters is left out, so it is no test.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml

from clawrl_gym.judge.signals.speech import Speech
from clawrl_gym.judge.signals.spelling import spelt
from tests.support.fakes_judge import RulesAlone, shipped_rules
from tools.complaints.recipe import KINDS, Answer, answers, exchanges

_HERE = Path(__file__).parent
_LISTS = ("exchanges", "later", "fresh", "last", "blind")
"""Lists of answers with what they answer, in the order in which they were written."""
_NEARLY = 0.85
"""Similarity of two texts in nearly the same letters."""
_NORMAL = 1.96
"""Standard deviations that hold 95 of 100."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--exchanges",
        nargs="*",
        choices=_LISTS,
        metavar="LIST",
        help=f"with what they answer: {', '.join(_LISTS)}; all where none is named",
    )
    args = parser.parse_args()
    made_from = answers()
    listed = unseen()
    if args.exchanges is not None:
        names = args.exchanges or _LISTS
        listed = [each for name in names for each in exchanges(_HERE / f"unseen_{name}")]
    known = _known_texts(made_from)
    fresh = [answer for answer in listed if not _is_known(answer, known)]
    print(f"{len(fresh)} answers; {len(listed) - len(fresh)} more are nearly known and left out")
    alone, both = Speech(shipped_rules(), likeness=RulesAlone), Speech(shipped_rules())
    read = [(answer, value(alone, answer), value(both, answer)) for answer in fresh]
    print("of 100: -1 (with its interval of 95 %), 0, +1; by rules alone, and with weights")
    for code in [*sorted({answer.language for answer in fresh}), "all"]:
        for name, kinds in (*((kind, (kind,)) for kind in KINDS), ("no complaint", KINDS[1:])):
            own = [
                each for each in read if each[0].kind in kinds and code in (each[0].language, "all")
            ]
            if own:
                shares = "   ".join(_shares([each[at] for each in own]) for at in (1, 2))  # type: ignore[misc]
                print(f"{code} {name:<13}{len(own):>6}   {shares}")


def unseen() -> list[Answer]:
    """The answers that were written by themselves."""
    return [
        Answer(path.stem, kind, line)
        for path in sorted((_HERE / "unseen_answers").glob("*.yaml"))
        for kind, lines in yaml.safe_load(path.read_text("utf-8")).items()
        for line in lines.splitlines()
    ]


def value(reader: Speech, answer: Answer) -> int | None:
    """Verdict on an answer after what it answers, or else after a reply that asked nothing."""
    request, reply = answer.request or "12345", answer.reply or "Here you are."
    found: int | None = reader.find(answer.text, request, reply).value
    return found


def _known_texts(made_from: Sequence[Answer]) -> dict[str, set[str]]:
    texts: dict[str, set[str]] = {}
    for answer in made_from:
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
    counts, number = Counter(values), len(values)
    low, high = _interval(counts[-1], number)
    shares = (100 * counts[each] / number for each in (-1, 0, 1))
    worse, neutral, better = (f"{share:5.1f}" for share in shares)
    return f"{worse} ({low:3.0f} to {high:3.0f}) {neutral} {better}"


def _interval(count: int, number: int) -> tuple[float, float]:
    """Wilson's, in percent."""
    share, part = count / number, _NORMAL**2 / number
    half = _NORMAL * math.sqrt(share * (1 - share) / number + part / (4 * number))
    return tuple(100 * (share + part / 2 + side * half) / (1 + part) for side in (-1, 1))  # type: ignore[return-value]


if __name__ == "__main__":
    main()
