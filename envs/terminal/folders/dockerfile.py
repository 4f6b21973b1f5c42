"""The part of a Dockerfile that a sandbox can carry out: FROM, WORKDIR, ENV, COPY, RUN.

Everything else either changes nothing for a shell (CMD, EXPOSE, LABEL) or is refused by name.
`parse` touches no file of the build context; `build_steps` reads those that COPY names.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.interface import FileData
from clawrl_gym.envs.terminal.folders.task_folder import TaskFolder
from clawrl_gym.envs.terminal.task import BuildStep

WITHOUT_EFFECT = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL"})
"""Instructions that change nothing for a task whose command is our shell."""
STANDARD_FOLDERS = frozenset(
    ("/", "/bin", "/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/usr/bin",
     "/usr/local", "/usr/local/bin", "/var")
)  # fmt: skip
"""Where a COPY without a final '/' means "into": a Dockerfile does not say what its base has."""


@dataclass(frozen=True, slots=True)
class CopyStep:
    """COPY: sources are relative to the context, the target is absolute."""

    line: int
    sources: tuple[str, ...]
    target: str
    into_folder: bool
    """The target is written as a folder ('/' at its end, '.', or several sources)."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """RUN or WORKDIR, as a bash command that sets its own directory and variables."""

    line: int
    command: str
    makes: str | None = None
    """WORKDIR: the folder that exists afterwards."""


@dataclass(slots=True)
class Dockerfile:
    """Instructions of a Dockerfile, in order."""

    base: str = ""
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    steps: list[CopyStep | RunStep] = field(default_factory=list)


def parse(text: str, where: str) -> Dockerfile:
    """Read a Dockerfile. Raises TaskError naming `where`, the line and the instruction."""
    result = Dockerfile()
    for line, keyword, rest in _instructions(text):
        place = f"{where}, line {line}"
        if keyword == "FROM":
            result.base = _base(rest, result.base, place)
            continue
        if not result.base:
            raise TaskError(f"{place}: got {keyword}, expected FROM first")
        _apply(result, keyword, rest, line, place)
    if not result.base:
        raise TaskError(f"{where}: got no FROM, expected a base")
    return result


def build_steps(
    image: Dockerfile, context: TaskFolder, folder: str, timeout_s: float
) -> list[BuildStep]:
    """The steps in order; COPY sources are read from `folder` of the context. Raises TaskError."""
    inside = TaskFolder(context.root / folder)
    folders = set(STANDARD_FOLDERS)
    steps = []
    for step in image.steps:
        if isinstance(step, RunStep):
            steps.append(BuildStep(command=step.command, timeout_s=timeout_s))
            folders |= {step.makes} if step.makes else set()
            continue
        files = _copied(step, inside, folders)
        folders |= {posixpath.dirname(path) for path in files}
        steps.append(BuildStep(files=files))
    return steps


def _copied(step: CopyStep, context: TaskFolder, folders: set[str]) -> dict[str, FileData]:
    """Where COPY puts which files: a folder's contents, or a file below or at the target."""
    files: dict[str, FileData] = {}
    for source in (match for pattern in step.sources for match in context.matches(pattern)):
        tree = context.tree(source)
        if set(tree) == {""}:
            into = step.into_folder or step.target in folders
            name = posixpath.basename(source)
            path = posixpath.join(step.target, name) if into else step.target
            files[path] = tree[""]
        else:
            files |= {posixpath.join(step.target, path): file for path, file in tree.items()}
    return files


