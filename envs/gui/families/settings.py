"""Families about one page of settings: toggles, choices, numbers, texts."""

from __future__ import annotations

from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.gui.apps.settings import shown
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    answer,
    link,
    number,
    select,
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
)

_SET = ("Set {n} to {v}.", "Change {n} to {v}.", "Please set {n} to {v}.", "{n} should be {v}.")


def toggle(draw: Draw) -> TaskDraft:
    """One box to tick on the page that is open."""
    world = draw_world(draw, [("toggle", "toggle", draw.pick(("number", "text", "choice")))])
    setting = draw.pick([it for it in world["sections"][0]["settings"] if _is_toggle(it)])
    return switch(draw, world, setting, saved(tick(setting["name"])), section=_first(world))


def choose(draw: Draw) -> TaskDraft:
    """One option of a list."""
    world = draw_world(draw, [("choice", "choice", "toggle")])
    setting = draw.pick([it for it in world["sections"][0]["settings"] if it["options"]])
    wanted = draw.pick([it for it in setting["options"] if it != setting["value"]])
    return _set_here(draw, world, setting["name"], wanted, saved(select(setting["name"], wanted)))


def set_number(draw: Draw) -> TaskDraft:
    """One number, with another one beside it."""
    world = draw_world(draw, [("number", "number", "toggle")])
    setting = setting_of(world, int)
    wanted = draw.pick([it for it in range(10, 100) if it != setting["value"]])
    return _set_here(draw, world, setting["name"], wanted, saved(number(setting["name"], wanted)))


def set_text(draw: Draw) -> TaskDraft:
    """One word to write."""
    world = draw_world(draw, [("text", "toggle", draw.pick(("number", "choice")))])
    setting = setting_of(world, str)
    wanted = draw.pick([it for it in WORDS if it != setting["value"]])
    return _set_here(draw, world, setting["name"], wanted, saved(write(setting["name"], wanted)))


def open_section(draw: Draw) -> TaskDraft:
    """One box to tick in a section that has to be opened first."""
    world = draw_world(draw, THERE)
    place = draw.below(len(THERE))
    setting = setting_of(world, bool, place)
    section = world["sections"][place]["name"]
    turns = ((link(section),), *saved(tick(setting["name"])))
    return switch(draw, world, setting, turns, told=f"{setting['name']} in {section}")


def read(draw: Draw) -> TaskDraft:
    """What a setting is set to."""
    world = draw_world(draw, [("number", "text", draw.pick(("toggle", "choice")))])
    setting = draw.pick([it for it in world["sections"][0]["settings"] if not _is_toggle(it)])
    value = shown(setting["value"])
    asked = draw.pick(
        ("What is {n} set to?", "Tell me what {n} is set to.", "What is the value of {n}?")
    )
    told = setting["name"], asked.format(n=setting["name"])
    return task_draft(world, told, (answer(value),), section=_first(world), answer=value)


def _is_toggle(setting: World) -> bool:
    return isinstance(setting["value"], bool)


def _first(world: World) -> str:
    return str(world["sections"][0]["name"])


def _set_here(draw: Draw, world: World, name: str, wanted: int | str, turns: Turns) -> TaskDraft:
    told = f"{name}/{wanted}", draw.pick(_SET).format(n=name, v=wanted)
    return task_draft(
        world, told, turns, after=changed(world, {name: wanted}), section=_first(world)
    )


SETTINGS = (
    Family("settings_choose", choose, easy=True),
    Family("settings_number", set_number, easy=True),
    Family("settings_open", open_section, easy=True),
    Family("settings_read", read, easy=True),
    Family("settings_text", set_text, easy=True),
    Family("settings_toggle", toggle, easy=True),
)
