"""`python -m clawrl_gym.envs.swe make-bugs REPOSITORY OUT`: bugs in a repository, as instances.

Nothing of the repository runs outside of a sandbox, and nothing is written into it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from clawrl_gym.config import SandboxConfig
from clawrl_gym.core.errors import ClawError, ConfigError
from clawrl_gym.core.plugins import SANDBOXES
from clawrl_gym.core.processes.interrupt import end_process
from clawrl_gym.core.progress import NowAndThen
from clawrl_gym.envs.swe.bugs.attempts import Attempts, Setting
from clawrl_gym.envs.swe.bugs.candidates import Candidates, find_candidates
from clawrl_gym.envs.swe.bugs.head import Head, read_head
from clawrl_gym.envs.swe.bugs.installed import refuse_installed_copies
from clawrl_gym.envs.swe.bugs.maker import ARCHIVE, BugMaker, Bugs
from clawrl_gym.envs.swe.bugs.suite import LOG_PARSER, Suite, measure
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.env import sandboxes_of
from clawrl_gym.envs.swe.interpreter import SYSTEM_PYTHON, interpreter_at
from clawrl_gym.envs.swe.machine import require_package
from clawrl_gym.envs.swe.rows.archive import pack, with_archive
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.protected_files import ProtectedFiles

_USUAL_PYTHONS = (".venv/bin/python", "venv/bin/python")
_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """`count` reads a whole number above 0."""
    parser.add_argument("repository", metavar="REPOSITORY", help="folder of a git repository")
    parser.add_argument("out", metavar="OUT", help="folder for the instances; made, or resumed")
    parser.add_argument("--count", type=count, default=100, help="number of bugs (100)")
    parser.add_argument("--test-command", help="command for the tests: pytest, with your options")
    parser.add_argument(
        "--python",
        help="bin/python of a virtual environment with pytest and the repository's dependencies; "
        "default: REPOSITORY/.venv, else this machine's python3 with our pytest",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the tried changes (0)")
    parser.add_argument(
        "--timeout", type=count, default=300, help="seconds for one run of the tests (300)"
    )
    parser.add_argument(
        "--jobs", type=count, default=min(4, os.cpu_count() or 1), help="runs at a time"
    )
    parser.add_argument("--sandbox", choices=SANDBOXES.builtin, default="bubblewrap")
    parser.add_argument("--image", help="with --sandbox docker: image with the dependencies")


def make_bugs(args: argparse.Namespace) -> int:
    """Exit code 0 with bugs, 1 without any, 2 for what cannot be done."""
    console = Console(stderr=True, soft_wrap=True)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    maker: BugMaker | None = None
    code = 0
    try:
        maker = _prepare(args, say)
        maker.make(args.count, args.jobs)
    except KeyboardInterrupt:
        say("make-bugs: stopped")
        code = _INTERRUPTED
    except (ClawError, OSError) as error:
        say(f"make-bugs: {error}")
        code = 2
    if maker is None:
        return code
    bugs = maker.write(args.count)
    for line in _summary(bugs, args, stopped=code != 0):
        say(line)
    if code == _INTERRUPTED:
        end_process(code)  # what runs in sandboxes may take long
    return code or (0 if bugs.selection.used else 1)


def _prepare(args: argparse.Namespace, say: Callable[[str], None]) -> BugMaker:
    """Everything up to the first mutation. Raises ClawError."""
    require_package("swebench", "reads its tests' output")
    head = read_head(args.repository)
    python = _python_of(args)
    command = args.test_command or f"{'python3' if python == SYSTEM_PYTHON else 'python'} -m pytest"
    if "pytest" not in command:
        raise ConfigError(f"got --test-command {command!r}, expected one that runs pytest")
    for line in (*head.notes, f"{head.name} at {head.commit[:12]}: {command!r} by {python}"):
        say(line)
    folder = _folder_for(args.out, args.repository)
    packed = pack(head.files)
    archive = folder / ARCHIVE
    setting = Setting(head.commit, command, python, args.image or args.sandbox)
    attempts = Attempts(folder, setting)
    if not archive.is_file() or archive.read_bytes() != packed:
        archive.write_bytes(packed)
    config = _config(args)
    config.prepare(say)
    sandboxes = sandboxes_of(config)
    suite = Suite(with_archive(_instance(head), str(archive), python), command, sandboxes)
    baseline = attempts.baseline
    if baseline is None:
        baseline = measure(suite, args.timeout, say)
        attempts.begin(baseline)
    for note in baseline.notes:
        say(note)
    tests = ProtectedFiles.named_by(baseline.passing)
    candidates = find_candidates(head.files, tests, args.seed, args.repository)
    refuse_installed_copies(suite, candidates.texts)
    say(_plan(candidates, len(baseline.passing), len(attempts.by_name)))
    now_and_then = NowAndThen(say)

    def progress(bugs: int, tried: int) -> None:
        left = now_and_then.left(bugs, args.count)
        now_and_then(f"{bugs:,} of {args.count:,} bugs, {tried:,} tried{left}")

    return BugMaker(head, folder, suite, candidates, attempts, baseline, progress)


def _python_of(args: argparse.Namespace) -> str:
    """Raises TaskError for a --python that is no environment."""
    if SANDBOXES.capabilities_of(args.sandbox).images:
        if args.python is not None:
            raise ConfigError("got --python with --sandbox docker, whose --image has a Python")
        return SYSTEM_PYTHON
    if args.image is not None:
        raise ConfigError("got --image without --sandbox docker: only Docker has images")
    if args.python is not None:
        return interpreter_at(str(Path(args.python).expanduser().absolute())).path
    usual = (Path(args.repository).expanduser().absolute() / name for name in _USUAL_PYTHONS)
    present = next((path for path in usual if path.exists()), None)
    return SYSTEM_PYTHON if present is None else interpreter_at(str(present)).path


def _folder_for(out: str, repository: str) -> Path:
    """Raises ConfigError for one in the repository, of other things, or that cannot be made."""
    folder = Path(out).expanduser().absolute()
    if folder.resolve().is_relative_to(Path(repository).expanduser().resolve()):
        raise ConfigError(f"got OUT {out!r} inside of the repository, expected a folder elsewhere")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / ARCHIVE).exists():
        raise ConfigError(f"got OUT {out!r}, which holds other files: give a folder of its own")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"got OUT {out!r}, which cannot be made: {error.strerror}") from error
    return folder


def _instance(head: Head) -> Instance:
    """The repository as it is."""
    return Instance(head.name, head.name, "train", "", (), (), LOG_PARSER, "")


def _config(args: argparse.Namespace) -> SweEnvConfig:
    """Configuration that tasks are played with."""
    limits = SweEnvConfig().sandbox.model_dump()
    sandbox = SandboxConfig.of({**limits, "type": args.sandbox, "image": args.image})
    return SweEnvConfig(sandbox=sandbox)


def _plan(candidates: Candidates, tests: int, tried: int) -> str:
    before = f", {tried:,} of them tried before" if tried else ""
    return (
        f"{tests:,} tests pass; {candidates.count:,} changes of {len(candidates.by_place):,} "
        f"functions in {len(candidates.texts):,} file(s) can be tried{before}"
    )


def _summary(bugs: Bugs, args: argparse.Namespace, *, stopped: bool) -> list[str]:
    train, heldout = (len(bugs.rows[split]) for split in ("train", "heldout"))
    lines = [*bugs.selection.lines()] if bugs.selection.left_out else []
    made = f"{train + heldout:,} bugs in {args.out}: {train:,} to train on, {heldout:,} held out"
    if stopped:
        return [*lines, made, "the same command goes on"]
    if not bugs.selection.used:
        return [*lines, "no change is a bug: do the tests import the repository's own code?"]
    if train + heldout < args.count:
        lines.append(f"got {train + heldout:,}, expected {args.count:,}: there are no more changes")
    if not heldout:
        lines.append("all of them are in one function: a run holds some out that are in it, too")
    return [*lines, made, f"python -m clawrl_gym.envs.swe validate {args.out}"]
