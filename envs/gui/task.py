"""A task on web pages: its start, its solution, and what its grade reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.action import GuiAction, Kind
from clawrl_gym.envs.gui.observation import Element, Line
from clawrl_gym.envs.gui.site import Site


@dataclass(frozen=True, slots=True)
class Locator:
    """An element by what it says, for oracles: its number is known on the page alone."""

    role: str
    name: str
    """Exact."""
    nth: int = 0
    """Which of those that fit."""
    near: str = ""
    """Only elements of a line that has this text in it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action of an oracle."""

    kind: Kind
    locator: Locator | None = None
    to: Locator | None = None
    """Where a drag ends."""
    text: str = ""
    keys: str = ""


Solution = tuple[tuple[Step, ...], ...] | Callable[[str], tuple[tuple[Step, ...], ...]]


@dataclass(frozen=True, slots=True)
class PageFacts:
    """One open tab, as it is when the episode ends."""

    url: str
    title: str
    html: str
    facts: object = None
    """Value that the task's `facts_script` gave in this tab."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """State when an episode ends."""

    states: Mapping[str, object]
    """State of each site, by host name."""
    answer: str | None
    """The model's answer."""
    gave_up: bool
    """The model said that the task cannot be done; no budget ever says so for it."""
    tabs: tuple[PageFacts, ...] = ()
    """Only where the grader asks for them (`needs_pages`)."""
    active: int = 0
    """Index of the tab that was seen last."""
    page_result: object = None
    """Result that the task's page reports (`result_script`)."""
    end_pages: Mapping[str, PageFacts] = field(default_factory=dict)
    """Facts of the task's `end_pages`, by URL."""
    cookie_domains: tuple[str, ...] = ()
    """Domain of each cookie that is left; only where the grader asks for pages."""
    question: str = ""
    """The question: its words may stand around the answer."""


class Grader(Protocol):
    """Tells what an episode is worth."""

    @property
    def needs_pages(self) -> bool:
        """Whether it reads `FinalState.tabs`."""
        ...

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        """Reward in [0, 1], below 0 for giving up what can be done, and what is missing, in
        words; nothing is missing at 1."""
        ...


@dataclass(frozen=True, slots=True)
class GuiTask:
    """One problem. `solution` is empty where no oracle is known."""

    id: str
    family: str
    split: Split
    instruction: str
    start: str
    """URL of the first page."""
    grader: Grader
    tabs: tuple[str, ...] = ()
    """URLs of further tabs, opened after the first; the last one is seen."""
    sites: Mapping[str, Callable[[], Site]] = field(default_factory=dict)
    """Makes the server of each host name afresh."""
    solution: Solution = ()
    """Steps of each turn, the ending included; or what makes them of the instruction that was
    shown, where that is known on the page alone."""
    turns: int | None = None
    """Replies after which the episode is over; None takes the environment's number."""
    seed: int = 0
    """Seed of the page's own random numbers."""
    viewport: tuple[int, int] | None = None
    """Width and height in CSS pixels; None takes the environment's."""
    scale: float = 1.0
    """Pixels of a picture for one CSS pixel: small pages are legible with 2."""
    start_script: str = ""
    """Run once in the first page when it has loaded; what it returns, if it is text, is added to
    the instruction."""
    result_script: str = ""
    """Gives `FinalState.page_result`; asked after each reply, too: a value that is not null ends
    the task there. Read where the page cannot have changed it afterwards."""
    relaunch: tuple[str, ...] | None = None
    """The browser is closed and started again before the grade, with these URLs in its tabs: other
    tabs and what lasts as long as a session are gone. None: it is graded as it was left."""
    end_pages: tuple[str, ...] = ()
    """URLs that are opened for the grade alone, with the cookies that are left."""
    facts_script: str = ""
    """An expression over the document, run in each tab at the end, apart from the page's own
    scripts: gives `PageFacts.facts`."""
    difficulty: int = 1
    """1 to 8 where a source rates its tasks."""


def find_element(locator: Locator, lines: Sequence[Line]) -> int | None:
    """The number of the element that is meant; None when it is not there."""
    matching = [
        part.id
        for line in lines
        if not locator.near
        or any(locator.near in (part.name if isinstance(part, Element) else part) for part in line)
        for part in line
        if isinstance(part, Element) and (part.role, part.name) == (locator.role, locator.name)
    ]
    return matching[locator.nth] if locator.nth < len(matching) else None


def resolve(step: Step, lines: Sequence[Line]) -> GuiAction | None:
    """The step on the page that is there now; None when its element is missing."""
    element_id = None if step.locator is None else find_element(step.locator, lines)
    end_id = None if step.to is None else find_element(step.to, lines)
    if (step.locator is not None and element_id is None) or (
        step.to is not None and end_id is None
    ):
        return None
    return GuiAction(step.kind, id=element_id, to_id=end_id, text=step.text, keys=step.keys)
