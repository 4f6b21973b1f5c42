"""LangChain's chat models of OpenAI and Anthropic, with `with_structured_output`."""

from __future__ import annotations

import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from scenarios import COUNT, HELLO, MODEL, PLACE, SUM, Adder, Place, Result, play


class ChatModel:
    def __init__(self, model: BaseChatModel) -> None:
        self.model = model

    def chat(self) -> Result:
        return {"text": self.model.invoke(HELLO).text}

    def stream(self) -> Result:
        return {"pieces": [chunk.text for chunk in self.model.stream(COUNT) if chunk.text]}

    def tools(self) -> Result:
        adder = Adder()

        @tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return adder(a, b)

        bound = self.model.bind_tools([add])
        question = HumanMessage(SUM)
        calling = bound.invoke([question])
        assert isinstance(calling, AIMessage)
        results = [
            ToolMessage(str(add.invoke(call["args"])), tool_call_id=call["id"])
            for call in calling.tool_calls
        ]
        final = bound.invoke([question, calling, *results])
        return {"calls": adder.calls, "text": final.text}

    def structured(self) -> Result:
        place = self.model.with_structured_output(Place).invoke(PLACE)
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


if __name__ == "__main__":
    models = {"chat": ChatOpenAI, "messages": ChatAnthropic}
    play(ChatModel(models[sys.argv[1]](model=MODEL)))
