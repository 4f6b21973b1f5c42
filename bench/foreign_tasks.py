"""The used part of task sets from outside, and why not the rest: a line each, then the reasons.

    python bench/foreign_tasks.py "env=toolcall env.tasks=PATH" "env=swe env.instances=PATH" ...

Each argument is what would be said to `train`. Nothing is played: `python -m clawrl_gym.envs.KIND
validate PATH` does that.
"""

from __future__ import annotations

import argparse
import shlex
import time

import clawrl_gym as cg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", metavar="SET", help='such as "env=gui env.tasks=PATH"')
    for options in parser.parse_args().sets:
        start = time.monotonic()
        lines = _describe(shlex.split(options))
        print(f"{options} ({time.monotonic() - start:.1f} s)")
        print(*(f"  {line}" for line in lines), sep="\n", flush=True)


def _describe(overrides: list[str]) -> list[str]:
    try:
        env = cg.load_config(overrides).env
        train, heldout = (len(env.task_ids(split) or ()) for split in ("train", "heldout"))
        return [f"{train:,} to train on, {heldout:,} held out", *env.left_out()]
    except cg.ClawError as error:
        return [f"refused: {error}"]


if __name__ == "__main__":
    main()
