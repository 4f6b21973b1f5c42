"""The visible part of a page: lines of text with numbered elements in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Element:
    """Something that can be acted on."""

    id: int
    """Number of the element while the document lives; counted from 1 as elements are first seen."""
    role: str
    """ARIA role: button, link, textbox, checkbox, radio, combobox, slider, tab, ..."""
    name: str
    """Accessible name; empty without one."""
    value: str = ""
    """Text of a field, chosen option, position of a slider."""
    states: tuple[str, ...] = ()
    """checked, selected, expanded, disabled, required, focused, covered; in this order."""
    options: tuple[str, ...] = ()
    """Labels of a combobox or listbox."""
    box: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """x, y, width, height in CSS pixels of the viewport; all 0 where nothing was laid out."""
    clipped: bool = False
    """Scrolled out of a box or frame that it is in: what is seen at its place is something else."""


Line = tuple[str | Element, ...]
"""Items beside each other, from left to right. A heading's text begins with "# "; cells of a table
row are parts of one line."""


@dataclass(frozen=True, slots=True)
class View:
    """A page as it is now."""

    url: str
    title: str
    lines: tuple[Line, ...]
    """Lines in the order of the document, those outside of the viewport too."""
    tabs: tuple[str, ...] = ()
    """Titles of the open tabs, when there are several."""
    tab: int = 1
    """The tab that is seen, from 1."""

    @property
    def elements(self) -> tuple[Element, ...]:
        """Everything that can be acted on, in the order of the document."""
        return tuple(part for line in self.lines for part in line if isinstance(part, Element))
