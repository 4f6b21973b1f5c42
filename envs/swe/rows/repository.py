"""An instance's repository in a sandbox: made ready for an agent or a grade, and what changed.

Nothing of what solves the issue is in it: no gold patch, no later commits, no hidden tests. What
an agent may have done to git's configuration does not reach the commands here.
"""

from __future__ import annotations

import base64
import io
import re
import secrets
import shlex
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from clawrl_gym.core.errors import SandboxError, TaskError
from clawrl_gym.envs.sandbox.interface import (
    ExecResult,
    FileData,
    Sandbox,
    SandboxCapabilities,
    SandboxSpec,
)
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.swe.interpreter import interpreter_at
from clawrl_gym.envs.swe.modules import MODULES_FOLDER, module_mounts
from clawrl_gym.envs.swe.rows.archive import open_archive
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.protected_files import own_patch
from clawrl_gym.envs.swe.rows.setup import GIT_IDENTITY, set_up

MAX_PATCH_BYTES = 4_000_000
_MOST_IN_A_COMMAND = 100_000
"""Bytes; a shell takes long over more."""
_QUIET = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "LESS": "-R",
    "PIP_PROGRESS_BAR": "off",
    "TQDM_DISABLE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Nobody pages, and no bar moves, where nobody watches."""
_COMMIT = f"{GIT_IDENTITY} git commit -q -m 'the repository'"
_BY_PRODUCTS = ("__pycache__/", "*.pyc", ".pytest_cache/", "node_modules/", ".venv/")
"""Files that running the code leaves; no part of a patch."""
_GIT = (
    "GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_ATTR_NOSYSTEM=1 "
    'git --git-dir="$work/r/.git" --work-tree=. -c core.autocrlf=false -c core.fileMode=true '
    "-c core.attributesFile=/dev/null -c core.excludesFile=/dev/null"
)
"""Git with a folder of its own, so that no configuration, hook or index of an agent counts."""
_OWN = (
    "umask 077 && work=$(mktemp -d) && "
    'GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null git init -q --template= "$work/r" && '
)
_DIFF = (
    "diff --cached --no-ext-diff --no-textconv --no-color --no-renames --no-relative --full-index "
    "--unified=3 --inter-hunk-context=0 --diff-algorithm=myers --submodule=short "
    "--ignore-submodules=all --src-prefix=a/ --dst-prefix=b/"
)
_ACTIVATE = """
[ -f ~/.bashrc ] && . ~/.bashrc
if [ -f /opt/miniconda3/bin/activate ] && [ -d /opt/miniconda3/envs/testbed ]; then
. /opt/miniconda3/bin/activate testbed; fi
"""
"""Settings of an image's login shell; carried out once, and every command inherits them."""
_FORGET_LATER = """
if git rev-list --max-count=1 --all --reflog --not HEAD 2>/dev/null | grep -q .; then
  git for-each-ref --no-merged HEAD --format='delete %(refname)' | git update-ref --stdin
  rm -f .git/ORIG_HEAD .git/FETCH_HEAD .git/MERGE_HEAD .git/logs/refs/stash
  git reflog expire --expire=now --all && git gc --quiet --prune=now
fi
git remote | while read -r name; do git remote remove "$name"; done
"""
"""Commits after the base hold the solution."""
_TREE = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Repository:
    """A prepared sandbox."""

    sandbox: Sandbox
    base: str
    """The tree that changes are compared with."""

    def close(self) -> None:
        self.sandbox.close()


@dataclass(frozen=True, slots=True)
class RepositoryChanges:
    """Changes of an agent, or why they cannot be told."""

    patch: str
    failure: str = ""
    left_out: tuple[str, ...] = ()
    """Parts whose changes git cannot tell, such as a repository in the repository."""


