"""Transfer from the agent's machine to the verifier's: what was worked on travels, as data.

The verifier's machine is made as the agent's was, from the task's own image and steps. Then what
the agent left in the work folder, and at the places that the task's words and tests name, takes the
place of what is there; nothing that runs does, and nothing that runs by itself or steers the
verifier's programs (`steering.py`): of those the image's own stay. PATH, HOME and all variables are
the image's.
"""

from __future__ import annotations

import posixpath
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.terminal import steering
from clawrl_gym.envs.terminal.folders import artifacts
from clawrl_gym.envs.terminal.folders.artifacts import Plain
from clawrl_gym.envs.terminal.python_order import put_machine_first
from clawrl_gym.envs.terminal.task import Task

_STEP_S = 60.0
_PROGRAM_FOLDERS = frozenset(("bin", "sbin", "lib", "lib64", "libexec", "etc", "node_modules"))
_MOST_TEXT_BYTES = 1 << 20
_NAME_ALL = (
    'cd /; set --; for f in * .[!.]*; do case "$f" in usr|bin|sbin|lib|lib32|lib64|libx32|boot'
    "|proc|sys|dev|run|etc|tests|logs|solution|oracle) ;; "
    '*) [ -e "$f" ] && set -- "$@" "$f";; esac; done'
)
"""The folders below / that may hold work, as the shell's arguments."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Environment of a fresh machine's shell."""

    home: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, sandbox: Sandbox) -> Surroundings:
        lines = sandbox.exec('printf "%s\\n%s" "$HOME" "$PATH"', _STEP_S).output.split("\n")
        home, path = (*lines, "", "")[:2]
        return cls(home if home.startswith("/") else "/root", tuple(path.split(":")))

    @property
    def homes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.home, "/root")))


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Facts about the transferred files that a grader's command needs."""

    exports: str = ""
    """Shell commands that set the variables which keep the machine's own programs first."""
    notes: tuple[str, ...] = ()
    """Notes on what was not transferred and perhaps should have been, in words."""


def hand_over(
    task: Task, agent: Sandbox, verifier: Sandbox, workdir: str, max_bytes: int
) -> HandedOver:
    """Put what the agent left on a machine that nobody has been on yet.

    Raises SandboxError when either sandbox is dead.
    """
    found = Surroundings.of(verifier)
    places: tuple[str, ...] = ()
    notes, modules = list[str](), set[str]()
    if task.takes != "artifacts":
        machines = _Both(agent, verifier, found, max_bytes, modules)
        places, notes = _hand_over_work(task, machines, workdir)
    is_data = partial(_is_data, (), found.homes)
    for archive in artifacts.collect_artifacts(agent, task.artifacts, max_bytes, is_data):
        notes.append(artifacts.unpack(verifier, archive))
    places = (*places, *(artifact.source for artifact in task.artifacts))
    folder = f"/.verifier-{secrets.token_hex(8)}"
    put_machine_first(verifier, folder, places, modules)
    exports = f"export PYTHONPATH={folder}${{PYTHONPATH:+:$PYTHONPATH}}"
    last = [entry for entry in found.path if entry in ("", ".", *places)]
    if last:
        first = [entry for entry in found.path if entry not in last]
        exports += f"; export PATH={shlex.quote(':'.join([*first, *filter(None, last)]))}"
    return HandedOver(exports, tuple(filter(None, notes)))


@dataclass(frozen=True, slots=True)
class _Both:
    """The two machines, and what is known of them."""

    agent: Sandbox
    verifier: Sandbox
    found: Surroundings
    max_bytes: int
    """Most bytes of one archive."""
    modules: set[str]
    """Names of the Python modules that the image has at the places; grows with each."""


def _hand_over_work(task: Task, machines: _Both, workdir: str) -> tuple[tuple[str, ...], list[str]]:
    """The places that were taken over, and what could not be."""
    work = (workdir,) if steering.may_be_work_folder(workdir) else ()
    texts = (task.instruction, *(_text(file.data) for file in task.grader_files.values()))
    named = [
        place
        for place in steering.named_places(texts, machines.found.home)
        if not any(steering.is_below(place, folder) for folder in work)
        and not _is_installation(machines.verifier, place)
    ]
    notes = [_replace(place, machines, is_work=place in work) for place in (*work, *named)]
    if task.takes == "all" or not work:
        notes.append(_add_the_rest(machines, work))
    return (*work, *named), notes


def _text(data: bytes) -> str:
    return data[:_MOST_TEXT_BYTES].decode(errors="replace")


