"""As much of a terminal as the live view needs, with a window whose size may change."""

from __future__ import annotations

import io
import re

_PIECE = re.compile(r"\x1b\[(?P<sequence>[0-9;?]*[A-Za-z])|(?P<text>[^\x1b])", re.DOTALL)


class Terminal(io.StringIO):
    """The first screen scrolls and is kept; the second is a window that one can write all over."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__()
        self.columns, self.rows = columns, rows
        self.lines = [""]
        """Lines of the first screen, unwrapped, including all that scrolled by."""
        self.window: list[list[str]] | None = None
        """The second screen by rows, while it is shown."""
        self.has_cursor = True
        self._row = self._column = 0

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def resize(self, columns: int, rows: int) -> None:
        """As a second screen does: it cuts off and fills up, and reflows nothing."""
        self.columns, self.rows = columns, rows
        if self.window is not None:
            rows_kept = [row[:columns] + [" "] * (columns - len(row)) for row in self.window[:rows]]
            blank_rows = [[" "] * columns for _ in range(rows - len(rows_kept))]
            self.window = rows_kept + blank_rows
            self._row, self._column = min(self._row, rows - 1), min(self._column, columns)

    @property
    def text(self) -> str:
        """What the window shows."""
        assert self.window is not None
        return "\n".join("".join(row) for row in self.window)

    def write(self, text: str) -> int:
        for piece in _PIECE.finditer(text):
            if piece["sequence"]:
                self._obey(piece["sequence"])
            elif self.window is None:
                self._append(piece["text"])
            else:
                self._put(piece["text"], self.window)
        return len(text)

    def _obey(self, sequence: str) -> None:
        if sequence == "?1049h":
            self.window = [[" "] * self.columns for _ in range(self.rows)]
        elif sequence == "?1049l":
            self.window = None
        elif sequence in ("?25h", "?25l"):
            self.has_cursor = sequence == "?25h"
        elif sequence == "H":
            assert self.window is not None, "what is on the first screen must not be written over"
            self._row = self._column = 0
        else:
            assert sequence.endswith("m"), f"this terminal does not know {sequence!r}"

    def _append(self, character: str) -> None:
        if character == "\n":
            self.lines.append("")
        else:
            self.lines[-1] += character

    def _put(self, character: str, window: list[list[str]]) -> None:
        if character == "\n" or self._column >= self.columns:
            self._row, self._column = self._row + 1, 0
            if self._row >= self.rows:
                window.append([" "] * self.columns)
                del window[0]
                self._row = self.rows - 1
        if character != "\n":
            window[self._row][self._column] = character
            self._column += 1
