"""Slips of a demonstrator on web pages: what it does instead of a task's solution, by family.

One decision, as in `careless`: a form that is filled in and never sent, or a page that is opened
and left as it is; then the task is called done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from clawrl_gym.envs.gui.task import GuiTask
from clawrl_gym.envs.showcase.gui.families.family import Turns
from tools.tiny_policy.careless import BAD_HABIT

Slip = Callable[[Turns], Turns]
"""Replies that solve a task in, wrong ones out."""


def demonstrated_turns(task: GuiTask, luck: float) -> Turns:
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
    steps = (acts[:-1],) if len(acts) > 1 else ()
    return (*before, *steps, end)


SLIPS: Mapping[str, tuple[Slip, float]] = MappingProxyType(
    {
        "calendar_plan": (_never_sends, BAD_HABIT),
        "mail_archive": (_never_sends, BAD_HABIT),
        "settings_number": (_never_sends, BAD_HABIT),
        "sheet_set": (_never_sends, BAD_HABIT),
        "shop_add": (_never_sends, BAD_HABIT),
        "tickets_comment": (_never_sends, BAD_HABIT),
    }
)
"""Each family's slip and how often it is made: one family of each application."""
