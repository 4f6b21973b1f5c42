"""Tasks in OSWorld's JSON that happen in a browser: id, instruction, config, evaluator.

A file of one task, a folder, or an index `{domain: [ids]}` beside `examples/DOMAIN/ID.json`. What a
task needs and is not here is named, all of it at once; such a task is left out, and with none left,
or none but tasks to be given up, the source is refused. Our own key `sites`
({"host": "folder beside the file"}) lets a task run without a network.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clawrl_gym.core.errors import TaskError, boundary
from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.browser.network import Allowed
from clawrl_gym.envs.gui.osworld import Opaque, RawTask
from clawrl_gym.envs.gui.osworld.convert import NAME, PREFIX, malformed, missing, task_of
from clawrl_gym.envs.gui.osworld.grading import OsworldGrader
from clawrl_gym.envs.gui.task import GuiTask
from clawrl_gym.envs.selection import LeftOut, Selection

HELDOUT_SHARE = 5
"""One task in this many is held out where no second path says which."""
MAX_FILE_BYTES = 4 * 2**20
MAX_TASKS = 10_000


@dataclass(frozen=True, slots=True)
class OsworldTasks:
    """Tasks that were read before."""

    tasks: Mapping[str, GuiTask]
    where: str
    selection: Selection
    """The used part of the files, and why not the rest."""

    def ids(self, split: Split) -> Sequence[str]:
        return [task.id for task in self.tasks.values() if task.split == split]

    def load(self, task_id: str) -> GuiTask:
        if (reason := self.selection.reason_of(task_id)) is not None:
            raise TaskError(f"task {task_id!r} cannot be used here: {reason}")
        if task_id not in self.tasks:
            raise TaskError(
                f"got task {task_id!r}, expected one of the {len(self.tasks)} of {self.where}, "
                f"such as {next(iter(self.tasks), 'none')!r}"
            )
        return self.tasks[task_id]


def open_osworld(
    path: Path, allow: Sequence[str] = (), heldout: Path | None = None
) -> OsworldTasks:
    """The usable tasks of a path; with `heldout` all of it are train tasks, and those of the other
    held out, else a task's content decides. `allow`: hosts of the net that may be reached.

    Raises TaskError when none is usable or all are to be given up, or a task is in both paths;
    ConfigError for a bad host.
    """
    admitted = [Allowed.read(entry) for entry in allow]
    tasks, left_out = _read(path, admitted)
    if heldout is not None:
        heldout_tasks, heldout_left_out = _read(heldout, admitted)
        _refuse_shared(tasks, heldout_tasks, path, heldout)
        tasks = {**_all(tasks, "train"), **_all(heldout_tasks, "heldout")}
        left_out += [entry for entry in heldout_left_out if entry.name not in tasks]
    selection = Selection(len(tasks), tuple(left_out))
    priced = _priced({name: task for name, (task, _) in tasks.items()})
    return OsworldTasks(priced, str(path), selection)


def _priced(tasks: Mapping[str, GuiTask]) -> Mapping[str, GuiTask]:
    """Giving up wrongly costs what giving up all would earn, over a split and its families."""
    sets: dict[tuple[Split, str], list[GuiTask]] = {}
    for task in tasks.values():
        for family in ("", task.family):
            sets.setdefault((task.split, family), []).append(task)
    costs: dict[Split, float] = {}
    for (split, _), members in sets.items():
        infeasible = sum(_is_infeasible(task) for task in members)
        if infeasible < len(members):
            cost = math.ceil(1000 * infeasible / (len(members) - infeasible)) / 1000
            costs[split] = max(cost, costs.get(split, 0.0))
    return {
        name: replace(task, grader=replace(task.grader, giving_up_costs=costs.get(task.split, 0.0)))
        if isinstance(task.grader, OsworldGrader) and not task.grader.infeasible
        else task
        for name, task in tasks.items()
    }


def _is_infeasible(task: GuiTask) -> bool:
    return isinstance(task.grader, OsworldGrader) and task.grader.infeasible


_Read = dict[str, tuple[GuiTask, str]]
"""Tasks and hashes of what they ask for, by id."""


def _read(path: Path, allow: Sequence[Allowed]) -> tuple[_Read, list[LeftOut]]:
    tasks: _Read = {}
    left_out: list[LeftOut] = []
    contents: dict[str, str] = {}
    for number, file in enumerate(_files(path), 1):
        if isinstance(file, TaskError):
            left_out.append(LeftOut(f"{path.name}: entry {number}", str(file)))
            continue
        name = f"{PREFIX}{file.stem}"
        try:
            with boundary(TaskError, f"{file}"):
                raw = _json(file)
                name, content = _name(raw, file), _content(raw)
                lacking = list(dict.fromkeys([*malformed(raw), *missing(raw, file, allow)]))
                if name in tasks:
                    raise TaskError(f"it is a second task {name!r}, in {file.name}")
                if lacking:
                    raise TaskError("; ".join(lacking))
                if content in contents:
                    raise TaskError(f"it asks for the same as {contents[content]!r}")
                tasks[name] = task_of(name, raw, file, split_of(content)), content
                contents[content] = name
        except TaskError as why:
            left_out.append(LeftOut(str(file) if name in tasks else name, str(why)))
    selection = Selection(len(tasks), tuple(left_out))
    selection.require_some(str(path))
    _refuse_infeasible(tasks, selection, path)
    return tasks, left_out


def _refuse_infeasible(tasks: _Read, selection: Selection, path: Path) -> None:
    """Giving up at once would be all that is learned. Raises TaskError."""
    if all(_is_infeasible(task) for task, _ in tasks.values()):
        reasons = "".join(f"\n{line}" for line in selection.lines())
        raise TaskError(
            f"{path}: all {len(tasks)} tasks that can be used here are infeasible: give_up solves "
            f"each of them, so nothing can be measured or learned with them{reasons}"
        )


def _refuse_shared(train: _Read, heldout: _Read, path: Path, heldout_path: Path) -> None:
    train_contents = {content: name for name, (_, content) in train.items()}
    twins = {
        name: name if name in train else train_contents[content]
        for name, (_, content) in heldout.items()
        if name in train or content in train_contents
    }
    if twins:
        name, twin = next(iter(twins.items()))
        raise TaskError(
            f"{len(twins)} of the {len(heldout)} held-out tasks of {heldout_path} are train tasks "
            f"of {path} too, such as {name!r} ({twin!r}): leave env.heldout out to have one path "
            "split by content"
        )


def _all(tasks: _Read, split: Split) -> _Read:
    return {name: (replace(task, split=split), content) for name, (task, content) in tasks.items()}


def _files(path: Path) -> Iterator[Path | TaskError]:
    """The files of single tasks that a path stands for, or why an entry of an index names none."""
    files: list[Path | TaskError]
    if path.is_dir():
        found = sorted(file for file in path.rglob("*.json") if file.is_file())
        files = [file for file in found if _may_be_task(file)]
    else:
        raw = _json(path)
        files = [path] if _is_task(raw) else list(_of_index(raw, path))
    if not files or len(files) > MAX_TASKS:
        raise TaskError(f"{path}: got {len(files)} tasks, expected 1 to {MAX_TASKS}")
    yield from files


def _may_be_task(file: Path) -> bool:
    """Whether it is a task, or cannot be read and so may be one; an index is none."""
    try:
        return _is_task(_json(file))
    except TaskError:
        return True


def _is_task(raw: Opaque) -> bool:
    return isinstance(raw, dict) and "instruction" in raw


def _of_index(raw: Opaque, path: Path) -> Iterator[Path | TaskError]:
    for domain, names in raw.items() if isinstance(raw, dict) else ():
        for name in names if isinstance(names, list) else (None,):
            if not all(isinstance(part, str) and NAME.fullmatch(part) for part in (domain, name)):
                yield TaskError(f"got {domain!r}: {name!r}, expected names without a path")
                continue
            places = (path.parent / "examples" / domain, path.parent / domain)
            files = [place / f"{name}.json" for place in places]
            existing = next((file for file in files if file.is_file()), None)
            yield existing or files[0]  # which is left out: there is no such file


def _name(raw: Opaque, file: Path) -> str:
    task_id = raw.get("id") if isinstance(raw, dict) else None
    if not (isinstance(task_id, str) and NAME.fullmatch(task_id)):
        raise TaskError(f"{file}: got id {task_id!r}, expected letters, digits, '-', '_' and '.'")
    return f"{PREFIX}{task_id}"


def split_of(content: str) -> Split:
    """The one split that a content belongs to, whatever its id."""
    return "heldout" if int(content[:8], 16) % HELDOUT_SHARE == 0 else "train"


def _content(raw: RawTask) -> str:
    """A hash of what is asked for and how it is judged, whatever the id."""
    request = {key: raw.get(key) for key in ("instruction", "config", "evaluator")}
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _json(file: Path) -> Opaque:
    if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
        raise TaskError(f"{file}: expected a file of at most {MAX_FILE_BYTES} bytes")
    try:
        return json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{file} is not JSON: {error}") from None
