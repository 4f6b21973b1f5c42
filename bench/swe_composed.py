"""Composed repositories, their tests run without sandboxes: how many of them the oracle solves,
doing nothing, what is wrong but near, and who mends only and all that the request itself tells,
what is no bug as well ("in order"), or just the first thing of it; by difficulty.

    python -m bench.swe_composed [TASKS_A_FAMILY]
"""

from __future__ import annotations

import shutil
import sys
import time

from bench.composed_table import Played, show_table
from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.swe.composed.generated import (
    compose,
    composed_instances,
    make_instance,
)
from clawrl_gym.envs.showcase.swe.composed.plan import Plan
from tests.support.repository_runs import Files, failing_in_node, failing_in_python

_SPLITS: tuple[Split, ...] = ("train", "heldout")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    names = [
        (split, name)
        for split in _SPLITS
        for ids in [composed_instances().ids(split)]
        for name in ids[: count * len(ids.families)]
    ]
    start = time.process_time()
    requests = {make_instance(name).problem_statement for _, name in names}
    each_ms = (time.process_time() - start) / len(names) * 1e3
    print(f"{len(names)} tasks, {len(requests)} requests, {each_ms:.1f} ms each to make")
    show_table([_play(*name) for name in names])


def _play(split: Split, name: str) -> Played:
    instance = make_instance(name)
    plan = compose(instance.family, split, int(name[-6:])).plan
    told = [report for report in plan.reports if not report.filed]
    bugs = [report.bug for report in told if report.bug is not None]
    no_bugs = [report.no_bug for report in told if report.no_bug is not None]
    return Played(
        instance.family,
        instance.difficulty,
        _solves(plan, plan.end),
        _solves(plan, plan.start),
        tuple(_solves(plan, files) for files in plan.near()),
        (_solves(plan, _mended(plan, bugs, no_bugs)), _solves(plan, _mended(plan, bugs[:1], []))),
    )


def _mended(plan: Plan, bugs: list[int], no_bugs: list[int]) -> Files:
    """The repository once these bugs are mended, and one that is none."""
    if set(bugs) < set(plan.bugs) or plan.made is not None:  # whatever else is done, one is left
        return plan.ground.wrong(set(plan.bugs) - set(bugs), plan.made)
    return plan.ground.mistaken(no_bugs[0]) if no_bugs else plan.ground.right()


def _solves(plan: Plan, files: Files) -> bool:
    tests = tuple(plan.tests)
    if plan.ground.family.runner == "node":
        node = shutil.which("node")
        if node is None:
            raise SystemExit("got no node on PATH, expected one for repositories in JavaScript")
        return not failing_in_node(node, [({**files, **plan.tests}, tests)])[0]
    return not failing_in_python({**files, **plan.tests}, tests)


if __name__ == "__main__":
    main()
