"""Names of keys, as people and other action sets write them, in the browser's names."""

from __future__ import annotations

MODIFIERS = frozenset({"Control", "Alt", "Shift", "Meta"})
_NAMES = {
    "ctrl": "Control", "control": "Control", "alt": "Alt", "option": "Alt", "shift": "Shift",
    "meta": "Meta", "cmd": "Meta", "command": "Meta", "super": "Meta", "win": "Meta",
    "controlormeta": "Control", "enter": "Enter", "return": "Enter", "kpenter": "Enter",
    "esc": "Escape", "escape": "Escape", "tab": "Tab", "space": "Space", "spacebar": "Space",
    "backspace": "Backspace", "delete": "Delete", "del": "Delete", "insert": "Insert",
    "home": "Home", "end": "End", "pageup": "PageUp", "pgup": "PageUp", "prior": "PageUp",
    "pagedown": "PageDown", "pgdn": "PageDown", "pgdown": "PageDown", "next": "PageDown",
    "up": "ArrowUp", "arrowup": "ArrowUp", "down": "ArrowDown", "arrowdown": "ArrowDown",
    "left": "ArrowLeft", "arrowleft": "ArrowLeft", "right": "ArrowRight",
    "arrowright": "ArrowRight", "capslock": "CapsLock", "contextmenu": "ContextMenu",
    "menu": "ContextMenu", "plus": "+", "minus": "-",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}  # fmt: skip
_EXPECTED = (
    "single characters, Enter, Tab, Escape, Backspace, Delete, Insert, Space, Home, End, PageUp, "
    "PageDown, ArrowUp, ArrowDown, ArrowLeft, ArrowRight, F1 to F12, and any of them after "
    "Control+, Shift+, Alt+ or Meta+"
)


class UnknownKey(ValueError):
    """Why a text names no key and no combination, in words."""


def parse_keys(text: str) -> tuple[str, ...]:
    """The keys of one combination in the browser's names, modifiers first.

    Understood: "ctrl+A", "CTRL + Shift + Tab", "ctrl-a", "Return", "Page_Up", "a", "Control++".
    Raises UnknownKey.
    """
    names = [" "] if text.startswith(" ") and not text.strip() else _split(text.strip())
    if not names:
        raise UnknownKey("say which keys, such as Enter or Control+a")
    keys = tuple(map(_key, names))
    if not MODIFIERS.issuperset(keys[:-1]):
        raise UnknownKey(
            f"{text[:60]!r} is not one combination: modifiers come first, then one key"
        )
    return keys


def _split(text: str) -> list[str]:
    """Split at each "+"; one at the end is itself the key. At "-" only after a modifier."""
    if len(text) < 2:
        return [text] if text else []
    if text.endswith("+"):
        before = text[:-1].rstrip().removesuffix("+").rstrip()
        return [*_split(before), "+"]
    first, sign, rest = text.partition("-")
    if sign and rest and _NAMES.get(_plain(first)) in MODIFIERS:
        return [first.strip(), *_split(rest.strip())]
    return [part.strip() for part in text.split("+")]


def _key(name: str) -> str:
    key = _NAMES.get(_plain(name)) if len(name) > 1 else "Space" if name == " " else name
    if not key or not key.isprintable():
        raise UnknownKey(f"there is no key {name[:40]!r}; keys are {_EXPECTED}")
    return key


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "").replace(" ", "")
