"""Drills for reading pages: one made-up page, and many questions about it.

What a page asks most often is to find the number of what is named, or what stands beside it. Pages
of real applications show that once in hundreds of tokens; a drill is nothing else. From them the
policy learns to look things up at all, which it did not by demonstrations alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from clawrl_gym.core.types import Message
from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.observation import Element, Line, View
from clawrl_gym.envs.gui.text import line_text, render
from clawrl_gym.envs.gui.text_calls import format_action
from clawrl_gym.envs.showcase.conversation.problems import NAMES
from tools.tiny_policy.conversations import Conversation

MAX_TOKENS = 3000
QUESTIONS = 8
MENU = ("Home", "List", "New", "Basket", "Inbox", "Search", "Folders", "Write", "Day", "Week")
OPEN = ("Open {}.", "Click {}.", "Go to {}.")
SET = ("Set {} to {}.", "Change {} to {}.", "{} should be {}.")
BESIDE = ("What is beside {}?", "Tell me what {} has.", "What does {} say?")
VALUE = ("What is {} set to?", "What is the value of {}?", "Tell me what {} is.")
BUTTONS = ("Add", "Remove", "Open", "Delete", "Edit", "Star")

Question = tuple[str, Line, GuiAction]
"""Question, quoted line of the page, and action."""


@dataclass(frozen=True, slots=True)
class PageDrills:
    """Made-up pages, each shown once."""

    bare: bool = False
    """Pages without heading and menu, and of few rows: where looking up is learned first."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        draw = Draw(f"page drills/{seed}")
        while True:
            page = _Page(draw, self.bare)
            draw.pick((_linked, _buttons, _table, _fields))(draw, page)
            yield page.conversation([draw.pick(page.questions) for _ in range(QUESTIONS)])


class _Page:
    """Lines with numbered elements, and what can be asked about them."""

    def __init__(self, draw: Draw, bare: bool) -> None:
        self.family = ""
        self.bare = bare
        self.title = draw.pick(MENU)
        self.last = draw.below(9) if bare else 0
        self.lines: list[Line] = []
        self.questions: list[Question] = []
        if not bare:
            menu = tuple(self.element("link", name) for name in draw.some(MENU, draw.below(4)))
            self.lines += [*([menu] if menu else []), (f"# {self.title}",)]

    def element(self, role: str, name: str, value: str = "") -> Element:
        self.last += 1
        return Element(self.last, role, name, value)

    def conversation(self, questions: list[Question]) -> Conversation:
        view = View("http://drill/", self.title, tuple(self.lines))
        page = "\n".join(map(line_text, view.lines)) if self.bare else render(view, MAX_TOKENS)
        messages: list[Message] = []
        for place, (question, quoted, action) in enumerate(questions):
            text = question if place else f"{question}\n\n{page}"
            messages.append({"role": "user", "content": text})
            reply = f"{line_text(quoted)}\n{format_action(action)}"
            messages.append({"role": "assistant", "content": reply})
        return Conversation(messages, f"drill-{self.family}")


def _rows(draw: Draw, page: _Page) -> list[tuple[str, str]]:
    """Subject of each row, and the text beside it."""
    heads = draw.some(draw.pick((STEMS, WORDS)), draw.between(2, 4 if page.bare else 6))
    return [(head, draw.pick((draw.pick(NAMES), _number(draw)))) for head in heads]


def _number(draw: Draw) -> str:
    return str(draw.between(2, 99))


def _linked(draw: Draw, page: _Page) -> None:
    """Rows that begin with a link."""
    page.family = "row"
    for head, tail in _rows(draw, page):
        link = page.element("link", head)
        line = (link, "|", tail)
        page.lines.append(line)
        page.questions.append(
            (draw.pick(OPEN).format(head), (link,), GuiAction("click", id=link.id))
        )
        page.questions.append(
            (draw.pick(BESIDE).format(head), line, GuiAction("answer", text=tail))
        )


def _buttons(draw: Draw, page: _Page) -> None:
    """Rows that end with a button, which is called the same everywhere."""
    page.family, name = "button", draw.pick(BUTTONS)
    for head, tail in _rows(draw, page):
        button = page.element("button", name)
        line = (head, "|", tail, "|", button)
        page.lines.append(line)
        page.questions.append((f"{name} {head}.", line, GuiAction("click", id=button.id)))


def _table(draw: Draw, page: _Page) -> None:
    """Rows of words."""
    page.family = "table"
    for head, tail in _rows(draw, page):
        line = (head, "|", tail)
        page.lines.append(line)
        page.questions.append(
            (draw.pick(BESIDE).format(head), line, GuiAction("answer", text=tail))
        )


def _fields(draw: Draw, page: _Page) -> None:
    """A form."""
    page.family = "field"
    for label in draw.some(STEMS, draw.between(2, 5)):
        value = draw.pick((draw.pick(WORDS), _number(draw)))
        field, new = page.element("textbox", label, value), draw.pick((*WORDS, _number(draw)))
        page.lines.append((field,))
        action = GuiAction("type", id=field.id, text=new)
        bare = (replace(field, value=""),)
        page.questions.append((draw.pick(SET).format(label, new), bare, action))
        page.questions.append(
            (draw.pick(VALUE).format(label), (field,), GuiAction("answer", text=value))
        )
    page.lines.append((page.element("button", "Save"),))
