"""Verdicts of the rule judge on tool results: written failures and successes, by list.

    python bench/judge_tools.py            # the shares of each list
    python bench/judge_tools.py --wrong    # and each result that is not read as it was meant

The lists are in tests/fixtures/judge_tools/: `dev` was written by hand beside the rules; `check` is
made of what programs really print and of what the sources of clients and servers say.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from tests.support.tool_results import LISTS, ToolResult, of_list, rule_judge, value_of


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wrong", action="store_true", help="also what was read otherwise")
    with_wrong = parser.parse_args().wrong
    judge = rule_judge()
    print(f"{'list':<18}{'results':>8}{'-1':>6}{'0':>5}{'+1':>5}{'abstained':>11}")
    for name in LISTS:
        results = of_list(name)
        values = [asyncio.run(value_of(judge, result)) for result in results]
        counts = Counter(values)
        print(
            f"{name:<18}{len(results):>8}{counts[-1]:>6}{counts[0]:>5}{counts[1]:>5}"
            f"{counts[None]:>11}"
        )
        if with_wrong:
            _print_wrong(name, results, values)


def _print_wrong(name: str, results: list[ToolResult], values: list[int | None]) -> None:
    meant = -1 if name.startswith("failures") else 1
    for result, value in zip(results, values, strict=True):
        if value != meant:
            print(f"  {value!s:>5}  {result.tool}: {result.text[:150]!r}")


if __name__ == "__main__":
    main()
