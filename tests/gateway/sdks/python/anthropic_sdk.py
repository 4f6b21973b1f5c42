"""The official `anthropic` package: Messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anthropic import Anthropic
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


def said(text: str) -> Any:
    return {"model": MODEL, "max_tokens": 256, "messages": [{"role": "user", "content": text}]}


class Messages:
    def __init__(self) -> None:
        self.api = Anthropic().messages

    def chat(self) -> Result:
        message = self.api.create(**said(HELLO))
        return {"text": "".join(block.text for block in message.content if block.type == "text")}

    def stream(self) -> Result:
        with self.api.stream(**said(COUNT)) as stream:
            return {"pieces": list(stream.text_stream)}

    def tools(self) -> Result:
        return self._tools(SUM, self.api.create)

    def streamed_tools(self) -> Result:
        def streamed(**asked: Any) -> Any:
            with self.api.stream(**asked) as stream:
                return stream.get_final_message()

        return self._tools(STREAMED_SUM, streamed)

    def _tools(self, question: str, create: Callable[..., Any]) -> Result:
        add, asked = Adder(), said(question)
        asked["tools"] = [{"name": "add", "input_schema": SUM_SCHEMA}]
        message = create(**asked)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": str(add(**block.input))}
            for block in message.content
            if block.type == "tool_use"
        ]
        asked["messages"] += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results},
        ]
        final = create(**asked)
        text = "".join(block.text for block in final.content if block.type == "text")
        return {"calls": add.calls, "text": text}

    def structured(self) -> Result:
        place = self.api.parse(**said(PLACE), output_format=Place).parsed_output
        assert isinstance(place, Place)
        return {"object": place.model_dump()}


if __name__ == "__main__":
    play(Messages())
