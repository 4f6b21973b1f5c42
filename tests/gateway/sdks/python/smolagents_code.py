"""smolagents with its agent that writes code instead of calls."""

from __future__ import annotations

from scenarios import play
from smolagents import CodeAgent
from smolagents_sdk import Chat


class Code(Chat):
    agent = CodeAgent


if __name__ == "__main__":
    play(Code())
