"""Lines between marks in a text file of settings: TOML, YAML, or variables of an environment.

Comments and the order of everything else stay. A line that sets one of our keys is kept behind a
mark while ours are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from clawrl_gym.core.errors import ConfigError

_BEGIN = "# >>> clawrl_gym: written by `python -m clawrl_gym.connect`, removed by --undo"
_END = "# <<< clawrl_gym"
_KEPT = "# clawrl_gym keeps: "
_BLOCK = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MarkedLines:
    """What is added at a file's beginning and at its end."""

    check: Callable[[str], object]
    """Raises ValueError for a text that the client could not read."""
    first: tuple[str, ...] = ()
    """Lines at the top, where a TOML file has keys outside tables."""
    last: tuple[str, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    """Keys outside tables, and lines that are added where a file has none."""
    replaces: tuple[str, ...] = ()
    """Keys outside tables that these lines set."""

    def add_to(self, text: str) -> str:
        """Raises ConfigError where the text, or what it would become, cannot be read."""
        self._checked(text, "cannot be read")
        lines = text if not text or text.endswith("\n") else text + "\n"
        there = {_key_of(line) for line in lines.splitlines()}
        missing = tuple(line for key, line in self.defaults if key not in there)
        kept = self._with_kept_lines(lines)
        new = _block(self.first) + kept + _block((*missing, *self.last))
        return self._checked(new, "has settings that ours cannot stand beside; add these lines: ")

    def remove_from(self, text: str, written: str, before: str) -> str:
        """Take our lines out of a text that has changed since.

        A client that writes its own settings may have put new ones between the marks: they stay.
        """
        ours = {line for block in _BLOCK.findall(written) for line in block.splitlines()}
        without = _BLOCK.sub(lambda block: _without(block[0], ours), text)
        return re.sub(f"^{re.escape(_KEPT)}", "", without, flags=re.MULTILINE)

    def _with_kept_lines(self, text: str) -> str:
        lines, in_table = [], False
        for line in text.splitlines(keepends=True):
            in_table = in_table or line.lstrip().startswith("[")
            is_ours = _key_of(line) in self.replaces and not in_table
            lines.append(_KEPT + line if is_ours else line)
        return "".join(lines)

    def _checked(self, text: str, problem: str) -> str:
        try:
            self.check(text)
        except ValueError as error:
            wanted = " / ".join((*self.first, *self.last)) if problem.endswith(": ") else ""
            raise ConfigError(f"{problem}{wanted} ({' '.join(str(error).split())})") from None
        return text


def _block(lines: tuple[str, ...]) -> str:
    return "\n".join((_BEGIN, *lines, _END, "")) if lines else ""


def _without(block: str, ours: set[str]) -> str:
    lines = block.splitlines(keepends=True)
    return "".join(line for line in lines if line.rstrip("\r\n") not in ours)


def _key_of(line: str) -> str | None:
    """The key that a line sets, outside all nesting."""
    key = re.match(r"[\"']?([\w-]+)[\"']?\s*[=:]", line)
    return None if key is None else key[1]
