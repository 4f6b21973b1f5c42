"""Hashes of generated tasks, written once: what an id stands for never changes.

`python -m tests.project.golden_tasks` writes them anew, for a family that is added.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.conversation.composed.generated import composed_tasks as talk_tasks
from clawrl_gym.envs.showcase.gui.composed.generated import composed_tasks as desk_tasks
from clawrl_gym.envs.showcase.gui.composed.generated import plain_tasks as plain_desk_tasks
from clawrl_gym.envs.showcase.swe.composed.generated import composed_instances
from clawrl_gym.envs.showcase.swe.corpus import corpus_instances
from clawrl_gym.envs.showcase.terminal.composed.generated import composed_tasks, plain_tasks
from clawrl_gym.envs.showcase.terminal.generated import generated_tasks
from clawrl_gym.envs.showcase.toolcall.composed.generated import composed_tasks as office_tasks
from clawrl_gym.envs.showcase.toolcall.composed.generated import plain_tasks as plain_office_tasks

FOLDER = Path(__file__).parents[1] / "fixtures/golden"
SOURCES = {
    "terminal": (generated_tasks(), 22),
    "swe": (corpus_instances(), 26),
    "composed": (composed_tasks(), 7),
    "plain": (plain_tasks(), 3),
    "office": (office_tasks(), 9),
    "plain_office": (plain_office_tasks(), 3),
    "desk": (desk_tasks(), 10),
    "plain_desk": (plain_desk_tasks(), 3),
    "repo": (composed_instances(), 9),
    "talk": (talk_tasks(), 11),
}
"""Name -> source of tasks, number of families."""
TASKS: dict[Split, int] = {"train": 8, "heldout": 4}
"""Number of tasks of each family."""


def plain(value):
    """As JSON: dataclasses by class and field values in order, so that a field may be renamed; what
    is the default is left out, so that a field may be added."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = [(getattr(value, field.name), field) for field in dataclasses.fields(value)]
        return [type(value).__name__, *(plain(v) for v, field in values if v != field.default)]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Mapping):
        return [[plain(key), plain(entry)] for key, entry in value.items()]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    return value


def digest(task):
    return hashlib.sha256(json.dumps(plain(task)).encode()).hexdigest()[:16]


def digests(name):
    source, families = SOURCES[name]
    ids = [
        task_id
        for split, count in TASKS.items()
        for task_id in source.ids(split)[: count * families]
    ]
    return {task_id: digest(source.load(task_id)) for task_id in ids}


def recorded(name):
    return json.loads((FOLDER / f"{name}_tasks.json").read_text())


if __name__ == "__main__":
    for name in SOURCES:
        (FOLDER / f"{name}_tasks.json").write_text(json.dumps(digests(name), indent=0) + "\n")
