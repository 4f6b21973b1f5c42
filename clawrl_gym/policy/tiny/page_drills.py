"""Drills for reading pages: one made-up page, one action; short, so that many are seen.

What a page asks most often is to find the number of what is named, or what stands beside it. Pages
of real applications show that a few times in hundreds of tokens; a drill is nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clawrl_gym.agents.gui import GuiAgent
from clawrl_gym.envs.conversation.problems import NAMES
from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.action import Action
from clawrl_gym.envs.gui.notation import written
from clawrl_gym.envs.gui.observation import Element, Line, View
from clawrl_gym.envs.gui.text import render
from clawrl_gym.policy.tiny.conversations import Conversation

MAX_TOKENS = 3000
MENU = ("Home", "List", "New", "Basket", "Inbox", "Search", "Folders", "Write", "Day", "Week")


@dataclass(frozen=True, slots=True)
class PageDrills:
    """Made-up pages, each shown once."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        draw = Draw(f"page drills/{seed}")
        while True:
            yield draw.pick((_click_row, _click_in_row, _type, _read_row, _read_field))(draw)


class _Page:
    """Lines with numbered elements."""

    def __init__(self, draw: Draw) -> None:
        self.lines: list[Line] = []
        self.last = 0
        self.title = draw.pick(MENU)
        self.lines.append(
            tuple(self.element("link", name) for name in draw.some(MENU, draw.below(4)))
        )
        self.lines.append((f"# {self.title}",))

    def element(self, role: str, name: str, value: str = "") -> Element:
        self.last += 1
        return Element(self.last, role, name, value)

    def asked(self, instruction: str, action: Action, family: str) -> Conversation:
        lines = tuple(line for line in self.lines if line)
        page = render(View("http://drill/", self.title, lines), MAX_TOKENS)
        (*messages,) = GuiAgent(protocol="text").messages([f"{instruction}\n\n{page}"], [])
        reply = written(action)
        return Conversation([*messages, {"role": "assistant", "content": reply}], f"drill-{family}")


def _rows(draw: Draw) -> list[tuple[str, str]]:
    """What a row is about, and what else it says; the first may be a word twice, both never."""
    heads = draw.some(draw.pick((STEMS, WORDS)), draw.between(2, 6))
    tails = [draw.pick((draw.pick(NAMES), str(draw.between(2, 99)))) for _ in heads]
    return list(zip(heads, tails, strict=True))


def _click_row(draw: Draw) -> Conversation:
    page, rows = _Page(draw), _rows(draw)
    links = [page.element("link", head) for head, _ in rows]
    page.lines += [(link, "|", tail) for link, (_, tail) in zip(links, rows, strict=True)]
    link = draw.pick(links)
    said = draw.pick(("Open {}.", "Click {}.", "Go to {}."))
    return page.asked(said.format(link.name), Action("click", id=link.id), "row")


def _click_in_row(draw: Draw) -> Conversation:
    page, rows = _Page(draw), _rows(draw)
    name = draw.pick(("Add", "Remove", "Open", "Delete", "Edit", "Star"))
    buttons = []
    for head, tail in rows:
        buttons.append(page.element("button", name))
        page.lines.append((head, "|", tail, "|", buttons[-1]))
    place = draw.below(len(rows))
    asked = f"{name} {rows[place][0]}."
    return page.asked(asked, Action("click", id=buttons[place].id), "button")


def _type(draw: Draw) -> Conversation:
    page = _Page(draw)
    labels = draw.some(STEMS, draw.between(2, 5))
    fields = [page.element("textbox", label, draw.pick(("", *WORDS))) for label in labels]
    page.lines += [(field,) for field in fields]
    page.lines.append((page.element("button", "Save"),))
    field, word = draw.pick(fields), draw.pick((draw.pick(WORDS), str(draw.between(2, 99))))
    said = draw.pick(("Set {} to {}.", "Change {} to {}.", "{} should be {}."))
    action = Action("type", id=field.id, text=word)
    return page.asked(said.format(field.name, word), action, "type")


def _read_row(draw: Draw) -> Conversation:
    page, rows = _Page(draw), _rows(draw)
    linked = draw.below(2)
    page.lines += [(page.element("link", h) if linked else h, "|", t) for h, t in rows]
    head, tail = draw.pick(rows)
    said = draw.pick(("What is beside {}?", "Tell me what {} has.", "What does {} say?"))
    return page.asked(said.format(head), Action("answer", text=tail), "read")


def _read_field(draw: Draw) -> Conversation:
    page = _Page(draw)
    labels: Sequence[str] = draw.some(STEMS, draw.between(2, 5))
    values = {label: draw.pick((draw.pick(WORDS), str(draw.between(2, 99)))) for label in labels}
    page.lines += [(page.element("textbox", label, value),) for label, value in values.items()]
    label = draw.pick(labels)
    said = draw.pick(("What is {} set to?", "What is the value of {}?", "Tell me what {} is."))
    return page.asked(said.format(label), Action("answer", text=values[label]), "value")
