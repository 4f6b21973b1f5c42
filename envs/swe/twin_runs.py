"""Tests that passed, asked again among twins: a right patch tells each test from its twin.

In every run each test or its twin stands in its place, by chance; over the runs each is met both
ways. Sandboxes are fresh, and nothing in one tells which of the two stands there: the script of a
run holds the files as they are in it. What deviates is held against the gold patch where there is
one, for not every change of an expectation is one that its test notices.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random, SystemRandom

from clawrl_gym.envs.swe.evaluation import Evaluations, PatchFails
from clawrl_gym.envs.swe.patch import Patch, PatchRefused
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.logs import grade_log
from clawrl_gym.envs.swe.rows.protected_files import files_named_by, own_patch
from clawrl_gym.envs.swe.rows.script import swebench_log, test_files_of, with_files
from clawrl_gym.envs.twins.tests import TestTwin, twins_of, with_twins

LEAST_PAIRS, MOST_PAIRS = 2, 5
"""Runs come in pairs, in each of which every test and its twin are met once: as many as a test has
expectations."""
BUDGET_S = 60.0
"""Seconds after which no further pair begins."""
MAX_OTHERS = 12
"""Most tests in the same files that also pass before the fix, and have twins."""
_MAX_KEPT = 200
_prepared: dict[tuple[str, str], Mapping[str, str]] = {}
"""Test files that had to be asked of a sandbox, by instance and script."""


def require_twins_fail(evaluations: Evaluations, patch: Patch) -> frozenset[str]:
    """The tests that were told from their twins; of others nothing is known.

    Raises PatchFails when results do not follow from what the tests expect.
    """
    random = SystemRandom()
    files = _test_files(evaluations)
    twins = twins_in(evaluations.instance, files, random)
    if not twins:
        return frozenset()
    pairs = min(max(LEAST_PAIRS, *(len(twin.options) for twin in twins)), MOST_PAIRS)
    start = time.monotonic()
    for number in range(pairs):
        if number and time.monotonic() - start > BUDGET_S:
            break
        first = {twin: random.random() < 0.5 for twin in twins}
        for stands_in in (True, False):
            standing = frozenset(twin for twin, stands in first.items() if stands == stands_in)
            _require_told_apart(evaluations, patch, files, _Draw(twins, standing, number))
    return frozenset(test_id for twin in twins for test_id in twin.ids)


@dataclass(frozen=True, slots=True)
class _Draw:
    """Drawn values of a run's test files."""

    twins: tuple[TestTwin, ...]
    standing: frozenset[TestTwin]
    """Twins in the places of their tests."""
    option: int

    def files(self, originals: Mapping[str, str]) -> Mapping[str, str]:
        return {
            path: with_twins(
                text, [(twin, self.option) for twin in self.standing if twin.path == path]
            )
            for path, text in originals.items()
        }

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(test_id for twin in self.twins for test_id in twin.ids)

    @property
    def failing(self) -> frozenset[str]:
        return frozenset(test_id for twin in self.standing for test_id in twin.ids)


def twins_in(instance: Instance, files: Mapping[str, str], random: Random) -> tuple[TestTwin, ...]:
    """Twins of all tests that decide, and of some that passed before."""
    others = list(instance.pass_to_pass)
    ids = [*instance.fail_to_pass, *random.sample(others, min(MAX_OTHERS, len(others)))]
    return tuple(twin for path, text in files.items() for twin in twins_of(path, text, ids, random))


def _require_told_apart(
    evaluations: Evaluations, patch: Patch, files: Mapping[str, str], draw: _Draw
) -> None:
    instance = evaluations.instance
    script = with_files(instance, files, draw.files(files))
    deviating = _deviating(evaluations, patch, script, draw)
    if not deviating:
        return
    gold = gold_patch(instance)
    if gold.files and deviating <= _deviating(evaluations, gold, script, draw):
        return
    raise PatchFails(
        "with the patch a test's result does not follow from what it expects: "
        + ", ".join(sorted(deviating)[:3])
    )


def _deviating(evaluations: Evaluations, patch: Patch, script: str, draw: _Draw) -> frozenset[str]:
    """Tests that fail, and twins that pass; all where the run does not come to its end."""
    try:
        output = evaluations.run(patch, script)
    except PatchFails:
        return draw.ids
    report = grade_log(evaluations.instance, swebench_log(output))
    failing = draw.ids if report.no_result else {*report.failed_to_pass, *report.broken}
    return draw.ids & (draw.failing ^ failing)


def _test_files(evaluations: Evaluations) -> Mapping[str, str]:
    """The files of the tests that decide, as they are run."""
    instance = evaluations.instance
    if instance.test_files:
        return instance.test_files
    key = (instance.id, instance.eval_script)
    if key not in _prepared:
        test_patch = own_patch(instance.test_patch, instance.id, "test_patch")
        paths = dict.fromkeys([*test_files_of(test_patch), *files_named_by(instance.fail_to_pass)])
        while len(_prepared) >= _MAX_KEPT:
            _prepared.pop(next(iter(_prepared)), None)
        _prepared[key] = evaluations.prepared_files(paths)
    return _prepared[key]


def gold_patch(instance: Instance) -> Patch:
    """The patch that solves it; an empty one where there is none that can be applied."""
    try:
        return parse_patch(instance.patch)
    except PatchRefused:  # some gold patches bring a picture
        return Patch()
