"""A settings page: sections of toggles, choices, numbers and texts that are saved together.

Some settings are locked; what cannot be undone asks for a word before it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from clawrl_gym.envs.gui.apps.html import (
    Html,
    bullets,
    button,
    check_box,
    choice,
    form,
    heading,
    hidden,
    link,
    notice,
    number_field,
    page,
    paragraph,
    path_to,
    see_other,
    text_field,
)
from clawrl_gym.envs.gui.apps.serving import Handler, Refused, filled, optional, serve, whole
from clawrl_gym.envs.gui.site import Request, Response

HOST = "settings"
TITLE = "Settings"
MENU = (link(TITLE, "/"),)
SURE = "yes"
"""What has to be typed before something is done that cannot be undone."""
LONGEST_VALUE = 60
"""Characters of a text."""

Value = bool | int | str


@dataclass(slots=True)
class Setting:
    """One thing that can be set; its default tells toggle, number and text apart."""

    name: str
    value: Value
    default: Value
    options: list[str]
    """Of a choice; empty for all else."""
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


@dataclass(slots=True)
class Section:
    """Settings that stand on one page."""

    name: str
    settings: list[Setting]
    danger: str
    """What can be done here and not be undone, as its button says it; or nothing."""

    @property
    def path(self) -> str:
        return f"/{self.name.lower()}"


class Settings:
    """The site. Its world has `sections` as above, and `done`: what cannot be undone."""

    def __init__(self, world: Mapping[str, Any]) -> None:
        self._sections = [
            Section(part["name"], [Setting(**it) for it in part["settings"]], part["danger"])
            for part in world["sections"]
        ]
        self._done: list[str] = list(world["done"])
        self._pages: dict[str, Handler] = {"": self._home, "find": self._found}
        self._changes: dict[str, Handler] = {}
        for section in self._sections:
            name = section.path.removeprefix("/")
            self._pages[name] = partial(self._look, section)
            self._changes[name] = partial(self._change, section)

    def handle(self, request: Request) -> Response:
        return serve(request, self._pages, self._changes, TITLE, MENU)

    def state(self) -> Any:
        values = {part.name: {it.name: it.value for it in part.settings} for part in self._sections}
        return {"values": values, "done": list(self._done)}

    def _home(self, request: Request, rest: str) -> Response:
        _end(rest)
        search = form("/find", paragraph(text_field("Search", "q"), button("Search")), method="get")
        links = bullets([link(section.name, section.path)] for section in self._sections)
        return page(TITLE, heading(TITLE), *_said(request), links, search)

    def _found(self, request: Request, rest: str) -> Response:
        _end(rest)
        wanted = request.query.get("q", "").strip().casefold()[:LONGEST_VALUE]
        found: list[list[Html | str]] = [
            [link(setting.name, section.path), f"in {section.name}"]
            for section in self._sections
            for setting in section.settings
            if wanted and wanted in setting.name.casefold()
        ]
        shown = bullets(found) if found else notice("No setting has this name.")
        return page("Search", heading("Search"), shown, menu=MENU)

    def _look(self, section: Section, request: Request, rest: str) -> Response:
        if rest == "defaults" and section.settings:
            return self._ask(section, "Set all to defaults", "defaults")
        if rest == "danger" and section.danger:
            word = paragraph(text_field(f"Type {SURE} to go on", "sure"))
            return self._ask(section, section.danger, "danger", word)
        _end(rest)
        free = [setting for setting in section.settings if not setting.locked]
        fields = [paragraph(self._field(setting)) for setting in free]
        locked = [
            paragraph(f"{setting.name}: {shown(setting.value)} (locked)")
            for setting in section.settings
            if setting.locked
        ]
        below: list[Html] = [button("Save"), link("Defaults", f"{section.path}/defaults")]
        if section.danger:
            below.append(link(section.danger, f"{section.path}/danger"))
        whole_form = form(section.path, hidden("section", section.name), *fields, paragraph(*below))
        return page(
            section.name, heading(section.name), *_said(request), *locked, whole_form, menu=MENU
        )

    def _field(self, setting: Setting) -> Html:
        value = setting.value
        match setting.kind:
            case "toggle":
                return check_box(setting.name, setting.name, value is True)
            case "choice":
                return choice(setting.name, setting.name, setting.options, str(value))
            case "number":
                return number_field(setting.name, setting.name, str(value))
            case "text":
                return text_field(setting.name, setting.name, str(value))

    def _ask(self, section: Section, what: str, action: str, *blocks: Html) -> Response:
        title = f"{what}?"
        sent = form(
            f"{section.path}/{action}",
            *blocks,
            paragraph(button(what, "section", section.name), link("Cancel", section.path)),
        )
        return page(title, heading(title), sent, menu=MENU)

    def _change(self, section: Section, request: Request, rest: str) -> Response:
        if request.form.get("section") != section.name:
            raise Refused("The form is not whole.")
        if rest == "defaults":
            return self._reset(section)
        if rest == "danger" and section.danger:
            return self._do(section, request)
        _end(rest)
        free = [setting for setting in section.settings if not setting.locked]
        sent = [_sent(setting, request) for setting in free]  # all are right before one is set
        for setting, value in zip(free, sent, strict=True):
            setting.value = value
        return see_other(path_to(section.path, saved=1))

    def _reset(self, section: Section) -> Response:
        for setting in section.settings:
            if not setting.locked:
                setting.value = setting.default
        return see_other(path_to(section.path, reset=1))

    def _do(self, section: Section, request: Request) -> Response:
        if filled(request, "sure", "The word").casefold() != SURE:
            raise Refused(f"Type {SURE} to go on. Nothing was done.")
        if section.danger not in self._done:
            self._done.append(section.danger)
        return see_other(path_to("/", done=1))


def shown(value: Value) -> str:
    """A value as a page says it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _sent(setting: Setting, request: Request) -> Value:
    match setting.kind:
        case "toggle":
            return setting.name in request.form
        case "number":
            sent = filled(request, setting.name, setting.name)
            return whole(sent, setting.name, setting.low, setting.high)
        case "choice":
            sent = filled(request, setting.name, setting.name)
            if sent not in setting.options:
                raise Refused(f"{setting.name} must be one of: {', '.join(setting.options)}.")
            return sent
        case "text":
            sent = optional(request, setting.name)
            if len(sent) > LONGEST_VALUE:
                raise Refused(f"{setting.name} must have at most {LONGEST_VALUE} characters.")
            return sent


_SAID = {"saved": "Saved.", "reset": "All are set to their defaults.", "done": "Done."}


def _said(request: Request) -> list[Html]:
    """What the page before did."""
    return [notice(text) for name, text in _SAID.items() if name in request.query]


def _end(rest: str) -> None:
    if rest:
        raise Refused("There is no such page.", 404)
