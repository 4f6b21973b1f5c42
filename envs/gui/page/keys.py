"""Names of keys, as people and other action sets write them."""

from __future__ import annotations

_NAMED = {
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
_MODIFIERS = frozenset({"Control", "Alt", "Shift", "Meta"})
_KNOWN = (
    "single characters, Enter, Tab, Escape, Backspace, Delete, Insert, Space, Home, End, PageUp, "
    "PageDown, ArrowUp, ArrowDown, ArrowLeft, ArrowRight, F1 to F12, and any of them after "
    "Control+, Shift+, Alt+ or Meta+"
)


def chord(said: str) -> list[str] | str:
    """Keys of one combination in the browser's names, modifiers first; or why it is none, in words.

    Understood: "ctrl+A", "CTRL + Shift + Tab", "ctrl-a", "Return", "Page_Up", "a", "+"."""
    if said == " ":
        return ["Space"]
    names = _split(said.strip())
    if not names:
        return "say which keys, such as Enter or Control+a"
    keys = []
    for name in names:
        key = _key(name)
        if key is None:
            return f"there is no key {name[:40]!r}; keys are {_KNOWN}"
        keys.append(key)
    if any(key not in _MODIFIERS for key in keys[:-1]):
        return f"{said[:60]!r} is not one combination: modifiers come first, then one key"
    return keys


def _split(text: str) -> list[str]:
    """At "+"; a "+" at the end is itself the key. At "-" only after a modifier."""
    if len(text) < 2:
        return [text] if text else []
    if text.endswith("+"):
        rest = text[:-1].rstrip()
        return [*_split(rest[:-1].rstrip()), "+"] if rest.endswith("+") else [text]
    first, sign, rest = text.partition("-")
    if sign and rest and "+" not in first and _key(first.strip()) in _MODIFIERS:
        return [first.strip(), *_split(rest.strip())]
    return [part.strip() for part in text.split("+")]


def _key(name: str) -> str | None:
    if len(name) == 1:
        return name if name.isprintable() else None
    return _NAMED.get(name.lower().replace("_", "").replace(" ", ""))
