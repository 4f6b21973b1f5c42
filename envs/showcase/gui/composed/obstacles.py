"""First refusals of an application: it says why, and the request says what to do then.

A request may say so where nothing is in the way, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.calendar import CLOSE
from clawrl_gym.envs.showcase.gui.composed.plan import Action
from clawrl_gym.envs.showcase.gui.composed.refs import Refs
from clawrl_gym.envs.showcase.gui.composed.skill import Kind, Ref, Skill, Value
from clawrl_gym.envs.showcase.gui.composed.skills.calendar import overlapping
from clawrl_gym.envs.showcase.gui.composed.skills.sheet import name_of as cell_name_of
from clawrl_gym.envs.showcase.gui.composed.skills.sheet import place
from clawrl_gym.envs.showcase.gui.composed.values import is_closed

RefArgs = dict[str, Ref]
"""Arguments by name."""
Block = Callable[[Refs, Skill, RefArgs], "tuple[RefArgs, tuple[Action, ...], str] | None"]
"""Puts it in the way: the arguments as the request has them, the actions, and a word for the tail;
None where it does not fit."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle that some skills can have."""

    skills: frozenset[str]
    tails: Phrasings
    """Clauses of the request about it."""
    block: Block


def action_of(skill: Skill, args: Mapping[str, Ref], **others: Value) -> Action:
    """The use of a skill with these arguments, some of which may be others."""
    return skill.name, {**{name: ref.value for name, ref in args.items()}, **others}


def _taken(
    refs: Refs, skill: Skill, args: RefArgs
) -> tuple[RefArgs, tuple[Action, ...], str] | None:
    """The time is taken by another event."""
    now, start = refs.now, int(args["time"].value)
    event = now.calendar["events"][str(args["event"].value)] if "event" in args else None
    day = str(args["day"].value) if "day" in args else "" if event is None else event["day"]
    length = 60 if event is None else event["end"] - event["start"]
    but = str(args["event"].value) if "event" in args else ""
    if any(overlapping(desk, day, start, start + 60) for desk in (refs.start, now)):
        return None
    title = refs.cast.taken(refs.cast.titles)
    new = str(min(map(int, refs.start.calendar["events"])) - 1)
    if new == "0":
        return None
    for desk in (refs.start, refs.now):
        desk.calendar["events"][new] = {
            "title": title, "day": day, "start": start, "end": start + 60, "guests": []
        }  # fmt: skip
    later = next(
        (
            time for time in range(start + 60, CLOSE - length + 1, 60)
            if not overlapping(refs.now, day, time, time + length, but)
        ),
        None,
    )  # fmt: skip
    if later is None:
        return None
    return args, (action_of(skill, args), action_of(skill, args, time=later)), ""


def _closed(
    refs: Refs, skill: Skill, args: RefArgs
) -> tuple[RefArgs, tuple[Action, ...], str] | None:
    number = str(args["ticket"].value)
    known, now = refs.start.tickets["tickets"].get(number), refs.now.tickets["tickets"][number]
    if known is None or known != now or is_closed(refs.now, number):
        return None
    for desk in (refs.start, refs.now):
        row = desk.tickets["tickets"][number]
        row["status"], row["reason"] = "closed", "solved"
    return args, (("reopen_ticket", {"ticket": number}), action_of(skill, args)), ""


def _scarce(
    refs: Refs, skill: Skill, args: RefArgs
) -> tuple[RefArgs, tuple[Action, ...], str] | None:
    """There are fewer."""
    item = str(args["item"].value)
    held = max(desk.shop.get("basket", {}).get(item, 0) for desk in (refs.start, refs.now))
    wanted = int(args["count"].value)
    left = refs.draw.between(1, wanted - 1)
    if held > left:
        return None
    for desk in (refs.start, refs.now):
        desk.shop["items"][item]["stock"] = left
    return args, (action_of(skill, args), action_of(skill, args, count=left)), ""


def _locked(
    refs: Refs, skill: Skill, args: RefArgs
) -> tuple[RefArgs, tuple[Action, ...], str] | None:
    """Lock a cell with another one on its right."""
    path = str(args["cell"].value)
    sheet, _, column = place(refs.now, path)
    if column != 1 or refs.start.sheet != refs.now.sheet:
        return None
    for desk in (refs.start, refs.now):
        place(desk, path)[0]["locked"].append(cell_name_of(desk, path))
    right = f"{path.rpartition('/')[0]}/{sheet['rows'][0][2]}"
    return args, (action_of(skill, args), action_of(skill, args, cell=right)), ""


def _unknown(
    refs: Refs, skill: Skill, args: RefArgs
) -> tuple[RefArgs, tuple[Action, ...], str] | None:
    """The shop does not know the coupon, and knows another one."""
    real = str(args["coupon"].value)
    wrong = refs.cast.taken(refs.cast.words)
    args = {**args, "coupon": Ref(Kind.COUPON, wrong, f'"{wrong}"', wrong)}
    return args, (action_of(skill, args), action_of(skill, args, coupon=real)), real


OBSTACLES: Mapping[str, Obstacle] = MappingProxyType(
    {
        "closed": Obstacle(
            frozenset({"assign_ticket", "rank_ticket", "tag_ticket", "park_ticket"}),
            Phrasings(
                (
                    " (if it is closed, open it again for that)",
                    ", for which you may have to open that ticket again",
                ),
                (" (open it again first, should it be closed)",),
            ),
            _closed,
        ),
        "locked": Obstacle(
            frozenset({"set_cell"}),
            Phrasings(
                (
                    " (if that cell is locked, change the cell to the right of it instead)",
                    ", or, where that cell is locked, do it in the cell to its right",
                ),
                (" (should that cell be locked, take the next one to the right)",),
            ),
            _locked,
        ),
        "scarce": Obstacle(
            frozenset({"fill_basket", "set_count"}),
            Phrasings(
                (
                    " (or as many as there are, if the shop has fewer)",
                    ", or all that the shop has if that is less",
                ),
                (" (should the shop have fewer, take all of them)",),
            ),
            _scarce,
        ),
        "taken": Obstacle(
            frozenset({"plan_event", "move_event", "shift_event"}),
            Phrasings(
                (
                    " (if there is something else then, take the next full hour of that day at "
                    "which it fits)",
                    ", or at the next full hour at which it fits that day, if that time is taken",
                ),
                (" (should that be taken, at the first full hour after it where it fits)",),
            ),
            _taken,
        ),
        "unknown": Obstacle(
            frozenset({"use_coupon"}),
            Phrasings(
                (
                    ' (if the shop does not know that one, use "{w}" instead)',
                    ', or "{w}" if that one is not accepted',
                ),
                (' (should it be refused, take "{w}")',),
            ),
            _unknown,
        ),
    }
)


def blocked(
    refs: Refs, obstacle: Obstacle, skill: Skill, args: RefArgs
) -> tuple[RefArgs, tuple[Action, ...], str] | None:
    """Arguments, actions and the request's clause with the obstacle in the way."""
    put = obstacle.block(refs, skill, args)
    if put is None:
        return None
    return put[0], put[1], refs.draw.pick(obstacle.tails.of(refs.split)).format(w=put[2])


def hedged(refs: Refs, obstacle: Obstacle, args: RefArgs) -> str:
    """Clause of a request about an obstacle that is not there."""
    other = next(
        (code for code in refs.now.shop.get("coupons", {}) if code != args["coupon"].value), ""
    ) if "coupon" in args else ""  # fmt: skip
    return refs.draw.pick(obstacle.tails.of(refs.split)).format(w=other)
