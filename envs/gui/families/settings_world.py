"""Draws settings pages: sections as people know them, with a few settings each."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.gui.apps.settings import HOST, Settings, SettingValue
from clawrl_gym.envs.gui.families.family import Served, TaskDraft, Turns, done, press
from clawrl_gym.envs.gui.task import Step

World = dict[str, Any]

THERE = (("toggle", "choice"), ("toggle", "number"), ("toggle", "text"))
"""Kinds of three short sections."""
_ON = ("Turn on {n}.", "Please turn {n} on.", "I want {n} on.", "{n} should be on.")
_OFF = ("Turn off {n}.", "Please turn {n} off.", "I want {n} off.", "{n} should be off.")

TOGGLES: Mapping[str, tuple[str, ...]] = {
    "Display": ("Dark mode", "Night light", "Large text", "Animations", "Contrast", "Clock"),
    "Sound": ("Mute", "Key clicks", "Captions", "Echo", "Bass", "Alarm"),
    "Privacy": ("Location", "Camera", "Microphone", "Cookies", "Tracking", "Screen lock"),
    "Account": ("Newsletter", "Read receipts", "Public profile", "Auto reply", "Offers", "Hints"),
    "Devices": ("Backup", "Updates", "Bluetooth", "Hotspot", "Power saving", "Printer"),
    "Alerts": WORDS[:28],
}
CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Display": {"Theme": ("light", "dark", "blue", "green"), "Font": ("sans", "serif", "mono")},
    "Sound": {"Output": ("speakers", "headset", "screen"), "Ringtone": ("bell", "drum", "piano")},
    "Privacy": {"Calls": ("everyone", "friends", "nobody"), "Photos": ("public", "team", "me")},
    "Account": {"Language": ("English", "French", "German"), "Plan": ("free", "home", "work")},
    "Devices": {"Network": ("cable", "mobile", "none"), "Sync": ("hourly", "daily", "never")},
    "Alerts": {"Style": ("banner", "popup", "badge"), "Light": ("red", "white", "yellow")},
}
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "Display": ("Brightness", "Font size"),
    "Sound": ("Volume", "Balance"),
    "Privacy": ("History days", "Lock minutes"),
    "Account": ("Page size", "Storage"),
    "Devices": ("Sleep minutes", "Battery limit"),
    "Alerts": WORDS[28:],
}
TEXTS: Mapping[str, tuple[str, ...]] = {
    "Display": ("Label",),
    "Sound": ("Station",),
    "Privacy": ("Hint",),
    "Account": ("Nickname", "City"),
    "Devices": ("Device name",),
    "Alerts": ("Keyword",),
}
NAMES = tuple(TOGGLES)


def draw_world(draw: Draw, kinds: Sequence[Sequence[str]]) -> World:
    """A section for each sequence of kinds: toggle, choice, number, text."""
    names = draw.some(NAMES, len(kinds))
    return {"sections": [draw_section(draw, *it) for it in zip(names, kinds, strict=True)],
            "done": []}  # fmt: skip


def draw_section(draw: Draw, name: str, kinds: Sequence[str]) -> World:
    """A section with settings of these kinds, in any order."""
    toggles = iter(draw.some(TOGGLES[name], kinds.count("toggle")))
    choices = iter(draw.some(tuple(CHOICES[name]), kinds.count("choice")))
    numbers = iter(draw.some(NUMBERS[name], kinds.count("number")))
    settings = []
    for kind in draw.some(kinds, len(kinds)):
        match kind:
            case "toggle":
                settings.append(_setting(next(toggles), *_two(draw, (False, True))))
            case "choice":
                options = CHOICES[name][chosen := next(choices)]
                settings.append(_setting(chosen, *_two(draw, options), options=list(options)))
            case "number":
                settings.append(_setting(next(numbers), *_two(draw, range(10, 100))))
            case "text":
                settings.append(_setting(draw.pick(TEXTS[name]), *_two(draw, WORDS)))
    return {"name": name, "settings": settings, "danger": ""}


def _two(draw: Draw, choices: Sequence[SettingValue]) -> tuple[SettingValue, SettingValue]:
    """What it is and what it is by default: the same half of the time."""
    value, default = draw.some(choices, 2)
    return value, draw.pick((value, default))


def _setting(
    name: str, value: SettingValue, default: SettingValue, options: list[str] | None = None
) -> World:
    return {"name": name, "value": value, "default": default, "options": options or [],
            "low": 0, "high": 100, "locked": False}  # fmt: skip


def setting_of(world: World, kind: type, section: int = 0, *, choice: bool = False) -> World:
    """The first setting whose value is of this type; for texts: with options or without."""
    return next(
        it
        for it in world["sections"][section]["settings"]
        if type(it["value"]) is kind and bool(it["options"]) == choice
    )


def changed(world: World, values: Mapping[str, SettingValue]) -> World:
    """The world with these settings set, by name."""
    after = copy.deepcopy(world)
    for section in after["sections"]:
        for setting in section["settings"]:
            setting["value"] = values.get(setting["name"], setting["value"])
    return after


def task_draft(
    world: World,
    told: tuple[str, str],
    turns: Turns,
    *,
    after: World | None = None,
    section: str = "",
    answer: str | None = None,
    feasible: bool = True,
) -> TaskDraft:
    """A draft of key and instruction that begins at a section, or at the start page."""
    return TaskDraft(
        key=told[0],
        instruction=told[1],
        start=f"http://{HOST}/{section.lower()}",
        sites={HOST: Served(Settings, world)},
        solution=turns,
        after={HOST: after} if after is not None else {},
        answer=answer,
        feasible=feasible,
    )


def way(setting: World) -> str:
    """What a toggle is to be turned."""
    return "off" if setting["value"] else "on"


def saved(step: Step) -> Turns:
    """A change, saved in the same reply, and that is all."""
    return ((step, press("Save")), done())


def switch(
    draw: Draw,
    world: World,
    setting: World,
    turns: Turns,
    *,
    told: str = "",
    section: str = "",
    feasible: bool = True,
) -> TaskDraft:
    """A toggle that is to be the other way round."""
    name, turned = setting["name"], way(setting)
    asked = draw.pick(_OFF if turned == "off" else _ON).format(n=told or name)
    after = changed(world, {name: not setting["value"]}) if feasible else None
    return task_draft(
        world,
        (f"{turned}/{told or name}", asked),
        turns,
        after=after,
        section=section,
        feasible=feasible,
    )
