"""OpenAI Agents SDK in its default mode, which is Responses; its tracing is off."""

from __future__ import annotations

import asyncio
from typing import Any

from scenarios import COUNT, HELLO, MODEL, PLACE, STREAMED_SUM, SUM, Adder, Place, Result, play

from agents import Agent, FunctionTool, Runner, function_tool, set_tracing_disabled


def agent(**more: Any) -> Agent[None]:
    return Agent(name="helper", instructions="You help.", model=MODEL, **more)


def offered(adder: Adder) -> FunctionTool:
    @function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return adder(a, b)

    return add


class Responses:
    def __init__(self, loop: asyncio.Runner) -> None:
        self.loop = loop

    def run(self, asked: Agent[None], text: str) -> Any:
        return self.loop.run(Runner.run(asked, text)).final_output

    def chat(self) -> Result:
        return {"text": self.run(agent(), HELLO)}

    def stream(self) -> Result:
        async def pieces() -> list[str]:
            events = Runner.run_streamed(agent(), COUNT).stream_events()
            raw = [event.data async for event in events if event.type == "raw_response_event"]
            return [data.delta for data in raw if data.type == "response.output_text.delta"]

        return {"pieces": self.loop.run(pieces())}

    def tools(self) -> Result:
        adder = Adder()
        text = self.run(agent(tools=[offered(adder)]), SUM)
        return {"calls": adder.calls, "text": text}

    def streamed_tools(self) -> Result:
        async def text(asked: Agent[None]) -> str:
            result = Runner.run_streamed(asked, STREAMED_SUM)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

        adder = Adder()
        said = self.loop.run(text(agent(tools=[offered(adder)])))
        return {"calls": adder.calls, "text": said}

    def structured(self) -> Result:
        place = self.run(agent(output_type=Place), PLACE)
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


if __name__ == "__main__":
    set_tracing_disabled(True)
    with asyncio.Runner() as loop:
        play(Responses(loop))
