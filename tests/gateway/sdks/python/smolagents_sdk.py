"""smolagents: its model of OpenAI servers and its agent that calls tools."""

from __future__ import annotations

import os
from typing import Any

from scenarios import COUNT, HELLO, MODEL, PLACE, STREAMED_SUM, SUM, Adder, Place, Result, play
from smolagents import (
    ChatMessage,
    LogLevel,
    MessageRole,
    MultiStepAgent,
    OpenAIModel,
    ToolCallingAgent,
    tool,
)


def said(text: str) -> list[ChatMessage]:
    return [ChatMessage(role=MessageRole.USER, content=text)]


class Chat:
    agent: type[MultiStepAgent] = ToolCallingAgent

    def __init__(self) -> None:
        self.model = OpenAIModel(
            MODEL, api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
        )

    def chat(self) -> Result:
        return {"text": self.model.generate(said(HELLO)).content}

    def stream(self) -> Result:
        deltas = self.model.generate_stream(said(COUNT))
        return {"pieces": [delta.content for delta in deltas if delta.content]}

    def tools(self) -> Result:
        return self._tools(SUM)

    def streamed_tools(self) -> Result:
        return self._tools(STREAMED_SUM, stream_outputs=True)

    def _tools(self, question: str, **more: Any) -> Result:
        adder = Adder()

        @tool
        def add(a: int, b: int) -> int:
            """Add two numbers.

            Args:
                a: The first.
                b: The second.
            """
            return adder(a, b)

        agent = self.agent([add], self.model, verbosity_level=LogLevel.OFF, **more)
        return {"text": agent.run(question), "calls": adder.calls}

    def structured(self) -> Result:
        schema = {"name": "Place", "schema": Place.model_json_schema(), "strict": True}
        wanted = {"type": "json_schema", "json_schema": schema}
        reply = self.model.generate(said(PLACE), response_format=wanted)
        assert isinstance(reply.content, str)
        return {"object": Place.model_validate_json(reply.content).model_dump()}


if __name__ == "__main__":
    play(Chat())
