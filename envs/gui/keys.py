"""Names of keys: what people and other tools call them, in the browser's names."""

from __future__ import annotations

_MODIFIERS = {
    "control": "Control", "ctrl": "Control", "controlormeta": "Control", "shift": "Shift",
    "alt": "Alt", "option": "Alt", "meta": "Meta", "cmd": "Meta", "command": "Meta",
    "super": "Meta", "win": "Meta",
}  # fmt: skip
_NAMED = {
    "enter": "Enter", "return": "Enter", "kpenter": "Enter", "esc": "Escape",
    "escape": "Escape", "tab": "Tab", "space": "Space", "spacebar": "Space",
    "backspace": "Backspace", "delete": "Delete", "del": "Delete", "insert": "Insert",
    "home": "Home", "end": "End", "pageup": "PageUp", "pgup": "PageUp", "prior": "PageUp",
    "pagedown": "PageDown", "pgdn": "PageDown", "next": "PageDown", "up": "ArrowUp",
    "arrowup": "ArrowUp", "down": "ArrowDown", "arrowdown": "ArrowDown", "left": "ArrowLeft",
    "arrowleft": "ArrowLeft", "right": "ArrowRight", "arrowright": "ArrowRight",
    "capslock": "CapsLock", "contextmenu": "ContextMenu", "menu": "ContextMenu",
    "plus": "+", "minus": "-", **{f"f{n}": f"F{n}" for n in range(1, 13)},
}  # fmt: skip


def key_names(said: str) -> str | None:
    """A key or combination in Playwright's form, `Control+Shift+a`; None for what is none."""
    whole = said.strip() or said[:1]
    *before, last = _parts(whole)
    modifiers = [_MODIFIERS.get(part.strip().lower()) for part in before]
    key = _key(last if last == " " else last.strip())
    names = [*modifiers, key]
    return None if None in names else "+".join(name for name in names if name)


def _parts(whole: str) -> list[str]:
    """At each "+"; a last one is itself the key, as in `Control++`."""
    if whole.endswith("+"):
        before = whole[:-1].rstrip().removesuffix("+")
        return [*(before.split("+") if before else []), "+"]
    return whole.split("+")


def _key(name: str) -> str | None:
    lower = name.lower()
    if name == " ":
        return "Space"
    if len(name) == 1:
        return name if name.isprintable() else None
    return _MODIFIERS.get(lower) or _NAMED.get(lower.replace("_", "").replace(" ", ""))
