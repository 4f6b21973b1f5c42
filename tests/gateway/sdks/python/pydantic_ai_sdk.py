"""pydantic-ai by the names of its models; its typed output is a tool that must be called."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent, AgentRunResultEvent
from scenarios import COUNT, HELLO, MODEL, PLACE, STREAMED_SUM, SUM, Adder, Place, Result, play


class Named:
    def __init__(self, provider: str) -> None:
        self.name: Any = f"{provider}:{MODEL}"

    def chat(self) -> Result:
        return {"text": Agent(self.name).run_sync(HELLO).output}

    def stream(self) -> Result:
        async def pieces() -> list[str]:
            async with Agent(self.name).run_stream(COUNT) as result:
                return [text async for text in result.stream_text(delta=True, debounce_by=None)]

        return {"pieces": asyncio.run(pieces())}

    def tools(self) -> Result:
        adder = Adder()
        text = self._with(adder).run_sync(SUM).output
        return {"calls": adder.calls, "text": text}

    def streamed_tools(self) -> Result:
        async def text(agent: Agent) -> str:
            # `run_stream` would end with the text before the calls
            async with agent.run_stream_events(STREAMED_SUM) as events:
                *_, last = [event async for event in events]
            assert isinstance(last, AgentRunResultEvent)
            return str(last.result.output)

        adder = Adder()
        return {"text": asyncio.run(text(self._with(adder))), "calls": adder.calls}

    def _with(self, adder: Adder) -> Agent:
        agent = Agent(self.name)

        @agent.tool_plain
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return adder(a, b)

        return agent

    def structured(self) -> Result:
        place = Agent(self.name, output_type=Place).run_sync(PLACE).output
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


if __name__ == "__main__":
    names = {"responses": "openai", "chat": "openai-chat", "messages": "anthropic"}
    play(Named(names[sys.argv[1]]))
