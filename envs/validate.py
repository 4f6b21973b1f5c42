"""Checks tasks by playing them: the oracle must earn 1.0 and doing nothing 0.0.

A task that a loader leaves out does not pass either, and is reported with its reason.

`main` is the command `python -m clawrl_gym.envs.TYPE validate PATH` of every environment that has
one. What goes wrong in a task is a row of the table, never the end of the check.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Protocol, SupportsFloat

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clawrl_gym.core.errors import ClawError, ConfigError, EnvError, boundary
from clawrl_gym.core.plugins import SANDBOXES
from clawrl_gym.core.progress import NowAndThen
from clawrl_gym.core.types import Split
from clawrl_gym.envs.report import failures_of
from clawrl_gym.envs.selection import LeftOut, Selection


class OracleEnv(Protocol):
    """One of our environments, as far as its tasks are played here."""

    @property
    def selection(self) -> Selection | None: ...
    def task_ids(self, split: Split) -> Sequence[str]: ...
    def reset(
        self, *, options: dict[str, object] | None = None
    ) -> tuple[str, Mapping[str, object]]: ...
    def solve(self) -> Iterable[str]: ...
    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, Mapping[str, object]]: ...
    def finish(self) -> float: ...
    def close(self) -> None: ...


MakeEnv = Callable[[argparse.Namespace, Mapping[str, object]], OracleEnv]
"""Takes the parsed arguments and sandbox options, to be laid over the environment's own."""
Prepare = Callable[[argparse.Namespace, Mapping[str, object], Callable[[str], None]], None]
AddCommands = Callable[["argparse._SubParsersAction[argparse.ArgumentParser]"], None]
_SPLITS: tuple[Split, ...] = ("train", "heldout")


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """Result of checking one task."""

    task: str
    family: str
    oracle: float | None
    """None: it came to no reward."""
    noop: float | None
    error: str
    """Reason why there is no reward; empty when there is one."""
    seconds: float
    failures: tuple[str, ...] = ()
    """Failures in the oracle's grade, such as tests that did not run."""

    @property
    def ok(self) -> bool:
        return not self.error and self.oracle == 1.0 and self.noop == 0.0

    @property
    def verdict(self) -> str:
        """Verdict in words: what is wrong with the task, or "ok"."""
        if self.error:
            return self.error
        problems = []
        if self.oracle != 1.0:
            missing = f" ({'; '.join(self.failures)})" if self.failures else ""
            problems.append(f"the oracle earns {self.oracle:g}, expected 1{missing}")
        if self.noop != 0.0:
            problems.append(f"doing nothing earns {self.noop:g}, expected 0")
        return "; ".join(problems) or "ok"


def validate(
    env: OracleEnv, ids: Sequence[str], say: Callable[[TaskCheck], None] = lambda checked: None
) -> list[TaskCheck]:
    """Play each task twice; `say` hears of each when it is done."""
    checks = []
    for task_id in ids:
        checks.append(_check(env, task_id))
        say(checks[-1])
    return checks


def validate_with(
    envs: Sequence[OracleEnv],
    ids: Sequence[str],
    say: Callable[[TaskCheck], None] = lambda checked: None,
) -> list[TaskCheck]:
    """The same with several environments at a time; `say` is called by their threads."""
    free: queue.SimpleQueue[OracleEnv] = queue.SimpleQueue()
    for env in envs:
        free.put(env)

    def check(task_id: str) -> TaskCheck:
        env = free.get()
        try:
            return validate(env, [task_id], say)[0]
        finally:
            free.put(env)

    with ThreadPoolExecutor(len(envs)) as pool:
        return list(pool.map(check, ids))


def _check(env: OracleEnv, task_id: str) -> TaskCheck:
    start = time.monotonic()
    family, errors, failures = "", list[str](), tuple[str, ...]()
    rewards: list[float | None] = []
    for play in (_oracle, _nothing):
        try:
            with boundary(EnvError, f"task {task_id!r}"):
                _, info = env.reset(options={"task": task_id})
                family = str(info.get("family") or family)
                rewards.append(play(env))
                if play is _oracle:
                    failures = failures_of(str(getattr(env, "report", "")))
        except ClawError as error:
            rewards.append(None)
            errors.append(str(error))
    oracle, noop = rewards
    problem = "; ".join(dict.fromkeys(errors))  # what spoils both is said once
    return TaskCheck(task_id, family, oracle, noop, problem, time.monotonic() - start, failures)


def _oracle(env: OracleEnv) -> float:
    total = 0.0
    for action in env.solve():
        _, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            return total
    return total + float(env.finish())


def _nothing(env: OracleEnv) -> float:
    return float(env.finish())


