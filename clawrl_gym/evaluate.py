"""python -m clawrl_gym.evaluate: measure a policy on the tasks of an environment.

python -m clawrl_gym.evaluate env=toolcall policy=tiny eval.tasks=50
python -m clawrl_gym.evaluate endpoint.base_url=http://127.0.0.1:8000/v1 endpoint.model=NAME
python -m clawrl_gym.evaluate compare runs/A runs/B
python -m clawrl_gym.evaluate compare runs/RUN runs/CONTROL
python -m clawrl_gym.evaluate regrade runs/A
python -m clawrl_gym.evaluate report runs/A

The first starts vLLM, the second asks any server of the OpenAI API; eval.k=[1,8] adds pass@k.
Every episode is kept as soon as it has ended, and the same command continues with what is missing.
compare writes a page of several evaluations; of a training run and its controls it prints paired
differences of what they ended with. regrade replays episodes into today's environments and grades
them again without a policy, report writes an evaluation's pages again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path

import clawrl_gym as cg
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.run.command import command, run_coroutine


def _say(part: str, phase: str) -> None:
    sys.stderr.write(f"{part}: {phase}\n")


def _check(config: cg.EvaluateConfig) -> Iterator[str]:
    from clawrl_gym.preflight.dry_run import plan_lines
    from clawrl_gym.preflight.preflight import preflight_evaluation

    preparations: list[str] = []
    plan = preflight_evaluation(config, preparations.append)
    yield from plan_lines(plan, preparations)


async def _evaluate(config: cg.EvaluateConfig) -> int:
    with INTERRUPTS.goes_on("the same command continues with what is missing"):
        run = await cg.run_evaluation_async(config, on_phase=_say)
    sys.stdout.write(run.summary() + "\n")
    return 0


def _configure(arguments: list[str]) -> cg.EvaluateConfig:
    return cg.load_config(arguments, "evaluate")


async def _compare(options: argparse.Namespace) -> int:
    from clawrl_gym.evaluation.comparison import compare_evaluations
    from clawrl_gym.evaluation.run_pairs import compare_runs, is_run

    if options.folders and all(map(is_run, options.folders)):
        pairs = await asyncio.to_thread(compare_runs, options.folders)
        sys.stdout.write("\n".join(pair.summary() for pair in pairs) + "\n")
        return 0
    comparison = await asyncio.to_thread(compare_evaluations, options.folders, options.out)
    sys.stdout.write(comparison.summary() + "\n")
    return 0


async def _regrade(options: argparse.Namespace) -> int:
    from clawrl_gym.run.regrade import regrade

    regrading = await regrade(options.folder, options.out, on_phase=_say)
    sys.stdout.write(regrading.summary() + "\n")
    return 0


async def _report(options: argparse.Namespace) -> int:
    from clawrl_gym.core.errors import StoreError
    from clawrl_gym.evaluation.figures import read_result
    from clawrl_gym.evaluation.page import write_evaluation_page

    result = await asyncio.to_thread(read_result, options.folder)
    try:
        page = await asyncio.to_thread(write_evaluation_page, result)
    except OSError as error:
        raise StoreError(f"cannot write to {options.folder}: {error}") from error
    sys.stdout.write(f"{page}\n")
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace], Coroutine[object, object, int]]] = {
    "compare": _compare,
    "regrade": _regrade,
    "report": _report,
}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m clawrl_gym.evaluate")
    actions = parser.add_subparsers(dest="action", required=True)
    compare = actions.add_parser("compare", help="several evaluations, or a run and its controls")
    compare.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    compare.add_argument("--out", type=Path, metavar="FOLDER", help="where to write it")
    regrade = actions.add_parser(
        "regrade", help="replay episodes and grade them again, without a policy"
    )
    regrade.add_argument("folder", type=Path, metavar="FOLDER")
    regrade.add_argument("--out", type=Path, metavar="FOLDER", help="FOLDER-regraded by default")
    report = actions.add_parser("report", help="write an evaluation's pages again")
    report.add_argument("folder", type=Path, metavar="FOLDER")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in _ACTIONS:
        options = _options(given)
        return run_coroutine(lambda: _ACTIONS[options.action](options))
    return command("evaluate", __doc__, _configure, _check, _evaluate, arguments)


if __name__ == "__main__":
    sys.exit(main())
