"""The table of docs/sdks.md: what each library does in front of the gateway, as it was played.

`PYTHONPATH=. python -m tests.gateway.sdk_table` plays all of them and writes the table anew.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from clawrl_gym.core.files.files import replace_text
from tests.gateway.sdk_clients import LIBRARIES, SCENARIOS, Library, Played, play

PAGE = Path(__file__).parents[2] / "docs" / "sdks.md"
_BEGIN, _END = "<!-- played -->\n\n", "\n<!-- end -->"
_DIALECTS = {"chat": "chat completions", "responses": "Responses", "messages": "Messages"}
_COLUMNS = ("chat", "streaming", "tools", "streamed tools", "structured output")
"""What the scenarios are called."""
_HEAD = ("library", "version", "dialect", *_COLUMNS, "not trained on", "without effect")


def table(plays: Mapping[Library, Played]) -> str:
    """A row for each library."""
    rows = [_row(library, played) for library, played in plays.items()]
    return "\n".join([_line(_HEAD), f"|{'---|' * len(_HEAD)}", *rows]) + "\n"


def on_page() -> str:
    """The table that the page has."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0]


def _row(library: Library, played: Played) -> str:
    language = "Python" if library.is_python else "JavaScript"
    dialect, called = _DIALECTS[library.dialect], dict(zip(SCENARIOS, _COLUMNS, strict=True))
    cells = [
        f"`{library.package}` ({language})",
        library.version,
        f"{dialect}: {library.note}" if library.note else dialect,
        *("yes" if played.works(scenario) else "no" for scenario in SCENARIOS),
        ", ".join(f"{called[name]} (`{field}`)" for name, field in played.untrainable()) or "-",
        ", ".join(f"`{name}`" for name in sorted(played.unread)) or "-",
    ]
    return _line(cells)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _write() -> None:
    plays = {}
    for library in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder:
            plays[library] = asyncio.run(play(library, Path(folder)))
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    replace_text(PAGE, f"{before}{_BEGIN}{table(plays)}{_END}{rest.partition(_END)[2]}")


if __name__ == "__main__":
    _write()
