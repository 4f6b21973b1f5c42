"""Families about several pages of settings: search, defaults, counting, and what is locked."""

from __future__ import annotations

import copy

from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.gui.apps.settings import SURE
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    answer,
    done,
    give_up,
    link,
    number,
    press,
    tick,
    write,
)
from clawrl_gym.envs.gui.families.settings_world import (
    THERE,
    World,
    changed,
    draw_world,
    saved,
    setting_of,
    switch,
    task_draft,
    way,
)


def find(draw: Draw) -> TaskDraft:
    """One box to tick, nobody says where; sometimes it is locked or not there at all."""
    world = draw_world(draw, THERE)
    place = draw.below(len(THERE))
    setting = setting_of(world, bool, place)
    name, fate = setting["name"], draw.pick(("there", "there", "locked", "missing"))
    searched = (write("Search", name), press("Search"))
    if fate == "missing":
        world["sections"][place]["settings"].remove(setting)
        turns: Turns = (searched, give_up("There is no such setting."))
    elif fate == "locked":
        setting["locked"] = True
        turns = (searched, (link(name),), give_up("It is locked."))
    else:
        turns = (searched, (link(name),), *saved(tick(name)))
    return switch(draw, world, setting, turns, feasible=fate == "there")


def both(draw: Draw) -> TaskDraft:
    """Two changes in two sections."""
    world = draw_world(draw, THERE)
    first, second = setting_of(world, bool, 0), setting_of(world, int, 1)
    wanted = draw.pick([it for it in range(10, 100) if it != second["value"]])
    one, other = (world["sections"][place]["name"] for place in (0, 1))
    turned = way(first)
    asked = draw.pick(
        (
            "Turn {t} {a} in {s} and set {b} in {o} to {v}.",
            "In {s}, turn {t} {a}. Then set {b} in {o} to {v}.",
        )
    )
    told = asked.format(t=turned, a=first["name"], s=one, b=second["name"], o=other, v=wanted)
    turns = (
        (link(one),),
        (tick(first["name"]), press("Save")),
        (link("Settings"),),
        (link(other),),
        *saved(number(second["name"], wanted)),
    )
    after = changed(world, {first["name"]: not first["value"], second["name"]: wanted})
    key = f"{turned}/{first['name']}/{second['name']}/{wanted}"
    return task_draft(world, (key, told), turns, after=after)


def defaults(draw: Draw) -> TaskDraft:
    """A section as it was when it was new, but for one number; all else as it is."""
    world = draw_world(draw, (("number", "toggle", "toggle"), ("toggle", "choice"), ("text",)))
    section = world["sections"][0]
    setting, other = setting_of(world, int), setting_of(world, bool)
    other["default"] = not other["value"]
    wanted = draw.pick([it for it in range(10, 100) if it != setting["default"]])
    after = copy.deepcopy(world)
    for it in after["sections"][0]["settings"]:
        it["value"] = wanted if it["name"] == setting["name"] else it["default"]
    asked = draw.pick(
        (
            "Put the defaults of {s} back, then set {n} to {v}.",
            "All of {s} should be at its defaults, but {n} at {v}.",
        )
    )
    told = asked.format(s=section["name"], n=setting["name"], v=wanted)
    turns = (
        (link(section["name"]),),
        (link("Defaults"),),
        (press("Set all to defaults"),),
        *saved(number(setting["name"], wanted)),
    )
    return task_draft(world, (f"{setting['name']}/{wanted}", told), turns, after=after)


def danger(draw: Draw) -> TaskDraft:
    """What cannot be undone, and asks for a word before."""
    world = draw_world(draw, (("toggle", "number"), ("toggle", "text")))
    section = world["sections"][draw.below(2)]
    name = f"{draw.pick(('Clear list', 'Delete profile'))} {draw.pick(WORDS)}"
    section["danger"] = name
    asked = draw.pick(
        ("{d} in {s}. Yes, I am sure.", "Please go to {s} and do this: {d}.", "In {s}: {d}.")
    )
    turns = (
        (link(section["name"]),),
        (link(name),),
        (write(f"Type {SURE} to go on", SURE), press(name)),
        done(),
    )
    told = asked.format(d=name, s=section["name"])
    return task_draft(
        world, (f"{name}/{section['name']}", told), turns, after={**world, "done": [name]}
    )


def count(draw: Draw) -> TaskDraft:
    """How many numbers of two sections are above a limit."""
    world = draw_world(draw, (("number", "toggle", "number"), ("number", "number"), ("toggle",)))
    one, other = world["sections"][:2]
    limit = draw.between(20, 80)
    values = [it["value"] for part in (one, other) for it in part["settings"]]
    above = sum(value > limit for value in values if type(value) is int)
    asked = draw.pick(
        ("How many numbers in {a} and {b} are above {n}?",
         "Count the numbers above {n} in {a} and {b}.")
    )  # fmt: skip
    told = asked.format(a=one["name"], b=other["name"], n=limit)
    turns = ((link(one["name"]),), (link("Settings"),), (link(other["name"]),), answer(above))
    key = f"{one['name']}/{other['name']}/{limit}"
    return task_draft(world, (key, told), turns, answer=str(above))


def same(draw: Draw) -> TaskDraft:
    """A number that has to be looked up in another section."""
    world = draw_world(draw, (("number", "toggle"), ("number", "toggle"), ("toggle", "choice")))
    source, target = setting_of(world, int, 0), setting_of(world, int, 1)
    if target["value"] == source["value"]:
        target["value"] = _another(draw, target)
    one, other = (world["sections"][place]["name"] for place in (0, 1))
    asked = draw.pick(
        ("Set {b} in {o} to the same value as {a} in {s}.",
         "{b} in {o} should be as {a} in {s} is.")
    )  # fmt: skip
    told = asked.format(b=target["name"], o=other, a=source["name"], s=one)
    turns = (
        (link(one),),
        (link("Settings"),),
        (link(other),),
        *saved(number(target["name"], source["value"])),
    )
    after = changed(world, {target["name"]: source["value"]})
    key = f"{source['name']}/{one}/{target['name']}/{other}"
    return task_draft(world, (key, told), turns, after=after)


def _another(draw: Draw, setting: World) -> int:
    return draw.pick([it for it in range(10, 100) if it != setting["value"]])


SETTINGS_LONG = (
    Family("settings_both", both),
    Family("settings_count", count),
    Family("settings_danger", danger),
    Family("settings_defaults", defaults),
    Family("settings_find", find),
    Family("settings_same", same),
)
