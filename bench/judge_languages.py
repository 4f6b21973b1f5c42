"""Verdicts of the rule judge on people's answers: lists in each declared language and others.

    python bench/judge_languages.py            # shares by language and list
    python bench/judge_languages.py --wrong    # and each answer that is not read as it was meant

The lists are in tests/fixtures/replies/; tests/support/answers.py says how they were made.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from clawrl_gym.judge.interface import Finding
from tests.support.answers import (
    HALVES,
    KINDS,
    LANGUAGES,
    UNDECLARED,
    answers,
    finding_of,
    is_as_meant,
    speech,
)
from tools.complaints.recipe import Answer

Read = list[tuple[Answer, Finding]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wrong", action="store_true", help="also what was read otherwise")
    with_wrong = parser.parse_args().wrong
    reader = speech()
    began_s = time.process_time()
    read = {
        (half, code): [(answer, finding_of(reader, answer)) for answer in answers(code, half)]
        for half in HALVES
        for code in (*LANGUAGES, UNDECLARED)
    }
    read_ms = 1e3 * (time.process_time() - began_s) / sum(map(len, read.values()))
    print(f"{read_ms:.2f} ms of CPU an answer")
    print(f"{'list':<24}{'answers':>8}{'-1':>6}{'0':>5}{'+1':>5}{'abstained':>11}{'as meant':>10}")
    for half in HALVES:
        for kind in KINDS:
            for code in LANGUAGES:
                of_kind = [each for each in read[half, code] if each[0].kind == kind]
                _print_list(f"{half} {kind} {code}", of_kind, with_wrong)
        _print_list(f"{half} {UNDECLARED}", read[half, UNDECLARED], with_wrong)


def _print_list(name: str, read: Read, with_wrong: bool) -> None:
    if not read:  # a list may hold complaints alone
        return
    counts = Counter(finding.value for _, finding in read)
    wrong = [each for each in read if not is_as_meant(each[0].kind, each[1])]
    right = len(read) - len(wrong)
    print(
        f"{name:<24}{len(read):>8}{counts[-1]:>6}{counts[0]:>5}{counts[1]:>5}{counts[None]:>11}"
        f"{right / len(read):>10.0%}"
    )
    for answer, finding in wrong if with_wrong else ():
        print(f"  {finding.value!s:>5}  {answer.text!r}: {finding.detail}")


if __name__ == "__main__":
    main()
