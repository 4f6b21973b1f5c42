"""A family: a name and a function from draws to the content of one task."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.gui.site import Site
from clawrl_gym.envs.gui.task import Locator, Step

Turns = tuple[tuple[Step, ...], ...]
"""Steps of each reply."""


World = TypeVar("World")
"""Stored state of an application."""


@dataclass(frozen=True, slots=True)
class Served(Generic[World]):
    """An application and what is stored in it at first; calling makes its server afresh."""

    app: Callable[[World], Site]
    world: World

    def __call__(self) -> Site:
        return self.app(copy.deepcopy(self.world))


@dataclass(frozen=True, slots=True)
class TaskContent:
    """A task without its id and split."""

    key: str
    """The request whatever its phrasing: decides the split, so no request is in both."""
    instruction: str
    start: str
    """URL of the first page."""
    sites: Mapping[str, Callable[[], Site]]
    """Makes the application of each host name."""
    solution: Turns
    """The ending included."""
    solved_sites: Mapping[str, Callable[[], Site]] = field(default_factory=dict)
    """The same as it is when the task is done; one that is missing stays as it was."""
    answer: str | None = None
    """Wanted answer; None where none is asked for."""
    feasible: bool = True
    """False: giving up is the solution, and nothing may have changed."""


@dataclass(frozen=True, slots=True)
class Application(Generic[World]):
    """An application behind its host name, about which families draw tasks."""

    host: str
    app: Callable[[World], Site]

    def task(
        self,
        key: str,
        instruction: str,
        world: World,
        solution: Turns,
        *,
        path: str = "",
        after: World | None = None,
        answer: str | None = None,
        feasible: bool = True,
    ) -> TaskContent:
        """A task that begins at a path; `after` is what is stored when it is done."""
        return TaskContent(
            key=key,
            instruction=instruction,
            start=f"http://{self.host}/{path}",
            sites={self.host: Served(self.app, world)},
            solution=solution,
            solved_sites={} if after is None else {self.host: Served(self.app, after)},
            answer=answer,
            feasible=feasible,
        )


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task; `draft` draws one."""

    name: str
    draft: Callable[[Draw], TaskContent]
    easy: bool = False
    """Three replies at most, on pages that a small policy can read whole."""
    may_be_infeasible: bool = False
    """Some of its tasks cannot be done: a wrong `give_up` costs `GIVING_UP_COSTS`."""


def link(name: str, near: str = "", nth: int = 0) -> Step:
    """Follow a link."""
    return Step("click", Locator("link", name, nth, near))


def press(name: str, near: str = "", nth: int = 0) -> Step:
    """Click a button."""
    return Step("click", Locator("button", name, nth, near))


def tick(name: str, role: str = "checkbox", near: str = "") -> Step:
    """Click a box to tick, or a radio button."""
    return Step("click", Locator(role, name, near=near))


def write(name: str, text: str, near: str = "", role: str = "textbox") -> Step:
    """Replace the text of a field."""
    return Step("type", Locator(role, name, near=near), text=text)


def number(name: str, value: int, near: str = "") -> Step:
    """Replace the number of a field."""
    return write(name, str(value), near, "spinbutton")


def select(name: str, option: str, near: str = "") -> Step:
    """Choose of a list that opens."""
    return Step("select", Locator("combobox", name, near=near), text=option)


def done() -> tuple[Step, ...]:
    """A reply that says that the task is done."""
    return (Step("done"),)


def answer(text: object) -> tuple[Step, ...]:
    """A reply that answers."""
    return (Step("answer", text=str(text)),)


def give_up(reason: str) -> tuple[Step, ...]:
    """A reply that says that the task cannot be done."""
    return (Step("give_up", text=reason),)
