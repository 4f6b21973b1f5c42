"""Skills with settings."""

from __future__ import annotations

from collections.abc import Iterator

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.settings import HOST, SURE, StoredSection, StoredSetting
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Kind, Refused, Skill, Value
from clawrl_gym.envs.showcase.gui.composed.ways import to, to_setting
from clawrl_gym.envs.showcase.gui.families.family import (
    Turns,
    link,
    number,
    press,
    select,
    tick,
    write,
)

ON, OFF = "on", "off"


def all_settings(desk: Desk) -> Iterator[StoredSetting]:
    for section in desk.settings["sections"]:
        yield from section["settings"]


def setting(desk: Desk, name: Value) -> StoredSetting:
    return next(one for one in all_settings(desk) if one["name"] == name)


def _free(desk: Desk, name: Value) -> StoredSetting:
    found = setting(desk, name)
    if found["locked"]:
        raise Refused
    return found


def section_with(desk: Desk, danger: Value) -> StoredSection:
    return next(one for one in desk.settings["sections"] if one["danger"] == danger)


def _flip(desk: Desk, args: Args) -> Turns:
    """A click on a toggle, whichever way it is."""
    return (*to_setting(args["toggle"]), (tick(str(args["toggle"])), press("Save")))


def _switched(desk: Desk, args: Args) -> None:
    _free(desk, args["toggle"])["value"] = args["switch"] == ON


def _chosen(desk: Desk, args: Args) -> None:
    found = _free(desk, args["choice"])
    if args["option"] not in found["options"]:
        raise Refused
    found["value"] = args["option"]


def _dialled(desk: Desk, args: Args) -> None:
    found = _free(desk, args["dial"])
    if not found["low"] <= int(args["number"]) <= found["high"]:
        raise Refused
    found["value"] = int(args["number"])


def _written(desk: Desk, args: Args) -> None:
    _free(desk, args["field"])["value"] = str(args["word"])


def _reset(desk: Desk, args: Args) -> None:
    section = next(s for s in desk.settings["sections"] if s["name"] == args["section"])
    for one in section["settings"]:
        if not one["locked"]:
            one["value"] = one["default"]


def _done(desk: Desk, args: Args) -> None:
    if args["danger"] in desk.settings["done"]:
        raise Refused
    desk.settings["done"].append(str(args["danger"]))


SETTINGS = (
    Skill(
        "switch_setting", HOST, {"toggle": Kind.TOGGLE, "switch": Kind.SWITCH},
        Phrasings(
            (
                "turn {toggle} {switch}", "see that {toggle} is {switch}",
                "set {toggle} to {switch}", "switch {toggle} {switch}",
            ),
            ("let {toggle} be {switch}", "have {toggle} {switch}"),
        ),
        _switched,
        _flip, settles=True, blind=_flip,
    ),
    Skill(
        "choose_setting", HOST, {"choice": Kind.CHOICE, "option": Kind.OPTION},
        Phrasings(
            (
                "set {choice} to {option}", "choose {option} for {choice}",
                "change {choice} to {option}", "see that {choice} is {option}",
            ),
            ("let {choice} be {option}", "have {option} chosen for {choice}"),
        ),
        _chosen,
        lambda desk, args: (
            *to_setting(args["choice"]),
            (select(str(args["choice"]), str(args["option"])), press("Save")),
        ),
        settles=True,
    ),
    Skill(
        "dial_setting", HOST, {"dial": Kind.DIAL, "number": Kind.NUMBER},
        Phrasings(
            (
                "set {dial} to {number}", "change {dial} to {number}",
                "see that {dial} is {number}", "put {dial} at {number}",
            ),
            ("let {dial} be {number}", "have {dial} at {number}"),
        ),
        _dialled,
        lambda desk, args: (
            *to_setting(args["dial"]),
            (number(str(args["dial"]), int(args["number"])), press("Save")),
        ),
        settles=True,
    ),
    Skill(
        "word_setting", HOST, {"field": Kind.FIELD, "word": Kind.WORD},
        Phrasings(
            (
                "set {field} to {word}", "change {field} to {word}",
                "write {word} as {field}", "see that {field} is {word}",
            ),
            ("let {field} be {word}", "have {word} stand as {field}"),
        ),
        _written,
        lambda desk, args: (
            *to_setting(args["field"]),
            (write(str(args["field"]), str(args["word"])), press("Save")),
        ),
        settles=True,
    ),
    Skill(
        "reset_section", HOST, {"section": Kind.SECTION},
        Phrasings(
            (
                "set all of {section} to their defaults", "reset {section} to the defaults",
                "bring everything in {section} back to its default",
                "put {section} back to default values",
            ),
            ("let all in {section} be as by default", "have {section} at default values"),
        ),
        _reset,
        lambda desk, args: (
            *to(HOST),
            (link(str(args["section"])),),
            (link("Defaults"),),
            (press("Set all to defaults"),),
        ),
        settles=True,
    ),
    Skill(
        "do_danger", HOST, {"danger": Kind.DANGER},
        Phrasings(
            (
                "carry out {danger}", "go through with {danger}",
                "do {danger}, though it cannot be undone", "have {danger} done",
            ),
            ("let {danger} be carried out", "perform {danger}"),
        ),
        _done,
        lambda desk, args: (
            *to(HOST),
            (link(section_with(desk, args["danger"])["name"]),),
            (link(str(args["danger"])),),
            (write(f"Type {SURE} to go on", SURE), press(str(args["danger"]))),
        ),
    ),
)  # fmt: skip
