"""Oracles for pages of MiniWoB++ whose instruction alone says what to do.

Each makes the turns from the text that the page shows; the page ends the task with the last step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.gui.task import Locator, Step

Turns = tuple[tuple[Step, ...], ...]
_ORDINALS = ("1st", "2nd", "3rd")
_SUBMIT = Locator("button", "Submit")


def _read(pattern: str, instruction: str) -> tuple[str, ...]:
    """Names in an instruction. Raises TaskError when it reads otherwise."""
    match = re.fullmatch(pattern, instruction)
    if match is None:
        raise TaskError(f"got the instruction {instruction!r}, expected {pattern!r}")
    return match.groups()


def _click(role: str, name: str, nth: int = 0) -> Step:
    return Step("click", Locator(role, name, nth))


def _clicks(role: str, pattern: str) -> Callable[[str], Turns]:
    """A click on each element that the pattern's groups name."""

    def turns(instruction: str) -> Turns:
        return (tuple(_click(role, name) for name in _read(pattern, instruction)),)

    return turns


def _on(role: str, name: str) -> Callable[[str], Turns]:
    """A click on what is the same in each problem."""

    def turns(instruction: str) -> Turns:
        return ((_click(role, name),),)

    return turns


def _tick(role: str, pattern: str) -> Callable[[str], Turns]:
    """A click on each of those that are listed with commas, then on Submit."""

    def turns(instruction: str) -> Turns:
        (names_text,) = _read(pattern, instruction)
        names = [] if names_text == "nothing" else names_text.split(", ")
        return ((*(_click(role, name) for name in names), Step("click", _SUBMIT)),)

    return turns


def _typed(
    pattern: str, submit: str = "Submit", copies: int = 1, written: Callable[[str], str] = str
) -> Callable[[str], Turns]:
    """The pattern's groups typed into the unnamed fields in order, then a button."""

    def turns(instruction: str) -> Turns:
        texts = [written(text) for text in _read(pattern, instruction)] * copies
        steps = (Step("type", Locator("textbox", "", n), text=text) for n, text in enumerate(texts))
        return ((*steps, _click("button", submit)),)

    return turns


def _choose_from_list(instruction: str) -> Turns:
    (name,) = _read(r"Select (.+) from the list and click Submit\.", instruction)
    choice = Step("select", Locator("combobox", ""), text=name)
    return ((choice, Step("click", _SUBMIT)),)


def _focused(instruction: str) -> Turns:
    (place,) = _read(r"Focus into the (\w+) input textbox\.", instruction)
    return ((_click("textbox", "", _ORDINALS.index(place)),),)


def _radio_and_text(instruction: str) -> Turns:
    radio, number, box = _read(
        r'Check the (\w+) radio button and enter the number "(.+)" into the (\w+) textbox\.',
        instruction,
    )
    checked = _click("radio", "", _ORDINALS.index(radio))
    typed = Step("type", Locator("textbox", "", _ORDINALS.index(box)), text=number)
    return ((checked, typed, Step("click", _SUBMIT)),)


def _in_dialog(instruction: str) -> Turns:
    (name,) = _read(r'Click the button in the dialog box labeled "(.+)"\.', instruction)
    return ((_click("button", "Close" if name == "x" else name),),)


_CHECKED = r"Select (.+) and click Submit\."
_ENTERED = r'Enter "(.+)" into the text field and press Submit\.'
SOLUTIONS: Mapping[str, Callable[[str], Turns]] = {
    "click-button": _clicks("button", r'Click on the "(.+)" button\.'),
    "click-button-sequence": _clicks("button", r"Click button (\w+), then click button (\w+)\."),
    "click-checkboxes": _tick("checkbox", _CHECKED),
    "click-checkboxes-large": _tick("checkbox", _CHECKED),
    "click-checkboxes-transfer": _tick("checkbox", _CHECKED),
    "click-dialog": _on("button", "Close"),
    "click-dialog-2": _in_dialog,
    "click-link": _clicks("clickable", r'Click on the link "(.+)"\.'),
    "click-option": _tick("radio", _CHECKED),
    "click-tab": _clicks("tab", r"Click on (Tab #\d)\."),
    "click-test": _on("button", "Click Me!"),
    "click-test-2": _clicks("button", r"Click button (\w+)\."),
    "click-test-transfer": _clicks("button", r"Click button (\w+)\."),
    "choose-list": _choose_from_list,
    "enter-password": _typed(
        r'Enter the password "(.+)" into both text fields and press submit\.', copies=2
    ),
    "enter-text": _typed(_ENTERED),
    "enter-text-2": _typed(
        r'Type "(.+)" in all lower case letters in the text input and press Submit\.',
        written=str.lower,
    ),
    "enter-text-dynamic": _typed(_ENTERED),
    "focus-text": _on("textbox", ""),
    "focus-text-2": _focused,
    "form-sequence-2": _radio_and_text,
    "login-user": _typed(
        r'Enter the username "(.+)" and the password "(.+)" into the text fields and press login\.',
        submit="Login",
    ),
    "unicode-test": _clicks("button", r'Click on the "(.+)" button\.'),
}
