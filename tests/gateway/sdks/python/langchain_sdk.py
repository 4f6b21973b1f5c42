"""LangChain's chat models of OpenAI and Anthropic, with `with_structured_output`."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from scenarios import COUNT, HELLO, MODEL, PLACE, STREAMED_SUM, SUM, Adder, Place, Result, play


class ChatModel:
    def __init__(self, model: BaseChatModel) -> None:
        self.model = model

    def chat(self) -> Result:
        return {"text": self.model.invoke(HELLO).text}

    def stream(self) -> Result:
        return {"pieces": [chunk.text for chunk in self.model.stream(COUNT) if chunk.text]}

    def tools(self) -> Result:
        return self._tools(SUM, lambda model, messages: model.invoke(messages))

    def streamed_tools(self) -> Result:
        def streamed(model: Runnable[Any, Any], messages: list[Any]) -> Any:
            return reduce(operator.add, model.stream(messages))

        return self._tools(STREAMED_SUM, streamed)

    def _tools(self, text: str, reply: Callable[[Runnable[Any, Any], list[Any]], Any]) -> Result:
        adder = Adder()

        @tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return adder(a, b)

        bound = self.model.bind_tools([add])
        question = HumanMessage(text)
        calling = reply(bound, [question])
        assert isinstance(calling, AIMessage)
        results = [
            ToolMessage(str(add.invoke(call["args"])), tool_call_id=call["id"])
            for call in calling.tool_calls
        ]
        final = reply(bound, [question, calling, *results])
        return {"calls": adder.calls, "text": final.text}

    def structured(self) -> Result:
        place = self.model.with_structured_output(Place).invoke(PLACE)
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


if __name__ == "__main__":
    models = {"chat": ChatOpenAI, "messages": ChatAnthropic}
    play(ChatModel(models[sys.argv[1]](model=MODEL)))