def open_repository(
    instance: Instance,
    sandboxes: Sandboxes,
    timeout_s: float,
    *,
    for_grading: bool = False,
    agent_mounts: Mapping[str, str] = MappingProxyType({}),
) -> Repository:
    """A fresh sandbox with the repository as the issue found it.

    `agent_mounts`: folders of an agent that works inside.
    Raises SandboxError without a sandbox, TaskError when the repository cannot be made ready.
    """
    if instance.image is not None and not sandboxes.capabilities.images:
        raise TaskError(
            f"instance {instance.id!r} lives in the image {instance.image!r}, which "
            f"sandbox={sandboxes.kind} cannot run: use sandbox=docker"
        )
    if instance.image is None and not instance.files and instance.archive is None:
        raise TaskError(f"instance {instance.id!r} has neither an image nor files")
    spec = replace(_spec_of(instance, sandboxes.capabilities), agent_mounts=agent_mounts)
    sandbox = sandboxes.open(spec)
    try:
        if instance.image is not None:
            activate(sandbox, timeout_s)
            if not for_grading:
                hide(instance, sandbox, timeout_s)
            set_up(instance, sandbox, timeout_s)
            base = adopt(instance, sandbox, timeout_s, keep_history=for_grading)
        else:
            base = _unpack(instance, sandbox, timeout_s)
        return Repository(sandbox, base)
    except BaseException:
        sandbox.close()
        raise


def _spec_of(instance: Instance, capabilities: SandboxCapabilities) -> SandboxSpec:
    """The sandbox's spec; not every kind shows folders of this machine; an image has its own."""
    roots = instance.import_roots
    env = dict(_QUIET) | ({"PYTHONPATH": ":".join(roots)} if roots else {})
    mounts = dict[str, str]()
    if capabilities.mounts:
        mounts |= module_mounts(instance.modules)
        env |= {"PYTHONPATH": ":".join((MODULES_FOLDER, *roots))} if mounts else {}
        if instance.python:
            interpreter = interpreter_at(instance.python)
            mounts |= interpreter.mounts
            env |= interpreter.env
    return SandboxSpec(instance.workdir, env | dict(instance.env), instance.image, mounts=mounts)


def hide(instance: Instance, sandbox: Sandbox, timeout_s: float) -> None:
    """Take away what an agent is not shown."""
    if instance.hidden:
        command = f"rm -rf -- {shlex.join(instance.hidden)}"
        _must(instance, sandbox.exec(command, timeout_s), "hiding its tests")


def activate(sandbox: Sandbox, timeout_s: float) -> None:
    """Set what an image's own login shell sets; a new shell needs it again."""
    sandbox.exec(_ACTIVATE, timeout_s)


def read_changes(repository: Repository, workdir: str, timeout_s: float) -> RepositoryChanges:
    """The work tree against the base, as a patch.

    Files that git cannot read, and repositories in the repository, are left out. What else stops
    git from telling is the agent's doing: git worked at the start.
    """
    result = repository.sandbox.exec(
        f"(cd {shlex.quote(workdir)} && {_OWN} {_exclude('$work/r/.git')} && "
        'export GIT_ALTERNATE_OBJECT_DIRECTORIES="$PWD/.git/objects" && '
        f"{_GIT} read-tree {repository.base} && "
        f'{{ {_GIT} add -A --ignore-errors . >/dev/null 2> "$work/said"; [ $? -le 1 ]; }} && '
        f'{_GIT} {_DIFF} {repository.base} > "$work/patch" && '
        '{ grep "^error: " "$work/said" | head -n 5; true; } && '
        'printf \'%s %s\\n\' "$work/patch" "$(wc -c < "$work/patch")")',
        timeout_s,
    )
    lines = result.output.strip().splitlines()
    path, _, size = lines[-1].rpartition(" ") if result.exit_code == 0 and lines else ("", "", "")
    if not path.startswith("/") or not size.isdecimal():
        outcome = "it took too long" if result.timed_out else result.output.strip()[-300:]
        return RepositoryChanges("", f"git could not tell what was changed: {outcome}")
    if int(size) > MAX_PATCH_BYTES:
        return RepositoryChanges(
            "", f"the changes are a patch of {size} bytes, over {MAX_PATCH_BYTES}"
        )
    try:
        data = repository.sandbox.read(path, MAX_PATCH_BYTES)
    except FileNotFoundError:
        return RepositoryChanges("", "git could not tell what was changed: its patch is gone")
    except SandboxError:
        repository.sandbox.exec(":", timeout_s)  # raises when the sandbox itself is dead
        return RepositoryChanges(
            "", "git could not tell what was changed: its patch cannot be read"
        )
    left_out = tuple(
        line.removeprefix("error: ") for line in lines[:-1] if line.startswith("error: ")
    )
    return RepositoryChanges(data.decode(errors="surrogateescape"), left_out=left_out)


