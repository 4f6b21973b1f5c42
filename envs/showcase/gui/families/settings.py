"""Families about settings: one page of toggles, choices, numbers and texts, then several pages."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.gui.apps.settings import (
    HOST,
    SURE,
    Settings,
    SettingsWorld,
    SettingValue,
    StoredSection,
    StoredSetting,
    show_value,
)
from clawrl_gym.envs.showcase.gui.families.family import (
    Application,
    Family,
    TaskContent,
    Turns,
    answer,
    done,
    give_up,
    link,
    number,
    press,
    select,
    tick,
    write,
)

SITE = Application(HOST, Settings)

SHORT_SECTIONS = (("toggle", "choice"), ("toggle", "number"), ("toggle", "text"))
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


def draw_world(draw: Draw, kinds: Sequence[Sequence[str]]) -> SettingsWorld:
    """A section for each sequence of kinds: toggle, choice, number, text."""
    names = draw.some(NAMES, len(kinds))
    sections = [draw_section(draw, *section) for section in zip(names, kinds, strict=True)]
    return {"sections": sections,
            "done": []}  # fmt: skip


def draw_section(draw: Draw, name: str, kinds: Sequence[str]) -> StoredSection:
    """A section with settings of these kinds, in any order."""
    toggles = iter(draw.some(TOGGLES[name], kinds.count("toggle")))
    choices = iter(draw.some(tuple(CHOICES[name]), kinds.count("choice")))
    numbers = iter(draw.some(NUMBERS[name], kinds.count("number")))
    settings: list[StoredSetting] = []
    for kind in draw.some(kinds, len(kinds)):
        match kind:
            case "toggle":
                settings.append(_setting(next(toggles), *_two(draw, (False, True))))
            case "choice":
                options = CHOICES[name][choice := next(choices)]
                settings.append(_setting(choice, *_two(draw, options), options=list(options)))
            case "number":
                settings.append(_setting(next(numbers), *_two(draw, range(10, 100))))
            case "text":
                settings.append(_setting(draw.pick(TEXTS[name]), *_two(draw, WORDS)))
    return {"name": name, "settings": settings, "danger": ""}


def _two(draw: Draw, choices: Sequence[SettingValue]) -> tuple[SettingValue, SettingValue]:
    """Current value and default: the same half of the time."""
    value, default = draw.some(choices, 2)
    return value, draw.pick((value, default))


def _setting(
    name: str, value: SettingValue, default: SettingValue, options: list[str] | None = None
) -> StoredSetting:
    return {"name": name, "value": value, "default": default, "options": options or [],
            "low": 0, "high": 100, "locked": False}  # fmt: skip


def setting_of(
    world: SettingsWorld, kind: type, section: int = 0, *, choice: bool = False
) -> StoredSetting:
    """The first setting whose value is of this type; for texts: with options or without."""
    return next(
        setting
        for setting in world["sections"][section]["settings"]
        if type(setting["value"]) is kind and bool(setting["options"]) == choice
    )


def changed(world: SettingsWorld, values: Mapping[str, SettingValue]) -> SettingsWorld:
    """The world with these settings set, by name."""
    after = copy.deepcopy(world)
    for section in after["sections"]:
        for setting in section["settings"]:
            setting["value"] = values.get(setting["name"], setting["value"])
    return after


def way(setting: StoredSetting) -> str:
    """The word for turning a toggle."""
    return "off" if setting["value"] else "on"


def saved(step: Step) -> Turns:
    """A change, saved in the same reply, and that is all."""
    return ((step, press("Save")), done())


def switch(
    draw: Draw,
    world: SettingsWorld,
    setting: StoredSetting,
    turns: Turns,
    *,
    shown_name: str = "",
    path: str = "",
    feasible: bool = True,
) -> TaskContent:
    """A toggle that is to be the other way round."""
    name, turned = setting["name"], way(setting)
    instruction = draw.pick(_OFF if turned == "off" else _ON).format(n=shown_name or name)
    after = changed(world, {name: not setting["value"]}) if feasible else None
    return SITE.task(
        f"{turned}/{shown_name or name}",
        instruction,
        world,
        turns,
        after=after,
        path=path,
        feasible=feasible,
    )


_SET = ("Set {n} to {v}.", "Change {n} to {v}.", "Please set {n} to {v}.", "{n} should be {v}.")


def toggle(draw: Draw) -> TaskContent:
    """One box to tick on the page that is open."""
    world = draw_world(draw, [("toggle", "toggle", draw.pick(("number", "text", "choice")))])
    setting = draw.pick(list(filter(_is_toggle, _first_settings(world))))
    turns = saved(tick(setting["name"]))
    return switch(draw, world, setting, turns, path=_first_path(world))


def choose(draw: Draw) -> TaskContent:
    """One option of a list."""
    world = draw_world(draw, [("choice", "choice", "toggle")])
    setting = draw.pick([setting for setting in _first_settings(world) if setting["options"]])
    option = draw.pick([option for option in setting["options"] if option != setting["value"]])
    return _set_here(draw, world, setting["name"], option, saved(select(setting["name"], option)))


def set_number(draw: Draw) -> TaskContent:
    """One number, with another one beside it."""
    world = draw_world(draw, [("number", "number", "toggle")])
    setting = setting_of(world, int)
    value = _another_number(draw, setting["value"])
    return _set_here(draw, world, setting["name"], value, saved(number(setting["name"], value)))


def set_text(draw: Draw) -> TaskContent:
    """One word to write."""
    world = draw_world(draw, [("text", "toggle", draw.pick(("number", "choice")))])
    setting = setting_of(world, str)
    word = draw.pick([word for word in WORDS if word != setting["value"]])
    return _set_here(draw, world, setting["name"], word, saved(write(setting["name"], word)))


def open_section(draw: Draw) -> TaskContent:
    """One box to tick in a section that has to be opened first."""
    world = draw_world(draw, SHORT_SECTIONS)
    place = draw.below(len(SHORT_SECTIONS))
    setting = setting_of(world, bool, place)
    section = world["sections"][place]["name"]
    turns = ((link(section),), *saved(tick(setting["name"])))
    return switch(draw, world, setting, turns, shown_name=f"{setting['name']} in {section}")


def read(draw: Draw) -> TaskContent:
    """Read a setting."""
    world = draw_world(draw, [("number", "text", draw.pick(("toggle", "choice")))])
    setting = draw.pick([setting for setting in _first_settings(world) if not _is_toggle(setting)])
    value = show_value(setting["value"])
    phrasing = draw.pick(
        ("What is {n} set to?", "Tell me what {n} is set to.", "What is the value of {n}?")
    )
    return SITE.task(
        key=setting["name"],
        instruction=phrasing.format(n=setting["name"]),
        world=world,
        solution=(answer(value),),
        path=_first_path(world),
        answer=value,
    )


def find(draw: Draw) -> TaskContent:
    """One box to tick, nobody says where; sometimes it is locked or not there at all."""
    world = draw_world(draw, SHORT_SECTIONS)
    place = draw.below(len(SHORT_SECTIONS))
    setting = setting_of(world, bool, place)
    name, case = setting["name"], draw.pick(("there", "there", "locked", "missing"))
    search = (write("Search", name), press("Search"))
    if case == "missing":
        world["sections"][place]["settings"].remove(setting)
        turns: Turns = (search, give_up("There is no such setting."))
    elif case == "locked":
        setting["locked"] = True
        turns = (search, (link(name),), give_up("It is locked."))
    else:
        turns = (search, (link(name),), *saved(tick(name)))
    return switch(draw, world, setting, turns, feasible=case == "there")


def both(draw: Draw) -> TaskContent:
    """Two changes in two sections."""
    world = draw_world(draw, SHORT_SECTIONS)
    first, second = setting_of(world, bool, 0), setting_of(world, int, 1)
    value = _another_number(draw, second["value"])
    first_section, second_section = (world["sections"][place]["name"] for place in (0, 1))
    direction = way(first)
    phrasing = draw.pick(
        (
            "Turn {t} {a} in {s} and set {b} in {o} to {v}.",
            "In {s}, turn {t} {a}. Then set {b} in {o} to {v}.",
        )
    )
    return SITE.task(
        key=f"{direction}/{first['name']}/{second['name']}/{value}",
        instruction=phrasing.format(
            t=direction,
            a=first["name"],
            s=first_section,
            b=second["name"],
            o=second_section,
            v=value,
        ),
        world=world,
        solution=(
            (link(first_section),),
            (tick(first["name"]), press("Save")),
            (link("Settings"),),
            (link(second_section),),
            *saved(number(second["name"], value)),
        ),
        after=changed(world, {first["name"]: not first["value"], second["name"]: value}),
    )


def defaults(draw: Draw) -> TaskContent:
    """A section as it was when it was new, but for one number; all else as it is."""
    world = draw_world(draw, (("number", "toggle", "toggle"), ("toggle", "choice"), ("text",)))
    section = world["sections"][0]["name"]
    exception, changed_toggle = setting_of(world, int), setting_of(world, bool)
    changed_toggle["default"] = not changed_toggle["value"]
    value = _another_number(draw, exception["default"])
    after = copy.deepcopy(world)
    for setting in _first_settings(after):
        setting["value"] = value if setting["name"] == exception["name"] else setting["default"]
    phrasing = draw.pick(
        (
            "Put the defaults of {s} back, then set {n} to {v}.",
            "All of {s} should be at its defaults, but {n} at {v}.",
        )
    )
    return SITE.task(
        key=f"{exception['name']}/{value}",
        instruction=phrasing.format(s=section, n=exception["name"], v=value),
        world=world,
        solution=(
            (link(section),),
            (link("Defaults"),),
            (press("Set all to defaults"),),
            *saved(number(exception["name"], value)),
        ),
        after=after,
    )


def danger(draw: Draw) -> TaskContent:
    """An action that cannot be undone, and asks for a word before."""
    world = draw_world(draw, (("toggle", "number"), ("toggle", "text")))
    section = world["sections"][draw.below(2)]
    name = f"{draw.pick(('Clear list', 'Delete profile'))} {draw.pick(WORDS)}"
    section["danger"] = name
    phrasing = draw.pick(
        ("{d} in {s}. Yes, I am sure.", "Please go to {s} and do this: {d}.", "In {s}: {d}.")
    )
    return SITE.task(
        key=f"{name}/{section['name']}",
        instruction=phrasing.format(d=name, s=section["name"]),
        world=world,
        solution=(
            (link(section["name"]),),
            (link(name),),
            (write(f"Type {SURE} to go on", SURE), press(name)),
            done(),
        ),
        after={**world, "done": [name]},
    )


def count(draw: Draw) -> TaskContent:
    """Count the numbers of two sections that are above a limit."""
    world = draw_world(draw, (("number", "toggle", "number"), ("number", "number"), ("toggle",)))
    first, second = world["sections"][:2]
    limit = draw.between(20, 80)
    values = [setting["value"] for section in (first, second) for setting in section["settings"]]
    above = sum(type(value) is int and value > limit for value in values)
    phrasing = draw.pick(
        ("How many numbers in {a} and {b} are above {n}?",
         "Count the numbers above {n} in {a} and {b}.")
    )  # fmt: skip
    return SITE.task(
        key=f"{first['name']}/{second['name']}/{limit}",
        instruction=phrasing.format(a=first["name"], b=second["name"], n=limit),
        world=world,
        solution=(
            (link(first["name"]),),
            (link("Settings"),),
            (link(second["name"]),),
            answer(above),
        ),
        answer=str(above),
    )


def same(draw: Draw) -> TaskContent:
    """A number that has to be looked up in another section."""
    world = draw_world(draw, (("number", "toggle"), ("number", "toggle"), ("toggle", "choice")))
    source, target = setting_of(world, int, 0), setting_of(world, int, 1)
    value = source["value"]
    if target["value"] == value:
        target["value"] = _another_number(draw, value)
    source_section, target_section = (world["sections"][place]["name"] for place in (0, 1))
    phrasing = draw.pick(
        ("Set {b} in {o} to the same value as {a} in {s}.",
         "{b} in {o} should be as {a} in {s} is.")
    )  # fmt: skip
    return SITE.task(
        key=f"{source['name']}/{source_section}/{target['name']}/{target_section}",
        instruction=phrasing.format(
            b=target["name"], o=target_section, a=source["name"], s=source_section
        ),
        world=world,
        solution=(
            (link(source_section),),
            (link("Settings"),),
            (link(target_section),),
            *saved(number(target["name"], int(value))),
        ),
        after=changed(world, {target["name"]: value}),
    )


def _is_toggle(setting: StoredSetting) -> bool:
    return isinstance(setting["value"], bool)


def _first_settings(world: SettingsWorld) -> list[StoredSetting]:
    return world["sections"][0]["settings"]


def _first_path(world: SettingsWorld) -> str:
    """Path of the first section."""
    return world["sections"][0]["name"].lower()


def _set_here(
    draw: Draw, world: SettingsWorld, name: str, value: int | str, turns: Turns
) -> TaskContent:
    return SITE.task(
        key=f"{name}/{value}",
        instruction=draw.pick(_SET).format(n=name, v=value),
        world=world,
        solution=turns,
        after=changed(world, {name: value}),
        path=_first_path(world),
    )


def _another_number(draw: Draw, number: SettingValue) -> int:
    return draw.pick([value for value in range(10, 100) if value != number])


SETTINGS = (
    Family("settings_both", both),
    Family("settings_choose", choose, easy=True),
    Family("settings_count", count),
    Family("settings_danger", danger),
    Family("settings_defaults", defaults),
    Family("settings_find", find, may_be_infeasible=True),
    Family("settings_number", set_number, easy=True),
    Family("settings_open", open_section, easy=True),
    Family("settings_read", read, easy=True),
    Family("settings_same", same),
    Family("settings_text", set_text, easy=True),
    Family("settings_toggle", toggle, easy=True),
)
