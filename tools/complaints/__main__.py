"""Makes the weights by which an answer resembles complaints or praise.

    python -m tools.complaints
    python -m tools.complaints --cross-validate   # what each bound costs on unseen talk

What they are worth: `bench/judge_precision.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from clawrl_gym.judge.signals.resemblance import WEIGHTS, Odds, asks
from tools.complaints.recipe import (
    TALK,
    Answer,
    answers,
    fitted,
    followups,
    hit_of,
    taken_back,
    talk,
    unseen_odds,
)

_BOUNDS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cross-validate", action="store_true", help="weigh bounds, make nothing")
    training, lists = [*answers(), *followups(), *taken_back()], list(map(talk, TALK))
    if parser.parse_args().cross_validate:
        for path, listed, odds in zip(TALK, lists, unseen_odds(training, lists), strict=True):
            print(f"{path.stem}, by weights made without it: complaint/praise above each bound")
            _print_bounds(listed, odds)
        return
    weights = fitted([*training, *(each for listed in lists for each in listed)])
    np.savez_compressed(WEIGHTS, weights_FK=weights.weights_FK, bias_K=weights.bias_K)
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size / 1024:.0f} KB")


def _print_bounds(tested: Sequence[Answer], odds: Sequence[Odds]) -> None:
    """Print counts above each bound, by the rules' verdict and whether the reply asked a thing."""
    rows = [
        (each.kind, _said(each), asks(each.reply), own)
        for each, own in zip(tested, odds, strict=True)
    ]
    for said in ("-1", "+1", "none"):
        for asked in (False, True):
            for kind in sorted({row[0] for row in rows}):
                own = [odds for *of, odds in rows if of == [kind, said, asked]]
                counts = "  ".join(
                    f"{sum(each.complaint > bound for each in own):>3}"
                    f"/{sum(each.praise > bound for each in own):<3}"
                    for bound in _BOUNDS
                )
                print(f"rule {said:<5} asked {asked!s:<6} {kind:<10}{len(own):>4}  {counts}")


def _said(answer: Answer) -> str:
    hit = hit_of(answer)
    return "none" if hit is None or hit.value == 0 else f"{hit.value:+}"


if __name__ == "__main__":
    main()
