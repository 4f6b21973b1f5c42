"""One row of a data set as a task.

    {"prompt": "What is 17 * 23?", "answer": "391"}

The prompt is a text, or messages: perhaps one of the system, then the user's and the assistant's in
turn, the user's last. Further columns with a meaning: `system`, `id` (else the row's place),
`family`, `split` (train; heldout, test and validation are held out) and `solution` (a reply that
earns everything; else the answer is one). All columns are there for reward functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.text import MOST_CHARS
from clawrl_gym.core.types import Split
from clawrl_gym.envs.data_file import require_text
from clawrl_gym.envs.dataset.config import DatasetEnvConfig

SPLITS: Mapping[str, Split] = MappingProxyType(
    {"train": "train", "heldout": "heldout", "test": "heldout", "validation": "heldout"}
)
"""Words of a column `split`."""
_ID = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_MESSAGE = {"role", "content"}
ChatMessage = dict[str, str]
"""A message of a prompt: role and content."""


@dataclass(frozen=True, slots=True)
class RowTask:
    """A row that can be used."""

    id: str
    family: str
    split: Split
    system: str
    """The system message; empty: there is none."""
    turns: tuple[ChatMessage, ...]
    """The prompt without its system message; the last one is the user's."""
    columns: Mapping[str, object]
    """All columns by name; the right answer as `answer`."""
    solution: str | None
    """A reply that earns everything; None: nobody knows one."""

    @property
    def prompt(self) -> str:
        """The last user message."""
        return self.turns[-1]["content"]

    @property
    def messages(self) -> list[ChatMessage]:
        """The whole prompt."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.turns]

    @property
    def content(self) -> str:
        """What is asked: rows with the same content belong to one split."""
        return json.dumps(self.turns)


def row_task(place: str, row: object, config: DatasetEnvConfig) -> tuple[RowTask, Split | None]:
    """The task of a row, and the split that it names. Raises TaskError for one that is no task.

    Without a named split the task's own is `train`.
    """
    if isinstance(row, ValueError):
        raise TaskError(f"not a row: {row}")
    if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
        raise TaskError(f"got {type(row).__name__}, expected an object with a prompt")
    require_text(dict(row))
    system, turns = _prompt(row, config.prompt)
    named = row.get("split")
    if named is not None and not (isinstance(named, str) and named in SPLITS):
        raise TaskError(f"got the split {named!r:.50}, expected one of {', '.join(SPLITS)}")
    columns = dict(row)
    if config.answer in row:
        columns["answer"] = row[config.answer]
    split = SPLITS[named] if isinstance(named, str) else None
    family = _text(row, "family") or "dataset"
    task = RowTask(
        _id(row, place), family, split or "train", system, turns, columns, _solution(columns)
    )
    return task, split


def _prompt(row: Mapping[str, object], column: str | None) -> tuple[str, tuple[ChatMessage, ...]]:
    """The system message and the turns. Raises TaskError."""
    name = column or ("messages" if "prompt" not in row and "messages" in row else "prompt")
    if name not in row:
        raise TaskError(f"got no column {name!r}, expected the prompt there (env.prompt=COLUMN)")
    prompt = row[name]
    if isinstance(prompt, str):
        messages = [{"role": "user", "content": prompt}]
    elif isinstance(prompt, list | tuple):
        messages = [_message(name, one) for one in prompt]
    else:
        raise TaskError(f"{name}: got {type(prompt).__name__}, expected a text or messages")
    system = _text(row, "system") or ""
    if messages and messages[0]["role"] == "system":
        if system:
            raise TaskError(f"{name}: got a system message beside the column 'system'")
        system = messages.pop(0)["content"]
    _check_turns(name, messages)
    chars = len(system) + sum(len(message["content"]) for message in messages)
    if chars > MOST_CHARS:
        raise TaskError(f"{name}: got {chars:,} characters, expected at most {MOST_CHARS:,}")
    return system, tuple(messages)


def _message(name: str, message: object) -> ChatMessage:
    if not isinstance(message, Mapping) or not all(
        isinstance(message.get(key), str) for key in _MESSAGE
    ):
        raise TaskError(f"{name}: got the message {message!r:.80}, expected a role and a text")
    extra = [key for key, value in message.items() if key not in _MESSAGE and value is not None]
    if extra:
        raise TaskError(f"{name}: got a message with {extra[0]!r:.50}, expected role and content")
    return {"role": cast(str, message["role"]), "content": cast(str, message["content"])}


def _check_turns(name: str, turns: list[ChatMessage]) -> None:
    roles = [turn["role"] for turn in turns]
    expected = ["assistant" if at % 2 else "user" for at in range(len(roles))]
    if roles != expected or not len(roles) % 2:
        raise TaskError(
            f"{name}: got the roles {', '.join(roles) or 'of nobody'}, expected user and assistant "
            "in turn, the user first and last, behind one system message at most"
        )
    if not turns[-1]["content"].strip():
        raise TaskError(f"{name}: got an empty prompt")


def _id(row: Mapping[str, object], place: str) -> str:
    name = row.get("id")
    if name is None:
        return place
    if isinstance(name, bool) or not isinstance(name, str | int) or not _ID.fullmatch(str(name)):
        raise TaskError(f"id: got {name!r:.80}, expected a text of at most 200 characters")
    return str(name)


def _text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise TaskError(f"{name}: got {type(value).__name__}, expected a text")
    return value


def _solution(columns: Mapping[str, object]) -> str | None:
    solution = columns.get("solution")
    answer = columns.get("answer") if solution is None else solution
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    return str(answer)
