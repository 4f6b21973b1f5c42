"""Whether a reply depends on how the engine cuts it: stream, stored turn and whole reply compared.

    PYTHONPATH=. python bench/reply_splits.py [--replies 200] [--splits 1000] [--seed 0]

Draws so many replies as policies write them, well and badly, for each combination of vLLM's parsers
in `conf/policy`. Sends each through vLLM's own parsers and ours in so many random splits of its ids
into engine outputs, a third of them continued by another server. Prints how many differ from the
reply that is not streamed, or lose a word of it. A split that is drawn
again is not read again.
"""

from __future__ import annotations

import argparse
import logging
import random
import time

from tests.support.reply_cases import (
    PARSERS,
    differences,
    random_splits,
    reader,
    stopped,
    written_reply,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replies", type=int, default=200)
    parser.add_argument("--splits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    logging.disable(logging.ERROR)  # vLLM's parsers log what they cannot read
    wrong = sum(_differences(names, asked) for names in PARSERS)
    print(
        f"{asked.splits} splits of {asked.replies} replies for each of {len(PARSERS)} parsers: "
        f"{wrong} differences"
    )


def _differences(names: tuple[str, str | None], asked: argparse.Namespace) -> int:
    """Number of replies and splits that are wrong for one combination of parsers."""
    draw, began_s = random.Random(f"{asked.seed} {names}"), time.monotonic()
    skips = reader(names).skips_special
    wrong = replies = 0
    while replies < asked.replies:
        reply = stopped(written_reply(names, draw), skips_special=skips)
        if not reply.ids:
            continue
        replies += 1
        found = differences(names, reply, random_splits(len(reply.ids), asked.splits, draw))
        wrong += len(found)
        if found:
            print(names, repr(reply.text), reply.finish_reason, reply.stop, found[0], flush=True)
    spent_s = time.monotonic() - began_s
    print(f"{names}: {replies} replies in {spent_s:.0f} s, {wrong} differences", flush=True)
    return wrong


if __name__ == "__main__":
    main()
