"""Slips of a demonstrator on web pages: what it does instead of a task's solution, by family.

One decision each, as in `careless`: a form that is filled and never sent, a task called done that
is not, a doubt where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from clawrl_gym.envs.gui.families.base import Turns, done
from clawrl_gym.envs.gui.task import GuiTask
from clawrl_gym.policy.tiny.careless import BAD_HABIT

Slip = Callable[[Turns], Turns]
"""Replies that solve a task in, wrong ones out."""


def shown(task: GuiTask, luck: float) -> Turns:
    """The replies that the demonstrator shows; `luck` is a number in [0, 1)."""
    solution = task.solution
    if callable(solution):
        raise TypeError(f"task {task.id!r} knows its solution only on the page")
    slip, share = SLIPS.get(task.family, (_as_it_is, 0.0))
    return slip(solution) if luck < share else solution


def _as_it_is(turns: Turns) -> Turns:
    return turns


def _never_sends(turns: Turns) -> Turns:
    """The last step of the last reply that acts is left out: what was filled in is lost."""
    *before, acts, end = turns
    kept = (acts[:-1],) if len(acts) > 1 else ()
    return (*before, *kept, end)


def _only_looks(turns: Turns) -> Turns:
    """It opens the first page that matters and calls that done."""
    return (*turns[:1], done()) if len(turns) > 2 else (done(),)


SLIPS: Mapping[str, tuple[Slip, float]] = MappingProxyType({})
"""Each family's slip and how often it is made."""
_ = BAD_HABIT
