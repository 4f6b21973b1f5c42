"""The corpus as instances: `swe-FAMILY-SPLIT-NUMBER`, and everything follows from the id.

An instance belongs to one split by the hash of what it holds, so what is held out is never seen in
training under another number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.sandbox.interface import FileData, Sandbox
from clawrl_gym.envs.swe.corpus.diff import git_diff
from clawrl_gym.envs.swe.corpus.repository import (
    DrawnRepository,
    RepositoryFamily,
    draw_repository,
    families,
    repository_family,
)
from clawrl_gym.envs.swe.corpus.runners import (
    IGNORED,
    Runner,
    canary_script,
    eval_script,
    runner_of,
)
from clawrl_gym.envs.swe.instance import Instance
from clawrl_gym.envs.task_ids import (
    TaskIds,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)

PREFIX = "swe-"
_LOOK_S = 20.0


@dataclass(frozen=True, slots=True)
class Corpus:
    """The made-up repositories as a source of instances; None takes all of them."""

    families: tuple[str, ...] | None = None

    def ids(self, split: Split) -> TaskIds:
        """Raises ConfigError for an unknown family or none."""
        return TaskIds(split, select_families(families(), self.families), PREFIX)

    def load(self, instance_id: str) -> Instance:
        return make_instance(instance_id)


def make_instance(instance_id: str) -> Instance:
    """The instance of an id. Raises TaskError for what is not an id."""
    found = drawn_repository(instance_id)
    return instance_of(
        instance_id, repository_family(parse_id(instance_id, families(), PREFIX).family), found
    )


def easy_families() -> tuple[str, ...]:
    """Those that the tiny policy can learn."""
    return tuple(family for family in families() if repository_family(family).easy)


def commands_of(instance_id: str) -> tuple[str, str]:
    """An easy family's instance: the command that looks and the one that mends.

    Raises TaskError for an instance of another family.
    """
    found = drawn_repository(instance_id)
    if found.edit is None:
        known = ", ".join(easy_families())
        raise TaskError(f"got instance {instance_id!r}, expected one of the families: {known}")
    return f"cat {found.path}", f"sed -i '{found.edit}' {found.path}"


def needs(family: str) -> tuple[str, ...]:
    """Programs and Python modules that a sandbox must hold to run a family's tests."""
    return runner_of(repository_family(family).runner).needs


def unmet(chosen: Sequence[str] | None, sandbox: Sandbox) -> dict[str, list[str]]:
    """What a sandbox lacks that these families (None for all) need, with those that need it."""
    users: dict[str, list[str]] = {}
    for family in select_families(families(), chosen):
        for need in needs(family):
            users.setdefault(need, []).append(family)
    return {
        need: names
        for need, names in users.items()
        if sandbox.exec(
            f"command -v {need} || python3 -I -c 'import {need}'", _LOOK_S
        ).exit_code != 0
    }  # fmt: skip


def drawn_repository(instance_id: str) -> DrawnRepository:
    """The content behind an id. Raises TaskError for what is not an id."""
    named = parse_id(instance_id, families(), PREFIX)
    origin = repository_family(named.family)
    seed = f"swe/{named.family}/{named.split}/{named.number}"
    return draw_content(named.split, seed, lambda draw: draw_repository(origin, draw), split_of)


def split_of(found: DrawnRepository) -> Split:
    """The one split that a repository with its bug belongs to, whatever the issue says."""
    return split_of_content(json.dumps([sorted(found.broken.items()), sorted(found.fixed.items())]))


def instance_of(instance_id: str, origin: RepositoryFamily, found: DrawnRepository) -> Instance:
    """What was drawn, in SWE-bench's fields."""
    named = parse_id(instance_id, families(), PREFIX)
    runner = runner_of(origin.runner)
    visible = {path: found.fixed[path] for path in found.tests}
    passing = _ids(runner, visible)
    files = {".gitignore": IGNORED, **found.broken}
    return Instance(
        id=instance_id,
        repo=f"made-up/{named.family}",
        split=named.split,
        family=named.family,
        problem_statement=found.issue,
        fail_to_pass=tuple(test for test in _ids(runner, found.tests) if test not in passing),
        pass_to_pass=passing,
        log_parser=runner.parser,
        eval_script=eval_script(runner, found.tests),
        canary_script=canary_script(runner, found.tests),
        patch=git_diff(found.broken, found.fixed),
        test_patch=git_diff(visible, found.tests),
        files={path: FileData(text.encode()) for path, text in files.items()},
    )


def _ids(runner: Runner, tests: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(test for path, text in tests.items() for test in runner.ids(path, text))
