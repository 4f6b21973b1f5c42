"""Quotes of a demonstrator before it acts: the place on the page that it means, word for word.

Looking a number up in a page is more than a policy of this size learns; going on with a line whose
first word it wrote itself is what it can do. So it quotes the line first, and then copies.
"""

from __future__ import annotations

import re
from dataclasses import replace

from clawrl_gym.envs.gui.observation import Element, Line
from clawrl_gym.envs.gui.text import element_text, line_text


def place_of(lines: tuple[Line, ...], number: int, near: str = "") -> str:
    """The element of this number; where `near` names its row, the row from there on."""
    for line in lines:
        for place, part in enumerate(line):
            if isinstance(part, Element) and part.id == number:
                start = _start(line, near) if near else place
                bare = replace(part, value="", options=(), states=())
                return line_text((*line[min(start, place) : place], bare))
    return ""


def source_of(lines: tuple[Line, ...], answer: str, instruction: str) -> str:
    """Text with the answer, up to it: from the instruction's subject, if the line names it."""
    pattern = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
    subject = _words(instruction)
    about = (_from_subject(line, subject) for line in lines)
    for text in (*filter(None, about), *map(line_text, lines)):
        match = pattern.search(text)
        if match is not None:
            closed = text[match.end() : match.end() + 1] == '"'
            return text[: match.end()] + ('"' if closed else "")
    return ""


def _from_subject(line: Line, subject: set[str]) -> str:
    for place in range(len(line)):
        if subject & _words(line_text(line[place : place + 1])):
            return line_text(line[place:])
    return ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower())) - {"the", "and", "for", "who", "link"}


def _start(line: Line, near: str) -> int:
    for place, part in enumerate(line):
        if near in (element_text(part) if isinstance(part, Element) else part):
            return place
    return len(line)