def _replace(place: str, machines: _Both, *, is_work: bool) -> str:
    """Let what the agent left take the place of what is there, the image's programs spared."""
    verifier, found, max_bytes = machines.verifier, machines.found, machines.max_bytes
    spared = (*_spared(place, found.path), *_environments(verifier, place))
    is_data = partial(_is_data, spared, found.homes)
    excluded = " ".join(f"--exclude={shlex.quote(folder.strip('/'))}" for folder in spared)
    arguments = f"{excluded} -- {shlex.quote(place.strip('/'))}"
    raw = artifacts.pack(machines.agent, arguments, max_bytes)
    own = artifacts.pack(verifier, arguments, max_bytes)
    if raw is None and own is None and not is_work:
        return ""
    machines.modules.update(artifacts.module_names(own or b""))
    left = artifacts.cleaned(raw, Plain((place,), is_data, links=True), max_bytes) if raw else None
    keeps = Plain((place,), lambda path, data: data is not None and not is_data(path, data))
    kept = artifacts.cleaned(own, keeps, max_bytes) if own else None
    if left is None and not is_work and _exists(machines.agent, place):
        return f"{place} could not be handed over: it is unreadable or too large"
    _empty(verifier, place, spared)
    notes = [artifacts.unpack(verifier, archive) for archive in (kept, left) if archive]
    if left is None and is_work:
        notes.append(
            f"{place} could not be handed over: it is gone, unreadable or larger than "
            f"{max_bytes >> 20} MiB (a third of env.sandbox.disk_mb)"
        )
    return "; ".join(filter(None, notes))


def _add_the_rest(machines: _Both, work: Sequence[str]) -> str:
    """Add all else that the agent left beside the system, over what is there."""
    found, max_bytes = machines.found, machines.max_bytes
    raw = artifacts.pack(machines.agent, '-- "$@"', max_bytes, before=_NAME_ALL)
    spared = [entry for entry in found.path if entry.startswith("/")]
    for folder in ("", "/opt", "/srv", "/home"):
        spared += _environments(machines.verifier, folder)

    def is_rest(path: str, data: bytes | None) -> bool:
        is_done = any(steering.is_below(path, place) for place in work)
        may_travel = not is_done and steering.may_hold_work(path) and path != "/tmp"
        return may_travel and _is_data(spared, found.homes, path, data)

    rest = artifacts.cleaned(raw, Plain(("/",), is_rest, links=True), max_bytes) if raw else None
    if rest is None:
        return f"nothing beside the work folder was handed over: more than {max_bytes >> 20} MiB"
    return artifacts.unpack(machines.verifier, rest)


def _is_data(spared: Sequence[str], homes: Sequence[str], path: str, data: bytes | None) -> bool:
    if any(steering.is_below(path, folder) for folder in spared):
        return False
    if steering.steers(path, homes):
        return False
    return data is None or not steering.has_settings_of_runners(path, data)


def _spared(place: str, path: Sequence[str]) -> tuple[str, ...]:
    """The folders right below a place in which programs of the image are: PATH leads there."""
    inside = [entry for entry in path if steering.is_below(entry, place) and entry != place]
    names = {posixpath.relpath(entry, place).split("/")[0] for entry in inside}
    return tuple(sorted(posixpath.join(place, name) for name in names))


def _environments(sandbox: Sandbox, place: str) -> tuple[str, ...]:
    """Virtual environments and installed packages of the image right below a place."""
    listing = (
        f"for d in {shlex.quote(place)}/* {shlex.quote(place)}/.[!.]*; do "
        'if [ -e "$d/pyvenv.cfg" ] || [ -e "$d/conda-meta" ] || [ "${d##*/}" = node_modules ]; '
        "then printf '%s\\n' \"$d\"; fi; done"
    )
    lines = sandbox.exec(listing, _STEP_S).output.splitlines()
    return tuple(line for line in lines if line.startswith(f"{place}/"))


def _is_installation(sandbox: Sandbox, place: str) -> bool:
    """Whether the image has programs there, or around it, which the verifier may run."""
    above = [place]
    while (folder := posixpath.dirname(above[-1])) not in ("/", "/opt", "/home", "/root", "/srv"):
        above.append(folder)
    signs = [f"{folder}/{name}" for folder in above for name in ("bin", "pyvenv.cfg", "conda-meta")]
    if set(place.split("/")) & _PROGRAM_FOLDERS:
        signs.append(place)
    return any(_exists(sandbox, sign) for sign in signs)


def _exists(sandbox: Sandbox, path: str) -> bool:
    quoted = shlex.quote(path)
    return sandbox.exec(f"[ -e {quoted} ] || [ -L {quoted} ]", _STEP_S).exit_code == 0


def _empty(sandbox: Sandbox, place: str, spared: Sequence[str]) -> None:
    but = " ".join(f"! -path {shlex.quote(folder)}" for folder in spared)
    quoted = shlex.quote(place)
    sandbox.exec(
        f"if [ -d {quoted} ]; then find {quoted} -mindepth 1 -maxdepth 1 {but} -exec rm -rf -- {{}}"
        f" +; else rm -f -- {quoted}; fi",
        _STEP_S,
    )
