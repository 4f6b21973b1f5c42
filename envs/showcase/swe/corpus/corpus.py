"""The corpus as instances: `swe-FAMILY-SPLIT-NUMBER`, and everything follows from the id.

An instance belongs to one split by the hash of what it holds, so what is held out is never seen in
training under another number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.sandbox.interface import FileData
from clawrl_gym.envs.showcase.swe.corpus.repository import (
    DrawnRepository,
    RepositoryFamily,
    draw_repository,
    families,
    repository_family,
)
from clawrl_gym.envs.swe.diff import git_diff
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.runners import (
    IGNORED,
    Runner,
    eval_script,
    runner_of,
)
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    TaskId,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)

PREFIX = "swe-"


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
    """Families that the tiny policy can learn."""
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
    """The drawn content, in SWE-bench's fields."""
    parsed = parse_id(instance_id, families(), PREFIX)
    return as_instance(
        instance_id,
        parsed,
        parsed.family,
        runner_of(origin.runner),
        issue=content.issue,
        broken=content.broken,
        fixed=content.fixed,
        tests=content.tests,
    )


def as_instance(
    instance_id: str,
    parsed: TaskId,
    repository: str,
    runner: Runner,
    *,
    issue: str,
    broken: Mapping[str, str],
    fixed: Mapping[str, str],
    tests: Mapping[str, str],
    failing: Collection[str] = (),
    difficulty: int = 1,
) -> Instance:
    """A made-up repository in SWE-bench's fields.

    `failing`: tests that stand in it and fail before the fix.
    """
    visible = {path: fixed[path] for path in tests}
    passing = tuple(test for test in _ids(runner, visible) if test not in failing)
    files = {".gitignore": IGNORED, **broken}
    return Instance(
        id=instance_id,
        repo=f"made-up/{repository}",
        split=parsed.split,
        family=parsed.family,
        problem_statement=issue,
        fail_to_pass=tuple(test for test in _ids(runner, tests) if test not in passing),
        pass_to_pass=passing,
        log_parser=runner.parser,
        eval_script=eval_script(runner, tests),
        test_files=tests,
        patch=git_diff(broken, fixed),
        test_patch=git_diff(visible, tests),
        files={path: FileData(text.encode()) for path, text in files.items()},
        modules=runner.modules,
        difficulty=difficulty,
    )


def _ids(runner: Runner, tests: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(test for path, text in tests.items() for test in runner.ids(path, text))
