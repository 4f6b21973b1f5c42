"""One problem of SWE-bench's kind: a repository with an issue, and the tests that tell the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from clawrl_gym.core.types import Split
from clawrl_gym.envs.sandbox.interface import FileData

WORKDIR = "/testbed"
"""Where SWE-bench's images hold the repository."""
SUBMIT_MARK = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""First line of a successful command's output by which an agent submits; a patch may follow it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance, whatever file it came from."""

    id: str
    repo: str
    split: Split
    problem_statement: str
    fail_to_pass: tuple[str, ...]
    """Tests that fail before the issue is fixed and pass after it."""
    pass_to_pass: tuple[str, ...]
    """Tests that pass before and after."""
    log_parser: str
    """Name in swebench's PARSER_REGISTRY."""
    eval_script: str
    """Bash that restores and runs the tests, in swebench 5's form: output between the markers
    `>>>>> Start Test Output` and `>>>>> End Test Output`, then `>>>>> Test Exit Code: N`."""
    patch: str = ""
    """The gold patch; empty when the row has none."""
    test_patch: str = ""
    test_files: Mapping[str, str] = field(default_factory=dict)
    """The tests' files as they are run, by path relative to `workdir`; empty: a sandbox is asked
    for what the script makes of them."""
    base_commit: str = "HEAD"
    eval_type: Literal["pass_and_fail", "fail_only"] = "pass_and_fail"
    image: str | None = None
    """Docker image that holds the repository; None: `files` are put into the sandbox."""
    files: Mapping[str, FileData] = field(default_factory=dict)
    """The repository before the fix, by path relative to `workdir`; committed once at reset."""
    archive: str | None = None
    """Path of a tar.gz (`archive.py`) that is put into the sandbox instead of `files`."""
    setup_patch: str = ""
    """Applied and committed at reset: SWE-smith's images, and archives, hold the repository without
    its bug."""
    context: str | None = None
    """Folder whose Dockerfile makes `image`, for when no registry has it."""
    workdir: str = WORKDIR
    hidden: tuple[str, ...] = ()
    """Paths of an image that its tests need and an agent is not shown."""
    modules: tuple[str, ...] = ()
    """Python modules that its tests need and that a sandbox without an image is shown."""
    python: str = ""
    """Python of this machine that a sandbox without an image is shown (`interpreter.py`)."""
    import_roots: tuple[str, ...] = ()
    """Folders of the sandbox in which Python looks for modules first."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the agent's commands."""
    family: str = ""
    """Family for curves: the repository, or the corpus's name of it."""
    version: str = ""
    difficulty: int = 1
    """1 where nothing rates the instances."""
