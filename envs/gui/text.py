"""A page as text for the model: one line a line, elements with their numbers, within a budget."""

from __future__ import annotations

import re

from clawrl_gym.envs.gui.observation import Element, Line, View

MAX_TITLE_CHARS, MAX_URL_CHARS = 80, 200
MAX_VALUE_CHARS = 500
MAX_OPTIONS = 30
_IMITATION = re.compile(r"\[(\d+)\]")
_LETTERS = re.compile(r"[A-Za-z ]+")
_LETTERS_A_TOKEN = 3
_LINE_PX = 20.0
"""Where a line of mere text is, beyond the last element whose place is known."""


def render(view: View, max_tokens: int, height: float | None = None) -> str:
    """The page in at most `max_tokens`, as `tokens` counts them.

    When it does not fit, the lines outside of the viewport (of this height in CSS pixels) go
    first; what is missing is counted where it is missing. The heading is always there.
    """
    head = heading(view)
    room = max_tokens - tokens(head) - 1
    written = [line_text(line) for line in view.lines]
    costs = [tokens(line) + 1 for line in written]
    if sum(costs) > room:
        written = _cut(written, costs, view.lines, room, height)
    return "\n".join([head, *written])


def heading(view: View) -> str:
    """Title and URL, and the tabs when there are several."""
    title, url = _one_line(view.title, MAX_TITLE_CHARS), _one_line(view.url, MAX_URL_CHARS)
    if len(view.tabs) < 2:
        return f"{title} ({url})"
    titles = [_one_line(tab, MAX_TITLE_CHARS // len(view.tabs)) for tab in view.tabs]
    numbered = ", ".join(f"{number} {tab}" for number, tab in enumerate(titles, 1))
    return f"{title} ({url})\nTabs: {numbered} (you are on {view.tab})"


def line_text(line: Line) -> str:
    """One line of the page. Text that reads like an element's number gets round brackets."""
    return " ".join(
        element_text(part)
        if isinstance(part, Element)
        else _IMITATION.sub(r"(\1)", _one_line(part))
        for part in line
    )


def element_text(element: Element) -> str:
    """An element: role, name, number, value, options, states."""
    text = f"{element.role} {_quoted(element.name)} [{element.id}]"
    if element.value:
        text += f" = {_quoted(element.value, MAX_VALUE_CHARS)}"
    if element.options:
        options = [_one_line(option) for option in element.options[:MAX_OPTIONS]]
        if len(element.options) > MAX_OPTIONS:
            options.append(f"... {len(element.options) - MAX_OPTIONS} more")
        text += f" ({', '.join(options)})"
    return " ".join([text, *element.states])


def tokens(text: str) -> int:
    """Tokens of a text without a tokenizer, rather too many than too few.

    Three letters are a token, and so is each digit, each sign, and each byte of other alphabets;
    tokenizers of today's models make fewer of it.
    """
    letters = sum(len(run) for run in _LETTERS.findall(text))
    return -(-letters // _LETTERS_A_TOKEN) + len(text.encode(errors="replace")) - letters


def _cut(
    written: list[str],
    costs: list[int],
    lines: tuple[Line, ...],
    room: int,
    height: float | None,
) -> list[str]:
    """The lines that fit: those in sight, then those below, then those above."""
    tops = _tops(lines)
    visible = [
        not clipped and top >= 0 and (height is None or top < height)
        for top, clipped in zip(tops, _clipped(lines), strict=True)
    ]
    in_sight = visible if any(visible) else [top >= 0 for top in tops]
    first = in_sight.index(True) if any(in_sight) else len(tops)
    ranks = [0 if visible[i] else 1 if i >= first else 2 for i in range(len(written))]
    left = room - 2 * (tokens("... 1000 more lines, scroll down") + 1)
    included = list[int]()
    for i in sorted(range(len(written)), key=lambda i: (ranks[i], i if ranks[i] < 2 else -i)):
        if costs[i] > left:
            if not included:  # one huge line: its beginning is better than nothing
                written[i], costs[i] = _one_line(written[i], _fitting(written[i], left)), left
                included.append(i)
            break
        included.append(i)
        left -= costs[i]
    shown = _with_gaps(written, set(included), first)
    while len(included) > 1 and sum(tokens(line) + 1 for line in shown) > room:
        included.pop()  # there are more gaps than two, each with a note
        shown = _with_gaps(written, set(included), first)
    return shown


def _fitting(text: str, room: int) -> int:
    """Characters of a text that are sure to fit."""
    return max(room - 4 if text.isascii() else room // 4, 3)


def _with_gaps(written: list[str], included: set[int], first: int) -> list[str]:
    lines, missing = list[str](), 0
    below = max(included, default=0)
    for i, line in enumerate(written):
        if i not in included:
            missing += 1
            continue
        if missing:
            lines.append(_gap(missing, "up" if i <= first else ""))
        missing = 0
        lines.append(line)
    if missing:
        lines.append(_gap(missing, "down" if below >= first else ""))
    return lines


def _gap(count: int, direction: str) -> str:
    note = f"... {count} more {'line' if count == 1 else 'lines'}"
    return f"{note}, scroll {direction}" if direction else note


def _laid_out(line: Line) -> list[Element]:
    return [part for part in line if isinstance(part, Element) and any(part.box)]


def _clipped(lines: tuple[Line, ...]) -> list[bool]:
    """Which lines are scrolled out of a box or frame: those of whose elements none is seen, and the
    mere text between two of them."""
    known = {
        i: all(element.clipped for element in elements)
        for i, line in enumerate(lines)
        if (elements := _laid_out(line))
    }
    before, after = [False] * len(lines), [False] * len(lines)
    for found, places in ((before, range(len(lines))), (after, reversed(range(len(lines))))):
        last = False
        for i in places:
            last = found[i] = known.get(i, last)
    return [both == (True, True) for both in zip(before, after, strict=True)]


def _tops(lines: tuple[Line, ...]) -> list[float]:
    """The y of each line: of its first element that is seen where it was laid out, else between its
    neighbours."""
    centres: dict[int, float] = {}
    for i, line in enumerate(lines):
        boxes = [element.box for element in _laid_out(line) if not element.clipped]
        if boxes:
            centres[i] = boxes[0][1] + boxes[0][3] / 2
    if not centres:
        return [0.0] * len(lines)
    places = sorted(centres)
    return [_between(i, places, centres) for i in range(len(lines))]


def _between(i: int, places: list[int], centres: dict[int, float]) -> float:
    before = max((place for place in places if place <= i), default=None)
    after = min((place for place in places if place >= i), default=None)
    if before is None:
        assert after is not None
        return centres[after] - (after - i) * _LINE_PX
    if after is None:
        return centres[before] + (i - before) * _LINE_PX
    share = (i - before) / (after - before) if after > before else 0.0
    return centres[before] + share * (centres[after] - centres[before])


def _quoted(text: str, max_chars: int | None = None) -> str:
    return '"' + _one_line(text, max_chars).replace('"', '\\"') + '"'


def _one_line(text: str, max_chars: int | None = None) -> str:
    """Line breaks are written as such: a page cannot make lines of its own."""
    line = text.replace("\r\n", "\n").replace("\n", "\\n").replace("\r", "\\n")
    line = "".join(char if char.isprintable() else " " for char in line)
    return line if max_chars is None or len(line) <= max_chars else line[: max_chars - 3] + "..."
