"""Tests that passed, asked again among twins: a right patch tells each test from its twin.

In every run each test or its twin stands in its place, by chance; over the runs each is met both
ways. Sandboxes are fresh, and nothing in one tells which of the two stands there: the script of a
run holds the files as they are in it. What deviates is held against the gold patch where there is
one, for not every change of an expectation is one that its test notices.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random, SystemRandom

from clawrl_gym.envs.swe.evaluation import Evaluations, PatchFails
from clawrl_gym.envs.swe.instance import Instance
from clawrl_gym.envs.swe.logs import grade_log
from clawrl_gym.envs.swe.patch import Patch, PatchRefused
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.protected_files import files_named_by, own_patch
from clawrl_gym.envs.swe.script import swebench_log, test_files_of, with_files
from clawrl_gym.envs.swe.twins import TestTwin, twins_of, with_twins

RUNS = 4
SLOW_RUNS = 2
SLOW_S = 60.0
"""Tests that take longer than this are run `SLOW_RUNS` times more, others `RUNS` times."""
MAX_OTHERS = 12
"""Tests that pass before the fix, too, and have twins: so many of those in the same files."""
_MAX_KEPT = 200
_prepared: dict[tuple[str, str], Mapping[str, str]] = {}
"""Test files that had to be asked of a sandbox, by instance and script."""


def require_twins_fail(evaluations: Evaluations, patch: Patch) -> None:
    """Raises PatchFails when results do not follow from what the tests expect."""
    random = SystemRandom()
    files = _test_files(evaluations)
    twins = twins_in(evaluations.instance, files, random)
    if not twins:
        return
    start = time.monotonic()
    for number, standing in enumerate(_draws(len(twins), random)):
        if number >= SLOW_RUNS and time.monotonic() - start > SLOW_S * number:
            return
        _require_told_apart(evaluations, patch, files, dict(zip(twins, standing, strict=True)))


def twins_in(instance: Instance, files: Mapping[str, str], random: Random) -> tuple[TestTwin, ...]:
    """Twins of all tests that decide, and of some that passed before."""
    others = list(instance.pass_to_pass)
    ids = [*instance.fail_to_pass, *random.sample(others, min(MAX_OTHERS, len(others)))]
    return tuple(twin for path, text in files.items() for twin in twins_of(path, text, ids, random))


def _draws(tests: int, random: Random) -> Iterator[Sequence[bool]]:
    """By run, which twins stand in the places of their tests: in two runs each does once."""
    first = [random.random() < 0.5 for _ in range(tests)]
    yield first
    yield [not stands for stands in first]
    for _ in range(RUNS - 2):
        yield [random.random() < 0.5 for _ in range(tests)]


def _require_told_apart(
    evaluations: Evaluations,
    patch: Patch,
    files: Mapping[str, str],
    standing: Mapping[TestTwin, bool],
) -> None:
    instance = evaluations.instance
    changed = {
        path: with_twins(text, [t for t, stands in standing.items() if stands and t.path == path])
        for path, text in files.items()
    }
    script = with_files(instance, files, changed)
    deviating = _deviating(evaluations, patch, script, standing)
    if not deviating:
        return
    gold = _gold(instance)
    if gold.files and deviating <= _deviating(evaluations, gold, script, standing):
        return
    raise PatchFails(
        "with the patch a test's result does not follow from what it expects: "
        + ", ".join(sorted(deviating)[:3])
    )


def _deviating(
    evaluations: Evaluations, patch: Patch, script: str, standing: Mapping[TestTwin, bool]
) -> frozenset[str]:
    """Tests that fail, and twins that pass; all where the run does not come to its end."""
    try:
        output = evaluations.run(patch, script)
    except PatchFails:
        return frozenset(test_id for twin in standing for test_id in twin.ids)
    report = grade_log(evaluations.instance, swebench_log(output))
    failing = {*report.failed_to_pass, *report.broken}
    expected = {test_id for twin, stands in standing.items() if stands for test_id in twin.ids}
    return frozenset(
        test_id
        for twin in standing
        for test_id in twin.ids
        if (test_id in expected) != (bool(report.no_result) or test_id in failing)
    )


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


def _gold(instance: Instance) -> Patch:
    try:
        return parse_patch(instance.patch)
    except PatchRefused:  # some gold patches bring a picture
        return Patch()
