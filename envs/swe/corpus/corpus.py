"""The corpus as instances: `swe-FAMILY-SPLIT-NUMBER`, and everything follows from the id.

An instance belongs to one split by the hash of what it holds, so what is held out is never seen in
training under another number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

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
    GeneratedTasks,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)

PREFIX = "swe-"
_LOOK_S = 20.0


def corpus_instances(names: Sequence[str] | None = None) -> GeneratedTasks[Instance]:
    """The made-up repositories of these families as a source; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    return GeneratedTasks(select_families(families(), names), make_instance, PREFIX)


def make_instance(instance_id: str) -> Instance:
    """The instance of an id. Raises TaskError for what is not an id."""
    content = drawn_repository(instance_id)
    return instance_of(
        instance_id, repository_family(parse_id(instance_id, families(), PREFIX).family), content
    )


def easy_families() -> tuple[str, ...]:
    """Those that the tiny policy can learn."""
    return tuple(family for family in families() if repository_family(family).easy)


def commands_of(instance_id: str) -> tuple[str, str]:
    """An easy family's instance: the command that looks and the one that mends.

    Raises TaskError for an instance of another family.
    """
    content = drawn_repository(instance_id)
    if content.edit is None:
        names = ", ".join(easy_families())
        raise TaskError(f"got instance {instance_id!r}, expected one of the families: {names}")
    return f"cat {content.path}", f"sed -i '{content.edit}' {content.path}"


def needs(family: str) -> tuple[str, ...]:
    """Programs and Python modules that a sandbox must hold to run a family's tests."""
    return runner_of(repository_family(family).runner).needs


def missing_programs(family_names: Sequence[str] | None, sandbox: Sandbox) -> dict[str, list[str]]:
    """What a sandbox lacks that these families (None for all) need, with those that need it."""
    users: dict[str, list[str]] = {}
    for family in select_families(families(), family_names):
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
    parsed = parse_id(instance_id, families(), PREFIX)
    origin = repository_family(parsed.family)
    seed = f"swe/{parsed.family}/{parsed.split}/{parsed.number}"
    return draw_content(parsed.split, seed, lambda draw: draw_repository(origin, draw), split_of)


def split_of(content: DrawnRepository) -> Split:
    """The one split that a repository with its bug belongs to, whatever the issue says."""
    return split_of_content(
        json.dumps([sorted(content.broken.items()), sorted(content.fixed.items())])
    )


def instance_of(instance_id: str, origin: RepositoryFamily, content: DrawnRepository) -> Instance:
    """What was drawn, in SWE-bench's fields."""
    parsed = parse_id(instance_id, families(), PREFIX)
    runner = runner_of(origin.runner)
    visible = {path: content.fixed[path] for path in content.tests}
    passing = _ids(runner, visible)
    files = {".gitignore": IGNORED, **content.broken}
    return Instance(
        id=instance_id,
        repo=f"made-up/{parsed.family}",
        split=parsed.split,
        family=parsed.family,
        problem_statement=content.issue,
        fail_to_pass=tuple(test for test in _ids(runner, content.tests) if test not in passing),
        pass_to_pass=passing,
        log_parser=runner.parser,
        eval_script=eval_script(runner, content.tests),
        canary_script=canary_script(runner, content.tests),
        patch=git_diff(content.broken, content.fixed),
        test_patch=git_diff(visible, content.tests),
        files={path: FileData(text.encode()) for path, text in files.items()},
    )


def _ids(runner: Runner, tests: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(test for path, text in tests.items() for test in runner.ids(path, text))
