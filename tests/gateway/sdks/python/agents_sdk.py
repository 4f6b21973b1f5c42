"""OpenAI Agents SDK in its default mode, which is Responses; its tracing is off."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled
from scenarios import COUNT, HELLO, MODEL, PLACE, SUM, Adder, Place, Result, play


def agent(**more: Any) -> Agent[None]:
    return Agent(name="helper", instructions="You help.", model=MODEL, **more)


class Responses:
    def chat(self) -> Result:
        return {"text": Runner.run_sync(agent(), HELLO).final_output}

    def stream(self) -> Result:
        async def pieces() -> list[str]:
            events = Runner.run_streamed(agent(), COUNT).stream_events()
            raw = [event.data async for event in events if event.type == "raw_response_event"]
            return [data.delta for data in raw if data.type == "response.output_text.delta"]

        return {"pieces": asyncio.run(pieces())}

    def tools(self) -> Result:
        adder = Adder()

        @function_tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return adder(a, b)

        result = Runner.run_sync(agent(tools=[add]), SUM)
        return {"calls": adder.calls, "text": result.final_output}

    def structured(self) -> Result:
        place = Runner.run_sync(agent(output_type=Place), PLACE).final_output
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


if __name__ == "__main__":
    set_tracing_disabled(True)
    play(Responses())
