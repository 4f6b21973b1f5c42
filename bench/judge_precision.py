"""Precision of the rule judge on lists of writers who have not seen its rules.

    PYTHONPATH=. python -m bench.judge_precision           # the lists that nothing was made from
    PYTHONPATH=. python -m bench.judge_precision --dev     # those that the weights were made from
    PYTHONPATH=. python -m bench.judge_precision --wrong   # and each item that is read otherwise

`tests/fixtures/judge_blind/`: talk in eight languages (complaints, praise, short answers and
idioms, neutral follow-ups), and results of tools that failed or did not.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.support.blind_lists import Read, read_talk, read_tools

_MEANT = {"complaint": -1, "praise": 1, "failed": -1, "succeeded": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dev", action="store_true", help="the lists of development")
    parser.add_argument("--wrong", action="store_true", help="also what is read otherwise")
    args = parser.parse_args()
    part = "dev" if args.dev else "test"
    for name, listed in (("talk", read_talk(part)), ("tools", read_tools(part))):
        _print_shares(name, listed)
        _print_precision(listed)
        if args.wrong:
            _print_wrong(listed)


def _print_shares(name: str, listed: Sequence[Read]) -> None:
    print(f"{name + ', of 100:':<28}{'number':>7}{'-1':>7}{'0':>7}{'+1':>7}{'none':>7}")
    for label in sorted({each.label for each in listed}):
        for group in (*sorted({each.group for each in listed if each.label == label}), "all"):
            own = [each for each in listed if each.label == label and _is_in(each, group)]
            counts = Counter(each.value for each in own)
            shares = "".join(f"{100 * counts[at] / len(own):7.1f}" for at in (-1, 0, 1, None))
            print(f"  {label:<10} {group:<14} {len(own):>7}{shares}")


def _print_precision(listed: Sequence[Read]) -> None:
    for label, value in _MEANT.items():
        if label in {each.label for each in listed}:
            for group in (*sorted({each.group for each in listed}), "all"):
                own = [each for each in listed if _is_in(each, group)]
                said = [each for each in own if each.value == value]
                meant = [each for each in own if each.label == label]
                hits = sum(each.label == label for each in said)
                print(
                    f"  {value:+} {group:<14} precision {_share(hits, said)}"
                    f"   recall of {label} {_share(hits, meant)}"
                )


def _is_in(each: Read, group: str) -> bool:
    return group in (each.group, "all")


def _share(hits: int, of: Sequence[Read]) -> str:
    return f"{100 * hits / len(of):5.1f} % of {len(of)}" if of else "none"


def _print_wrong(listed: Iterable[Read]) -> None:
    for each in listed:
        if each.value != _MEANT.get(each.label) and (each.label in _MEANT or each.value):
            print(
                f"  {each.value!s:>5}  {each.label} {each.group} {each.rule}: {each.text[:200]!r}"
            )


if __name__ == "__main__":
    main()
