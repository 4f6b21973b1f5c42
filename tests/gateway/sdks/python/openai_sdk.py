"""The official `openai` package: chat completions and Responses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from openai import OpenAI
from scenarios import (
    COUNT,
    HELLO,
    MODEL,
    PLACE,
    STREAMED_SUM,
    SUM,
    SUM_SCHEMA,
    Adder,
    Place,
    Result,
    play,
)

STRICT = {**SUM_SCHEMA, "additionalProperties": False}


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


class Chat:
    def __init__(self) -> None:
        self.api = OpenAI().chat.completions

    def chat(self) -> Result:
        reply = self.api.create(model=MODEL, messages=said(HELLO))
        return {"text": reply.choices[0].message.content}

    def stream(self) -> Result:
        with self.api.stream(
            model=MODEL, messages=said(COUNT), stream_options={"include_usage": True}
        ) as stream:
            return {"pieces": [event.delta for event in stream if event.type == "content.delta"]}

    def tools(self) -> Result:
        return self._tools(SUM, self.api.create)

    def streamed_tools(self) -> Result:
        def streamed(**asked: Any) -> Any:
            with self.api.stream(**asked) as stream:
                return stream.get_final_completion()

        return self._tools(STREAMED_SUM, streamed)

    def _tools(self, question: str, create: Callable[..., Any]) -> Result:
        add, messages = Adder(), said(question)
        function = {"name": "add", "parameters": STRICT, "strict": True}
        asked: Any = {"model": MODEL, "tools": [{"type": "function", "function": function}]}
        reply = create(messages=messages, parallel_tool_calls=True, **asked).choices[0].message
        messages.append(reply)
        for call in reply.tool_calls or []:
            told = str(add(**json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
        final = create(messages=messages, **asked)
        return {"calls": add.calls, "text": final.choices[0].message.content}

    def structured(self) -> Result:
        reply = self.api.parse(model=MODEL, messages=said(PLACE), response_format=Place)
        place = reply.choices[0].message.parsed
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


class Responses:
    def __init__(self) -> None:
        self.api = OpenAI().responses

    def chat(self) -> Result:
        return {"text": self.api.create(model=MODEL, input=HELLO).output_text}

    def stream(self) -> Result:
        with self.api.stream(model=MODEL, input=COUNT) as stream:
            deltas = [event for event in stream if event.type == "response.output_text.delta"]
        return {"pieces": [event.delta for event in deltas]}

    def tools(self) -> Result:
        return self._tools(SUM, self.api.create)

    def streamed_tools(self) -> Result:
        def streamed(**asked: Any) -> Any:
            with self.api.stream(**asked) as stream:
                return stream.get_final_response()

        return self._tools(STREAMED_SUM, streamed)

    def _tools(self, question: str, create: Callable[..., Any]) -> Result:
        add = Adder()
        function = {"type": "function", "name": "add", "parameters": STRICT, "strict": True}
        asked: Any = {"model": MODEL, "tools": [function]}
        response = create(input=question, **asked)
        results: list[Any] = [
            {
                "type": "function_call_output",
                "call_id": item.call_id,
                "output": str(add(**json.loads(item.arguments))),
            }
            for item in response.output
            if item.type == "function_call"
        ]
        final = create(input=results, previous_response_id=response.id, **asked)
        return {"calls": add.calls, "text": final.output_text}

    def structured(self) -> Result:
        place = self.api.parse(model=MODEL, input=PLACE, text_format=Place).output_parsed
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


if __name__ == "__main__":
    play({"chat": Chat, "responses": Responses}[sys.argv[1]]())
