"""A page on paper: the lines that a browser would show of our applications' plain HTML.

Reads the subset that `envs/showcase/gui/apps/templates` hold, without script and style; a test in a
real browser holds it to the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from clawrl_gym.envs.gui.observation import Element, Line

VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
UNSEEN = frozenset({"head", "script", "style", "template", "title"})
BLOCKS = frozenset(
    {
        "body", "div", "fieldset", "footer", "form", "h1", "h2", "h3", "header", "hr", "html", "li",
        "main", "nav", "ol", "p", "section", "table", "tbody", "thead", "tr", "ul",
    }
)  # fmt: skip
TYPED = {"number": "spinbutton"}
"""Roles of fields that are no textbox."""


@dataclass(slots=True)
class Node:
    """An element of the document; `text` nodes are strings among the children."""

    tag: str
    attributes: dict[str, str]
    parent: Node | None = None
    children: list[Node | str] = field(default_factory=list)
    number: int = 0
    """0 where nothing can be done with it."""
    value: str = ""
    checked: bool = False

    def walk(self) -> Iterator[Node]:
        """This element and all in it, in the order of the document."""
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    @property
    def text(self) -> str:
        """All its text, with single spaces."""
        pieces = (child if isinstance(child, str) else child.text for child in self.children)
        return " ".join("".join(pieces).split())

    def within(self, tag: str) -> Node | None:
        """The nearest element of this kind around it."""
        node = self.parent
        while node is not None and node.tag != tag:
            node = node.parent
        return node


class StaticPage:
    """One document: its elements, and what is typed and ticked."""

    def __init__(self, html: str) -> None:
        self.root = _parse(html)
        self.focused: Node | None = None
        self._labels = {
            node.attributes["for"]: node.text
            for node in self.root.walk()
            if node.tag == "label" and "for" in node.attributes
        }
        self._numbered: dict[int, Node] = {}
        for node in self.root.walk():
            _fill(node)
            if _role(node):
                node.number = len(self._numbered) + 1
                self._numbered[node.number] = node

    def node(self, number: int | None) -> Node | None:
        """The element of a number."""
        return self._numbered.get(number or 0)

    @property
    def title(self) -> str:
        return next((node.text for node in self.root.walk() if node.tag == "title"), "")

    def lines(self) -> tuple[Line, ...]:
        """Items beside each other, from top to bottom."""
        writer = _Writer()
        self._write(self.root, writer)
        writer.end_line()
        return tuple(writer.lines)

    def element(self, node: Node) -> Element:
        """Visible part of a numbered element."""
        role = _role(node)
        states = []
        if node.checked:
            states.append("checked")
        if node is self.focused and role in ("textbox", "spinbutton"):
            states.append("focused")
        label = self._labels.get(node.attributes.get("id", ""), "")
        options = tuple(option.text for option in _options(node))
        value = node.value if role in ("textbox", "spinbutton", "combobox") else ""
        name = node.text if role in ("link", "button") else label
        return Element(node.number, role, name[:80], value, tuple(states), options)

    def _write(self, node: Node, writer: _Writer) -> None:
        if node.tag in UNSEEN or node.tag == "label":
            return
        if node.number:
            writer.add(self.element(node))
            return
        if node.tag in BLOCKS or node.tag == "br":
            writer.end_line()
        if node.tag in ("h1", "h2", "h3"):
            writer.write("# ")
        if node.tag in ("td", "th"):
            writer.next_cell()
        for child in node.children:
            if isinstance(child, str):
                writer.write(child)
            else:
                self._write(child, writer)
        if node.tag in BLOCKS:
            writer.end_line()


class _Writer:
    """Collects parts into lines."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._parts: list[str | Element] = []
        self._text = ""
        self._cells = 0

    def write(self, text: str) -> None:
        self._text += text

    def add(self, element: Element) -> None:
        self._end_text()
        self._parts.append(element)

    def next_cell(self) -> None:
        self._end_text()
        if self._cells:
            self._parts.append("|")
        self._cells += 1

    def end_line(self) -> None:
        self._end_text()
        if self._parts:
            self.lines.append(tuple(self._parts))
        self._parts, self._cells = [], 0

    def _end_text(self) -> None:
        text = " ".join(self._text.split())
        if text:
            self._parts.append(text)
        self._text = ""


def _role(node: Node) -> str:
    kind = node.attributes.get("type", "text")
    match node.tag:
        case "a" if "href" in node.attributes:
            return "link"
        case "button":
            return "button"
        case "select":
            return "combobox"
        case "textarea":
            return "textbox"
        case "input" if kind in ("checkbox", "radio"):
            return kind
        case "input" if kind != "hidden":
            return TYPED.get(kind, "textbox")
    return ""


def _options(node: Node) -> list[Node]:
    return [inner for inner in node.walk() if inner.tag == "option"]


def _fill(node: Node) -> None:
    """Set the initial value of a field."""
    if node.tag == "input":
        node.value = node.attributes.get("value", "")
        node.checked = "checked" in node.attributes
    elif node.tag == "textarea":
        text = "".join(child for child in node.children if isinstance(child, str))
        node.value = text.removeprefix("\n")
    elif node.tag == "select" and (options := _options(node)):
        selected = [option for option in options if "selected" in option.attributes]
        node.value = (selected or options)[0].text


class _PageParser(HTMLParser):
    """Builds the tree; the subset closes what it opens."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("html", {})
        self._open = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, self._open)
        self._open.children.append(node)
        if tag not in VOID:
            self._open = node

    def handle_endtag(self, tag: str) -> None:
        node: Node | None = self._open
        while node is not None and node.tag != tag:
            node = node.parent
        if node is not None and node.parent is not None:
            self._open = node.parent

    def handle_data(self, data: str) -> None:
        self._open.children.append(data)


def _parse(html: str) -> Node:
    reader = _PageParser()
    reader.feed(html)
    reader.close()
    return reader.root
