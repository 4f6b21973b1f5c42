"""python -m clawrl_gym.bench: recipes of conf/experiment/ side by side, over paired seeds.

python -m clawrl_gym.bench experiment=personal_binary,personal_hybrid seeds=3 trainer.steps=16

Each is a run of `clawrl_gym.train`, measured before and after on the held-out tasks of every
environment. Called again, it keeps what is done. Keys of a run (KEY=VALUE) hold for all of them.

python -m clawrl_gym.bench compare A B    two benches, or two recipes in them (DIR/RECIPE)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import clawrl_gym as cg
from clawrl_gym.core.processes.interrupt import HOLDING_S, INTERRUPTS
from clawrl_gym.run.command import command, exit_code_of


def _configure(arguments: list[str]) -> cg.BenchConfig:
    return cg.load_config(arguments, "bench")


def _check(config: cg.BenchConfig) -> Iterator[str]:
    from clawrl_gym.comparison.preflight import preflight_comparison
    from clawrl_gym.preflight.dry_run import plan_lines

    runs, plans = preflight_comparison(config)
    yield f"{len(runs)} runs, one after another, in {config.dir}; those that have ended are kept"
    for recipe, plan in plans.items():
        yield f"each of {recipe}:"
        yield from plan_lines(plan)


async def _bench(config: cg.BenchConfig) -> int:
    INTERRUPTS.patience_s = HOLDING_S
    with INTERRUPTS.goes_on("the same command continues with what is missing"):
        results = await cg.run_comparison_async(config)
    return 1 if any(result.failures for result in results) else 0


def _folders(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m clawrl_gym.bench compare")
    for name in ("first", "second"):
        parser.add_argument(name, type=Path, help="a bench's folder, or a recipe's in it")
    return parser.parse_args(arguments)


def _compare(folders: argparse.Namespace) -> int:
    from rich.console import Console

    from clawrl_gym.comparison.compare import compare

    Console().print(compare(folders.first, folders.second).rich())
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["compare"]:
        folders = _folders(arguments[1:])
        return exit_code_of(lambda: _compare(folders))
    return command("bench", __doc__, _configure, _check, _bench, arguments)


if __name__ == "__main__":
    sys.exit(main())
