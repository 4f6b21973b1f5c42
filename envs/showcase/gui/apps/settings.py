"""A settings page: sections of toggles, choices, numbers and texts that are saved together.

Some settings are locked; what cannot be undone asks for a word before it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypedDict

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import (
    Handler,
    RequestRefused,
    filled,
    optional,
    page,
    path_to,
    refuse_rest,
    see_other,
    serve,
    whole,
)

HOST = "settings"
TITLE = "Settings"
MENU = ((TITLE, "/"),)
SURE = "yes"
"""Word to type before something is done that cannot be undone."""
LONGEST_VALUE = 60
"""Characters of a text."""

SettingValue = bool | int | str


class StoredSetting(TypedDict):
    """The fields of `Setting`."""

    name: str
    value: SettingValue
    default: SettingValue
    options: list[str]
    low: int
    high: int
    locked: bool


class StoredSection(TypedDict):
    """The fields of `Section`."""

    name: str
    settings: list[StoredSetting]
    danger: str


class SettingsWorld(TypedDict):
    """Stored state; `done` lists irreversible actions that were done."""

    sections: list[StoredSection]
    done: list[str]


@dataclass(slots=True)
class Setting:
    """Something that can be set; its default tells toggle, number and text apart."""

    name: str
    value: SettingValue
    default: SettingValue
    options: list[str]
    """Options of a choice; empty for all else."""
    low: int
    high: int
    locked: bool
    """It is shown and cannot be changed."""

    @property
    def kind(self) -> Literal["toggle", "number", "choice", "text"]:
        if isinstance(self.default, bool):
            return "toggle"
        if isinstance(self.default, int):
            return "number"
        return "choice" if self.options else "text"

    @property
    def shown_value(self) -> str:
        """The value as a page says it."""
        return show_value(self.value)


@dataclass(slots=True)
class Section:
    """Settings that stand on one page."""

    name: str
    settings: list[Setting]
    danger: str
    """Irreversible action of this section, as its button says it; or empty."""

    @property
    def path(self) -> str:
        return f"/{self.name.lower()}"

    @property
    def unlocked(self) -> list[Setting]:
        """Settings that can be changed."""
        return [setting for setting in self.settings if not setting.locked]


class Settings:
    """The site."""

    def __init__(self, world: SettingsWorld) -> None:
        self._sections = [
            Section(
                stored["name"],
                [Setting(**setting) for setting in stored["settings"]],
                stored["danger"],
            )
            for stored in world["sections"]
        ]
        self._done_dangers = list(world["done"])
        self._pages: dict[str, Handler] = {"": self._home_page, "find": self._search_page}
        self._changes: dict[str, Handler] = {}
        for section in self._sections:
            name = section.path.removeprefix("/")
            self._pages[name] = partial(self._section_page, section)
            self._changes[name] = partial(self._change, section)

    def handle(self, request: Request) -> Response:
        return serve(request, self._pages, self._changes, TITLE, MENU)

    def state(self) -> object:
        values = {
            section.name: {setting.name: setting.value for setting in section.settings}
            for section in self._sections
        }
        return {"values": values, "done": list(self._done_dangers)}

    def _home_page(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        notices = _notices(request)
        return page("settings/home", TITLE, notices=notices, sections=self._sections)

    def _search_page(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        query = request.query.get("q", "").strip().casefold()[:LONGEST_VALUE]
        matches = [
            (setting, section)
            for section in self._sections
            for setting in section.settings
            if query and query in setting.name.casefold()
        ]
        return page("settings/search", "Search", MENU, matches=matches)

    def _section_page(self, section: Section, request: Request, rest: str) -> Response:
        if rest == "defaults" and section.settings:
            return _confirm_page(section, "Set all to defaults", "defaults")
        if rest == "danger" and section.danger:
            return _confirm_page(section, section.danger, "danger", SURE)
        refuse_rest(rest)
        notices = _notices(request)
        return page("settings/section", section.name, MENU, notices=notices, section=section)

    def _change(self, section: Section, request: Request, rest: str) -> Response:
        if request.form.get("section") != section.name:
            raise RequestRefused("The form is not whole.")
        if rest == "defaults":
            return self._reset(section)
        if rest == "danger" and section.danger:
            return self._do_danger(section, request)
        refuse_rest(rest)
        # All values are right before one is set.
        values = [_submitted_value(setting, request) for setting in section.unlocked]
        for setting, value in zip(section.unlocked, values, strict=True):
            setting.value = value
        return see_other(path_to(section.path, saved=1))

    def _reset(self, section: Section) -> Response:
        for setting in section.unlocked:
            setting.value = setting.default
        return see_other(path_to(section.path, reset=1))

    def _do_danger(self, section: Section, request: Request) -> Response:
        if filled(request, "sure", "The word").casefold() != SURE:
            raise RequestRefused(f"Type {SURE} to go on. Nothing was done.")
        if section.danger not in self._done_dangers:
            self._done_dangers.append(section.danger)
        return see_other(path_to("/", done=1))


def show_value(value: SettingValue) -> str:
    """A value as a page says it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _confirm_page(section: Section, button: str, action: str, word: str = "") -> Response:
    """Asks before it is done, for a word if there is one."""
    return page(
        "settings/confirm",
        f"{button}?",
        MENU,
        section=section,
        button=button,
        action=action,
        word=word,
    )


def _submitted_value(setting: Setting, request: Request) -> SettingValue:
    match setting.kind:
        case "toggle":
            return setting.name in request.form
        case "number":
            digits = filled(request, setting.name, setting.name)
            return whole(digits, setting.name, setting.low, setting.high)
        case "choice":
            option = filled(request, setting.name, setting.name)
            if option not in setting.options:
                options = ", ".join(setting.options)
                raise RequestRefused(f"{setting.name} must be one of: {options}.")
            return option
        case "text":
            text = optional(request, setting.name)
            if len(text) > LONGEST_VALUE:
                raise RequestRefused(
                    f"{setting.name} must have at most {LONGEST_VALUE} characters."
                )
            return text


_NOTICES = {"saved": "Saved.", "reset": "All are set to their defaults.", "done": "Done."}


def _notices(request: Request) -> list[str]:
    """Notices about what the previous page did."""
    return [text for name, text in _NOTICES.items() if name in request.query]
