"""Whether a reply depends on how the engine cuts it: stream, stored turn and whole reply compared.

    PYTHONPATH=. python bench/reply_splits.py [--replies 200] [--splits 1000] [--seed 0]

Draws replies as policies write them, well and badly, for each combination of vLLM's parsers in
`conf/policy`; sends each through vLLM's own parsers and ours in so many random splits of its ids
into engine outputs, some continued by another server; and prints how many differ from the reply
that is not streamed, or lose a word of it. `--splits` is of each reply.
"""

from __future__ import annotations

import argparse
import logging
import random

from tests.reply_cases import PARSERS, differences, random_splits, reader, stopped, written_reply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replies", type=int, default=200)
    parser.add_argument("--splits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    logging.disable(logging.ERROR)  # vLLM's parsers log what they cannot read
    draw, wrong = random.Random(asked.seed), 0
    for number in range(asked.replies):
        names = PARSERS[number % len(PARSERS)]
        skips = reader(names).skips_special
        reply = stopped(written_reply(names, draw), skips_special=skips)
        if not reply.ids:
            continue
        found = differences(names, reply, random_splits(len(reply.ids), asked.splits, draw))
        wrong += len(found)
        if found:
            print(names, repr(reply.text), reply.finish_reason, reply.stop, found[0], flush=True)
    print(f"{asked.splits} splits of {asked.replies} replies: {wrong} differences")


if __name__ == "__main__":
    main()