def _apply(result: Dockerfile, keyword: str, rest: str, line: int, place: str) -> None:
    if keyword == "WORKDIR":
        result.workdir = _absolute(result.workdir, _expand(_single(rest, place), result.env))
        command = f"mkdir -p {shlex.quote(result.workdir)}"
        result.steps.append(RunStep(line, command, makes=result.workdir))
    elif keyword == "ENV":
        result.env |= _variables(rest, result.env, place)
    elif keyword == "COPY":
        result.steps.append(_copy(rest, result, line, place))
    elif keyword == "RUN":
        result.steps.append(RunStep(line, _run(rest, result, place)))
    elif keyword not in WITHOUT_EFFECT:
        raise TaskError(
            f"{place}: got {keyword}, expected FROM, WORKDIR, ENV, COPY or RUN: this task needs "
            "the Docker sandbox (sandbox=docker)"
        )


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, keyword and rest of each instruction; comments and continuations resolved."""
    start, parts = 0, list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        start = start if parts else number
        parts.append(stripped.removesuffix("\\"))
        if not stripped.endswith("\\"):
            keyword, _, rest = "".join(parts).partition(" ")
            yield start, keyword.upper(), rest.strip()
            parts = []
    if parts:
        keyword, _, rest = "".join(parts).partition(" ")
        yield start, keyword.upper(), rest.strip()


def _base(rest: str, before: str, place: str) -> str:
    words = rest.split()
    if before or len(words) != 1 or words[0].startswith("--") or "$" in words[0]:
        raise TaskError(
            f"{place}: got FROM {rest}, expected one stage with a plain base: this task needs the "
            "Docker sandbox (sandbox=docker)"
        )
    return words[0]


def _split(rest: str, place: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise TaskError(f"{place}: got {rest!r}: {error}") from error


def _single(rest: str, place: str) -> str:
    words = _split(rest, place)
    if len(words) != 1:
        raise TaskError(f"{place}: got WORKDIR {rest!r}, expected one folder")
    return words[0]


def _variables(rest: str, env: Mapping[str, str], place: str) -> dict[str, str]:
    """ENV in both its forms: `NAME=value ...` and `NAME value`."""
    name, _, value = rest.partition(" ")
    if "=" not in name:
        pairs = [(name, value.strip())]
    else:
        words = [word.partition("=") for word in _split(rest, place)]
        if not all(separator for _, separator, _ in words):
            raise TaskError(f"{place}: got ENV {rest!r}, expected NAME=value ...")
        pairs = [(key, value) for key, _, value in words]
    for key, _ in pairs:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise TaskError(
                f"{place}: got the variable name {key!r}, expected letters, digits and _"
            )
    return {key: _expand(value, env) for key, value in pairs}


def _copy(rest: str, result: Dockerfile, line: int, place: str) -> CopyStep:
    words = _json_list(rest) or _split(rest, place)
    flags = [word for word in words if word.startswith("--")]
    words = [_expand(word, result.env) for word in words if not word.startswith("--")]
    if flags or len(words) < 2 or "<<" in rest:
        raise TaskError(
            f"{place}: got COPY {rest!r}, expected sources and a target, no flags or here-documents"
        )
    *sources, target = words
    into = target.endswith("/") or target in (".", "..") or len(sources) > 1
    return CopyStep(line, tuple(sources), _absolute(result.workdir, target), into)


def _run(rest: str, result: Dockerfile, place: str) -> str:
    if rest.startswith("--") or "<<" in rest:
        raise TaskError(
            f"{place}: got RUN {rest!r}, expected a command without flags or here-documents"
        )
    words = _json_list(rest)
    shell = shlex.join(words) if words else f"sh -c {shlex.quote(rest)}"
    return in_folder(shell, result.workdir, result.env)


def in_folder(command: str, workdir: str, env: Mapping[str, str]) -> str:
    """`command` in a subshell with its own directory and variables: the session keeps its own."""
    exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in env.items())
    return f"( cd {shlex.quote(workdir)} && {{ {exports}{command}\n}} )"


def _json_list(rest: str) -> list[str] | None:
    """The words of an exec form such as `["a", "b"]`; None for the shell form."""
    if not rest.startswith("["):
        return None
    try:
        words = json.loads(rest)
    except ValueError:
        return None
    return words if words and all(isinstance(word, str) for word in words) else None


def _absolute(workdir: str, path: str) -> str:
    return posixpath.normpath(posixpath.join("/", workdir, path))


def _expand(value: str, env: Mapping[str, str]) -> str:
    """Replace $NAME and ${NAME} by earlier ENV values; unknown names become empty, as in Docker."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: env.get(match[1] or match[2], ""), value)
