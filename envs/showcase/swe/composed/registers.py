"""Files of a repository in which reports stand: open ones, and others that are done or declined.

No form of such a file, and no way to point at one, is used in both splits.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices
from clawrl_gym.envs.showcase.swe.composed.plan import Register

State = Literal["open", "done", "declined"]
_WIDTH = 88
_UNNAMED = 4
"""One request in this many does not name the file."""
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
PEOPLE: Choices = MappingProxyType(
    {
        "train": ("Mira", "Tomas", "Aiko", "Jonas", "Priya", "Leila", "Pavel", "Noor"),
        "heldout": ("Sora", "Emil", "Wanda", "Kofi", "Ines"),
    }
)
"""People who report things."""
POINTERS: Choices = MappingProxyType(
    {
        "train": (
            "The rest is in {file}: what is still open there has to be fixed, too.",
            "More of it stands in {file}. Do what is open; what is done or declined stays so.",
            "There is also {file}, with further reports. The open ones are part of this.",
            "And work off {file} as well, as far as it is open.",
            "See {file} for others: those that nobody has done or declined are yours, too.",
        ),
        "heldout": (
            "{file} has others, of which the open ones belong to this job as well.",
            "Do not forget {file}: each open entry counts.",
        ),
    }
)
"""Pointers of a request that tells other things itself."""
UNNAMED: Choices = MappingProxyType(
    {
        "train": (
            "The rest is in a file of this repository in which we keep reports: find it, and fix "
            "what is open there, too.",
            "There are further reports somewhere in the repository. The open ones are part of "
            "this.",
            "Look for our list of reports in the repository as well: what is open on it counts.",
        ),
        "heldout": (
            "Others are written down in the repository, wherever that was: the open ones belong "
            "to this job.",
            "More was noted in the repository itself; each open note counts.",
        ),
    }
)
"""Likewise, without the name of the file."""
ALONE: Choices = MappingProxyType(
    {
        "train": (),
        "heldout": (
            "Please work off {file}: every report in it that is open.",
            "What is to be done stands in {file}. It is all that is open there.",
            "{file} has collected some reports by now. Take care of the open ones.",
            "Nobody has looked into {file} for a while. Close what is open in it, by fixing it.",
        ),
    }
)
"""Texts of a request that tells nothing else: all of it held out."""
UNNAMED_ALONE: Choices = MappingProxyType(
    {
        "train": (),
        "heldout": (
            "Somewhere in this repository is a list of reports. Find it, and fix what is open.",
            "What is to be done is written down in the repository; it is all that is open there.",
        ),
    }
)
"""Likewise, without the name of the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One report of a file."""

    text: str
    state: State


@dataclass(frozen=True, slots=True)
class _Form:
    """A way to keep such a file."""

    paths: tuple[str, ...]
    write: Callable[[Draw, Split, Sequence[Entry]], str]


def draw_register(draw: Draw, split: Split, entries: Sequence[Entry]) -> Register:
    """The entries as a file."""
    form = draw.pick(_FORMS[split])
    is_named = draw.below(_UNNAMED) > 0
    return Register(draw.pick(form.paths), form.write(draw, split, entries), is_named)


def _checklist(draw: Draw, split: Split, entries: Sequence[Entry]) -> str:
    signs: Mapping[State, str] = {"open": "[ ]", "done": "[x]", "declined": "[x] declined:"}
    lines = [_wrapped(f"- {signs[entry.state]} {entry.text}", "  ") for entry in entries]
    return "\n".join(["# To do", "", *lines, ""])


def _sections(draw: Draw, split: Split, entries: Sequence[Entry]) -> str:
    number = draw.between(5, 40)
    lines = ["# Reports"]
    for entry in entries:
        number += draw.between(1, 4)
        lines += ["", f"## No. {number} ({entry.state})", "", _wrapped(entry.text)]
    return "\n".join([*lines, ""])


def _notes(draw: Draw, split: Split, entries: Sequence[Entry]) -> str:
    lines = list[str]()
    for entry in entries:
        state = "" if entry.state == "open" else f" ({entry.state})"
        head = f"{draw.pick(PEOPLE[split])}, {draw.pick(_DAYS)}{state}:"
        lines += [head, _wrapped(f"  {entry.text}", "  "), ""]
    return "\n".join(["Without a word in brackets: open.", "", *lines])


def _table(draw: Draw, split: Split, entries: Sequence[Entry]) -> str:
    number = draw.between(100, 400)
    rows = list[str]()
    for entry in entries:
        number += draw.between(1, 9)
        rows.append(f"| {number} | {entry.state} | {entry.text} |")
    return "\n".join(["| no. | state | report |", "|---|---|---|", *rows, ""])


def _brackets(draw: Draw, split: Split, entries: Sequence[Entry]) -> str:
    lines = [_wrapped(f"[{entry.state.upper()}] {entry.text}", "    ") for entry in entries]
    return "\n".join([*lines, ""])


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


_FORMS: Mapping[Split, tuple[_Form, ...]] = MappingProxyType(
    {
        "train": (
            _Form(("TODO.md", "docs/TODO.md"), _checklist),
            _Form(("ISSUES.md", "docs/reports.md"), _sections),
            _Form(("NOTES.txt", "docs/notes.txt"), _notes),
        ),
        "heldout": (
            _Form(("docs/feedback.md", "KNOWN.md"), _table),
            _Form(("BUGS.txt", "complaints.txt"), _brackets),
        ),
    }
)
