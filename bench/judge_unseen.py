"""How the rule judge reads answers that neither its rules nor its weights were made from.

    PYTHONPATH=. python bench/judge_unseen.py

The answers of `tools/complaints/answers/` were written after the rules and without them. Each is
read by the rules alone, and by rules and weights that were fitted without its tenth of the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from clawrl_gym.judge.resemblance import SIZE, Resemblance
from clawrl_gym.judge.speech import Speech
from tests.fakes_judge import shipped_rules
from tools.complaints.recipe import KINDS, Answer, answers, fitted

_FOLDS = 10


def main() -> None:
    everything = answers()
    config = shipped_rules()
    unlike_anything = Resemblance(np.zeros(SIZE), 0.0)
    alone = Speech(config, likeness=lambda: unlike_anything)
    folds = np.random.default_rng(1).permutation(len(everything)) % _FOLDS
    read: list[tuple[Answer, int | None, int | None]] = []
    for fold in range(_FOLDS):
        reading = fitted([a for a, own in zip(everything, folds, strict=True) if own != fold])
        both = Speech(config, likeness=lambda reading=reading: reading)  # type: ignore[misc]
        unseen = [a for a, own in zip(everything, folds, strict=True) if own == fold]
        read += [(answer, value(alone, answer), value(both, answer)) for answer in unseen]
    print(f"{'answers':<16}{'n':>6}   rules alone: -1, 0, +1, abstained   with weights: the same")
    for code in [*sorted({answer.language for answer in everything}), "all"]:
        for kind in KINDS:
            own = [
                each for each in read if each[0].kind == kind and code in (each[0].language, "all")
            ]
            shares = "   ".join(_shares([each[at] for each in own]) for at in (1, 2))  # type: ignore[misc]
            print(f"{code} {kind:<13}{len(own):>6}   {shares}")


def value(reader: Speech, answer: Answer) -> int | None:
    """After a reply that asked nothing."""
    found: int | None = reader.find(answer.text, "12345", "Here you are.").value
    return found


def _shares(values: Sequence[int | None]) -> str:
    counts = Counter(values)
    shares = (100 * counts[each] / len(values) for each in (-1, 0, 1, None))
    return " ".join(f"{share:5.1f} %" for share in shares)


if __name__ == "__main__":
    main()
