"""Generated tasks, and what the tiny policy is trained on, stay the same to the byte.

The hashes belong to the shipped weights: `python -m tests.envs.test_golden_demonstrations`
writes them anew, which only a new recipe may do.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from clawrl_gym.envs.showcase.conversation.generated import FAMILIES as CONVERSATION_FAMILIES
from clawrl_gym.envs.showcase.conversation.generated import make_task as conversation_task
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.toolcall.families import FAMILIES as CALL_FAMILIES
from clawrl_gym.envs.showcase.toolcall.generated import make_task as call_task
from clawrl_gym.envs.showcase.toolcall.shop.families import FAMILIES as SHOP_FAMILIES
from clawrl_gym.envs.showcase.toolcall.shop.generated import shop_tasks
from tools.tiny_policy.conversations import Source, render
from tools.tiny_policy.phases import heldout_answers, phases
from tools.tiny_policy.tokenizer import untrained

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden_demonstrations.json"
PER_PHASE = 80
RENDERED = 15
NUMBERS = (0, 1, 123, 999)

PHASES = {phase.name: phase for phase in phases()}


def _ids(families: Iterable[str], prefix: str = "") -> list[str]:
    return [
        f"{prefix}{family}-{split}-{number:06d}"
        for family in families
        for split in ("train", "heldout")
        for number in NUMBERS
    ]


TASKS = {
    "call": (call_task, _ids(CALL_FAMILIES, "call-")),
    "shop": (shop_tasks().load, _ids(SHOP_FAMILIES, "shop-")),
    **{
        persona: (conversation_task, _ids(CONVERSATION_FAMILIES, f"{persona}-"))
        for persona in PERSONAS
    },
}


def plain(content: object) -> object:
    """JSON of the content alone: names of fields and functions may change."""
    if is_dataclass(content) and not isinstance(content, type):
        return [plain(getattr(content, field.name)) for field in fields(content)]
    if isinstance(content, Mapping):
        return [[plain(key), plain(part)] for key, part in content.items()]
    if isinstance(content, Set):
        return sorted(map(repr, content))
    if isinstance(content, list | tuple):
        return [plain(part) for part in content]
    return "a function" if callable(content) else content


def digest_of_tasks(kind: str) -> str:
    make, ids = TASKS[kind]
    return _digest([plain(make(task_id)) for task_id in ids])


def digest_of_phase(name: str) -> str:
    return _digest_of_source(PHASES[name].source, PHASES[name].plan.seed)


def digest_of_heldout() -> str:
    return _digest_of_source(heldout_answers(), 5)


def _digest_of_source(source: Source, seed: int) -> str:
    conversations = list(itertools.islice(source.conversations(seed), PER_PHASE))
    blank = untrained()
    texts = [render(blank, one.messages, one.tools) for one in conversations[:RENDERED]]
    return _digest([plain(conversations), texts])


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@pytest.mark.parametrize("kind", TASKS)
def test_generated_tasks_are_as_ever(kind: str) -> None:
    assert digest_of_tasks(kind) == json.loads(GOLDEN.read_text())["tasks"][kind]


@pytest.mark.parametrize("name", PHASES)
def test_demonstrations_of_a_phase_are_as_ever(name: str) -> None:
    assert digest_of_phase(name) == json.loads(GOLDEN.read_text())["phases"][name]


def test_demonstrations_for_measuring_are_as_ever() -> None:
    assert digest_of_heldout() == json.loads(GOLDEN.read_text())["heldout"]


if __name__ == "__main__":
    GOLDEN.write_text(
        json.dumps(
            {
                "tasks": {kind: digest_of_tasks(kind) for kind in TASKS},
                "phases": {name: digest_of_phase(name) for name in PHASES},
                "heldout": digest_of_heldout(),
            },
            indent=2,
        )
        + "\n"
    )
