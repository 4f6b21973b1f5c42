"""The five scenarios that each script has a library play: what is asked, and what is printed.

A script runs with the library's own settings: the addresses and keys come from the environment.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import redirect_stdout
from typing import Any, Protocol

from pydantic import BaseModel

MODEL = "policy"
HELLO = "Say hello."
COUNT = "Count to three."
SUM = "What is 2 plus 3, and 4 plus 5?"
STREAMED_SUM = "Add 2 to 3, and 4 to 5."
PLACE = "Describe the city of Bern."
SUM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
Result = dict[str, Any]


class Place(BaseModel):
    """A city."""

    name: str
    people: int
    languages: list[str]


class Client(Protocol):
    """A library in one of its dialects."""

    def chat(self) -> Result:
        """`text`: the reply to HELLO."""

    def stream(self) -> Result:
        """`pieces`: those of the streamed reply to COUNT, without empty ones."""

    def tools(self) -> Result:
        """`calls`: the tool's arguments; `text`: the reply to SUM after its results."""

    def streamed_tools(self) -> Result:
        """The same for STREAMED_SUM, with all replies streamed."""

    def structured(self) -> Result:
        """`object`: the reply to PLACE as the library's typed object, made plain."""


def play(client: Client) -> None:
    """Print one line of JSON for each scenario; one that fails says how, and the next goes on."""
    for name in ("chat", "stream", "tools", "streamed_tools", "structured"):
        try:
            with redirect_stdout(sys.stderr):  # what the library itself prints
                result: Result = getattr(client, name)()
        except Exception:
            result = {"error": traceback.format_exc()[-1500:]}
        print(json.dumps({"scenario": name, **result}), flush=True)


class Adder:
    """The tool: it adds two numbers and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, int]] = []

    def __call__(self, a: int, b: int) -> int:
        self.calls.append({"a": a, "b": b})
        return a + b
