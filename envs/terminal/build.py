"""A Dockerfile's steps with their files: what a sandbox carries out before the episode."""

from __future__ import annotations

import posixpath

from clawrl_gym.envs.sandbox.interface import FileData
from clawrl_gym.envs.terminal.dockerfile import Copy, Dockerfile, Run
from clawrl_gym.envs.terminal.task import BuildStep
from clawrl_gym.envs.terminal.task_folder import TaskFolder

STANDARD_FOLDERS = frozenset(
    ("/", "/bin", "/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/usr/bin",
     "/usr/local", "/usr/local/bin", "/var")
)  # fmt: skip
"""Where a COPY without a final '/' means "into": a Dockerfile does not say what its base has."""


def build_steps(
    image: Dockerfile, context: TaskFolder, folder: str, timeout_s: float
) -> list[BuildStep]:
    """The steps in order; COPY sources are read from `folder` of the context. Raises TaskError."""
    inside = TaskFolder(context.root / folder)
    folders = set(STANDARD_FOLDERS)
    steps = []
    for step in image.steps:
        if isinstance(step, Run):
            steps.append(BuildStep(command=step.command, timeout_s=timeout_s))
            folders |= {step.makes} if step.makes else set()
            continue
        files = _copied(step, inside, folders)
        folders |= {posixpath.dirname(path) for path in files}
        steps.append(BuildStep(files=files))
    return steps


def _copied(step: Copy, context: TaskFolder, folders: set[str]) -> dict[str, FileData]:
    """Where COPY puts which files: a folder's contents, or a file below or at the target."""
    found: dict[str, FileData] = {}
    for source in (match for pattern in step.sources for match in context.matches(pattern)):
        tree = context.tree(source)
        if set(tree) == {""}:
            into = step.into_folder or step.target in folders
            name = posixpath.basename(source)
            path = posixpath.join(step.target, name) if into else step.target
            found[path] = tree[""]
        else:
            found |= {posixpath.join(step.target, path): file for path, file in tree.items()}
    return found