def main(
    prog: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    make_env: MakeEnv,
    arguments: Sequence[str] | None = None,
    *,
    prepare: Prepare | None = None,
    add_commands: AddCommands | None = None,
) -> int:
    """Run the command: 0 when every task holds, 1 when one does not or was left out, 2 for a wrong
    command.

    `add_commands` adds further ones; each sets the default `run`, which makes its exit code.
    """
    args = _parse(prog, add_arguments, add_commands, arguments)
    if args.command != "validate":
        return int(args.run(args))
    console, progress = Console(), Console(stderr=True)
    sandbox = {"type": args.sandbox}
    envs: list[OracleEnv] = []
    try:
        if prepare is not None:
            prepare(args, sandbox, lambda line: progress.print(line, markup=False))
        envs.append(make_env(args, sandbox))
        ids = _select_ids(envs[0], args)
        envs += [make_env(args, sandbox) for _ in range(min(args.jobs, len(ids)) - 1)]
        checks = _run(envs, ids, progress)
        selection = envs[0].selection or Selection(len(ids))
    except ClawError as error:
        progress.print(f"{prog}: {error}", markup=False, soft_wrap=True)
        return 2
    finally:
        for env in envs:
            env.close()
    if args.json:
        checks += [_left_out(entry) for entry in selection.left_out]
        rows = [{**asdict(checked), "ok": checked.ok} for checked in checks]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    else:
        show(checks, console)
        for line in selection.lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0 if all(checked.ok for checked in checks) and not selection.left_out else 1


def _left_out(entry: LeftOut) -> TaskCheck:
    return TaskCheck(entry.name, "", None, None, f"left out: {entry.reason}", 0.0)


def _run(envs: Sequence[OracleEnv], ids: Sequence[str], progress: Console) -> list[TaskCheck]:
    finished: list[TaskCheck] = []
    with ExitStack() as stack:
        tell = NowAndThen(progress.print)
        if progress.is_terminal:
            status = stack.enter_context(progress.status(f"0 of {len(ids):,} tasks"))
            tell = NowAndThen(status.update, every_s=0)

        def say(checked: TaskCheck) -> None:
            finished.append(checked)
            left = tell.left(len(finished), len(ids))
            tell(f"{len(finished):,} of {len(ids):,} tasks{left}")

        return validate_with(envs, ids, say)


def _select_ids(env: OracleEnv, args: argparse.Namespace) -> list[str]:
    """The ids that the command asks for. Raises ConfigError when there are none."""
    splits = _SPLITS if args.split == "all" else (args.split,)
    id_sets = [env.task_ids(split) for split in splits]
    every = chain.from_iterable(id_sets)
    if args.ids is None:
        selected = list(islice(every, args.limit))
    else:
        selected = [name for name in args.ids.split(",") if name]
        unknown = sorted({name for name in selected if not any(name in ids for ids in id_sets)})
        if unknown:
            _refuse_left_out(unknown, env.selection)
            some = list(islice(every, 20))
            raise ConfigError(f"got --ids {','.join(unknown[:5])}, expected some of {some}")
    if not selected:
        raise ConfigError(f"there is no task in {args.path!r} (--split {args.split})")
    return selected[: args.limit]


def _refuse_left_out(names: Sequence[str], selection: Selection | None) -> None:
    if selection is None:
        return
    for name in names:
        reason = selection.reason_of(name)
        if reason is not None:
            raise ConfigError(f"got --ids {name}, which cannot be used: {reason}")


def _parse(
    prog: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    add_commands: AddCommands | None,
    arguments: Sequence[str] | None,
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=prog)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "validate", help="play every task: the oracle must earn 1.0 and doing nothing 0.0"
    )
    command.add_argument("path", metavar="PATH", help="value of env.tasks or env.instances")
    command.add_argument("--sandbox", choices=("auto", *SANDBOXES.builtin), default="auto")
    command.add_argument("--split", choices=("all", *_SPLITS), default="all")
    command.add_argument("--ids", help="only these tasks, separated by commas")
    command.add_argument("--limit", type=count, help="only this many tasks")
    command.add_argument(
        "--jobs", type=count, default=min(4, os.cpu_count() or 1), help="tasks at a time"
    )
    command.add_argument("--json", action="store_true", help="print the rows as JSON")
    add_arguments(command)
    if add_commands is not None:
        add_commands(commands)
    return parser.parse_args(arguments)


def count(text: str) -> int:
    """A whole number above 0, for argparse."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 1_000_000:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number above 0")
    return int(text)


def show(checks: Sequence[TaskCheck], console: Console) -> None:
    """The rows as a table, and one line of verdict."""
    table = Table(box=box.SIMPLE_HEAD, header_style="grey62", padding=(0, 1))
    table.add_column("task", overflow="fold")
    for name in ("oracle", "no-op", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for checked in checks:
        verdict = Text(checked.verdict, style="green3" if checked.ok else "bold red3")
        rewards = (_number(checked.oracle), _number(checked.noop))
        table.add_row(Text(checked.task), *rewards, f"{checked.seconds:.1f}", verdict)
    console.print(table)
    good = sum(checked.ok for checked in checks)
    style = "bold green3" if good == len(checks) else "bold red3"
    console.print(Text(f"{good} of {len(checks)} tasks hold.", style=style))


def _number(reward: float | None) -> str:
    return "-" if reward is None else f"{reward:g}"