def adopt(instance: Instance, sandbox: Sandbox, timeout_s: float, *, keep_history: bool) -> str:
    """The repository of an image, as its work tree stands there; later commits are forgotten."""
    forget = ":" if keep_history else _FORGET_LATER
    output = _must(
        instance,
        sandbox.exec(
            f"(export GIT_CONFIG_GLOBAL=/tmp/.setup; cd {shlex.quote(instance.workdir)} && "
            "git config --global --add safe.directory '*' && "
            f"{{ {forget}\n}} && {_exclude('.git')} && rm -f /tmp/.setup && {_OWN} "
            'cp .git/index "$work/r/.git/index" && '
            'export GIT_OBJECT_DIRECTORY="$PWD/.git/objects" && '
            f'{_GIT} add -A . >/dev/null && {_GIT} write-tree && rm -rf "$work")',
            timeout_s,
        ),
        "reading its repository",
    )
    return _tree(instance, output)


def _unpack(instance: Instance, sandbox: Sandbox, timeout_s: float) -> str:
    """The instance's own files, with its bug, committed; one command for all of it."""
    archive = instance.archive
    packed = open_archive(archive).packed if archive else _archive(instance.files)
    workdir = shlex.quote(instance.workdir)
    bug = own_patch(instance.setup_patch, instance.id, "patch").text
    apply_bug = _inline(bug.encode(errors="surrogateescape"), "git apply --whitespace=nowarn -")
    output = _must(
        instance,
        sandbox.exec(
            f"(mkdir -p {workdir} && cd {workdir} && {_feed(packed, 'tar -xzf -', sandbox)}"
            f"git init -q -b main && {apply_bug if bug else ''}git config user.name agent && "
            f"git config user.email agent@localhost && {_exclude('.git')} && "
            f"git -c core.looseCompression=1 add -Af . && {_COMMIT} && "
            "git rev-parse 'HEAD^{tree}')",
            timeout_s,
        ),
        "unpacking its files",
    )
    return _tree(instance, output)


def _feed(content: bytes, program: str, sandbox: Sandbox) -> str:
    """The beginning of a command: the program reads the content, of which nothing stays."""
    if len(content) <= _MOST_IN_A_COMMAND:
        return _inline(content, program)
    path = f"/tmp/{secrets.token_hex(8)}"
    sandbox.write(path, content)
    return f"{program} < {path} && rm -f {path} && "


def _inline(content: bytes, program: str) -> str:
    return f"base64 -d <<'END' | {program} &&\n{base64.encodebytes(content).decode()}END\n"


def _exclude(git_dir: str) -> str:
    lines = " ".join(map(shlex.quote, _BY_PRODUCTS))
    return f'mkdir -p "{git_dir}/info" && printf \'%s\\n\' {lines} >> "{git_dir}/info/exclude"'


def _archive(files: Mapping[str, FileData]) -> bytes:
    """The same files make the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for path, file in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(file.data), file.mode
            archive.addfile(member, io.BytesIO(file.data))
    return packed.getvalue()


def _must(instance: Instance, result: ExecResult, operation: str) -> str:
    if result.exit_code == 0:
        return result.output
    if result.shell_restarted:
        raise SandboxError(f"instance {instance.id!r}: the sandbox's shell ended while {operation}")
    outcome = "took too long" if result.timed_out else f"failed: {result.output.strip()[-500:]!r}"
    raise TaskError(
        f"instance {instance.id!r}: {operation} {outcome}; the image must hold bash, git, tar and "
        f"the repository in {instance.workdir}"
    )


def _tree(instance: Instance, output: str) -> str:
    last = (output.split() or [""])[-1]
    if not _TREE.fullmatch(last):
        raise TaskError(f"instance {instance.id!r}: got {last!r} from git, expected a tree's name")
    return last
