"""Whether a foreign environment keeps the contract: it is played a step, where a worker would be.

A process of its own gets what a worker gets, the configuration and the import path, and nothing
else that this process knows. For each split it makes one reset and one step with the very code of
the rollout loop. An environment that hangs or ends its process ends that one only.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gymnasium import Space, spaces
from gymnasium.vector.utils import CloudpickleWrapper

from clawrl_gym.config import EnvConfig
from clawrl_gym.core.errors import ClawError, ConfigErrors
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.types import StopReason, TaskRef
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.episodes.environment_thread import EnvironmentThread
from clawrl_gym.rollout.episodes.progress import Progress

_LIMIT_S = 120.0
_OUTPUT_CHARS = 400
_NO_TEXT = (
    spaces.Box, spaces.Dict, spaces.Discrete, spaces.Graph, spaces.MultiBinary,
    spaces.MultiDiscrete, spaces.OneOf, spaces.Sequence, spaces.Tuple,
)  # fmt: skip
_WORDS = "hello"
"""An action of an environment whose space gives no text."""


@dataclass(slots=True)
class Findings:
    """Findings of the probe."""

    problems: list[str] = field(default_factory=list)
    """Breaches of the contract, by which a run would fail."""
    notes: list[str] = field(default_factory=list)
    """Findings that may be intended."""
    doing: str = "importing it"
    """The step that it was at last."""
    finished: bool = False


def import_path() -> str:
    """PYTHONPATH of workers: where this process finds its modules, they do."""
    paths = [str(Path.cwd()), *filter(None, sys.path), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(dict.fromkeys(paths))


def probe(config: EnvConfig, timeout_s: float = _LIMIT_S) -> Findings:
    """Play a step of each split in a process of its own."""
    try:
        pickled = pickle.dumps(CloudpickleWrapper(config))
    except Exception as error:  # noqa: BLE001 (the border to objects of anybody's)
        why = f"{type(error).__name__}: {error}"
        return Findings([f"it cannot be handed to a worker, which is another process: {why}"])
    with Scratch("probe") as folder:
        written = folder / "findings.json"
        ending = _run([sys.executable, "-m", __name__, str(written)], pickled, timeout_s)
        findings = _read(written)
    if not findings.finished:
        findings.problems.append(f"{findings.doing}: {ending}")
    return findings


def _run(command: list[str], pickled: bytes, timeout_s: float) -> str:
    """Run a process; returns how it ended, in words."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": import_path()},
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(pickled, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return f"it did not end within {timeout_s:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
    said = output.decode(errors="replace").strip()[-_OUTPUT_CHARS:]
    return f"it ended its process, with exit code {process.returncode}; its last words: {said!r}"


def _read(written: Path) -> Findings:
    try:
        return Findings(**json.loads(written.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return Findings()


def main() -> None:
    """The process of its own: `python -m clawrl_gym.rollout.probe FINDINGS`."""
    written = Path(sys.argv[1])
    findings = Findings()

    def note(doing: str) -> None:
        findings.doing = doing
        written.write_text(json.dumps(asdict(findings)), encoding="utf-8")

    note("importing it")
    config: EnvConfig = pickle.loads(sys.stdin.buffer.read()).fn
    asyncio.run(examine(config, findings, note))
    findings.finished = True
    note("")
    sys.stdout.flush()
    os._exit(0)  # threads of the environment must not hold it up


async def examine(
    config: EnvConfig, findings: Findings, note: Callable[[str], None] = lambda doing: None
) -> None:
    """Play it here; `note` hears what is being done."""
    environment = EnvironmentThread(config, 0)
    note("making it")
    try:
        made = await environment.call(config.make)
        findings.problems += _space_problems(made)
        await environment.call(made.close)
        sampler = TaskSampler.of(config, 0)
    except (ClawError, Exception) as error:  # noqa: BLE001 (the border to anybody's code)
        findings.problems.append(f"made in a process of its own, as workers do: {_words_of(error)}")
        return
    if findings.problems:
        return
    firsts: list[str] = []
    for task in _tasks(sampler):
        try:
            firsts.append(await _play(environment, task, made.action_space, findings, note))
        except (ClawError, Exception) as error:  # noqa: BLE001 (the border to anybody's code)
            words = _words_of(error)
            environment.discard()
            if not any(problem.endswith(words) for problem in findings.problems):
                findings.problems.append(f"{_label(task)}: {words}")
    if sampler.draws_seeds and not findings.problems:
        findings.notes += _seed_notes(firsts)


def _tasks(sampler: TaskSampler) -> Iterator[TaskRef]:
    if sampler.can_train:
        yield sampler.train(0)
    yield from sampler.heldout(1)


async def _play(
    environment: EnvironmentThread,
    task: TaskRef,
    action_space: object,
    findings: Findings,
    note: Callable[[str], None],
) -> str:
    """Two resets that must be equal, one step; the first observation."""
    label = _label(task)
    firsts: list[str] = []
    for _ in range(2):
        progress = Progress(environment, environment.call)
        note(f"{label}: reset")
        await progress.reset(task)
        _ = progress.tools, progress.system  # whether they can be read
        firsts.append(progress.observations[0])
    if firsts[0] != firsts[1]:
        findings.notes.append(
            f"{label}: reset(seed={task.seed}) gave two different first observations; episodes of "
            "a group are compared with each other, so a seed must decide all of a task"
        )
    if not firsts[0].strip():
        findings.notes.append(f"{label}: the first observation has no text: what is to be done?")
    note(f"{label}: step")
    stop: StopReason | None = await progress.step(_an_action(action_space))
    if stop is None:
        note(f"{label}: finish")
        await progress.finish()
    return firsts[0]


def _seed_notes(firsts: list[str]) -> Iterator[str]:
    yield (
        "it has no task_ids(split): held-out tasks are other seeds of it, and only it knows "
        "whether they are other tasks"
    )
    if len(set(firsts)) < len(firsts):
        yield (
            "a training seed and a held-out one gave the same first observation: if the seed "
            "changes nothing, success is measured on what was trained"
        )


def _space_problems(env: object) -> Iterator[str]:
    for kind in ("observation", "action"):
        space = getattr(env, f"{kind}_space", None)
        if isinstance(space, _NO_TEXT):
            yield (
                f"it has the {kind} space {space!r:.100}, expected one of text: wrap it in an "
                "environment that says in words what is seen and reads what is done"
            )


def _an_action(space: object) -> str:
    sample = space.sample() if isinstance(space, Space) else None
    return sample if isinstance(sample, str) else _WORDS


def _label(task: TaskRef) -> str:
    name = f"seed {task.seed}" if task.id is None else repr(task.id)
    return f"{'held-out' if task.split == 'heldout' else 'training'} task {name}"


def _words_of(error: BaseException) -> str:
    ours = isinstance(error, ClawError)
    return str(error) if ours else f"{type(error).__name__}: {error}"


def check(config: EnvConfig, name: str, say: Callable[[str], None]) -> None:
    """Probe it. Raises ConfigError with all that breaks the contract; `say` gets the rest."""
    findings = probe(config)
    if findings.problems:
        raise ConfigErrors(f"{name}: {problem}" for problem in dict.fromkeys(findings.problems))
    for line in findings.notes:
        say(f"{name}: {line}")


if __name__ == "__main__":
    main()
