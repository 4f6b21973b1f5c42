"""LiteLLM's `completion` with its providers of OpenAI and Anthropic."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import litellm
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


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


class Completion:
    def __init__(self, provider: str) -> None:
        self.model = f"{provider}/{MODEL}"

    def chat(self) -> Result:
        reply = litellm.completion(self.model, said(HELLO))
        return {"text": reply.choices[0].message.content}

    def stream(self) -> Result:
        chunks = litellm.completion(self.model, said(COUNT), stream=True)
        texts = [chunk.choices[0].delta.content for chunk in chunks]
        return {"pieces": [text for text in texts if text]}

    def tools(self) -> Result:
        return self._tools(SUM, litellm.completion)

    def streamed_tools(self) -> Result:
        def streamed(*asked: Any, **more: Any) -> Any:
            return litellm.stream_chunk_builder([*litellm.completion(*asked, stream=True, **more)])

        return self._tools(STREAMED_SUM, streamed)

    def _tools(self, question: str, completion: Callable[..., Any]) -> Result:
        add, messages = Adder(), said(question)
        tools = [{"type": "function", "function": {"name": "add", "parameters": SUM_SCHEMA}}]
        calling = completion(self.model, messages, tools=tools).choices[0].message
        messages.append(calling)
        for call in calling.tool_calls or []:
            told = str(add(**json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
        final = completion(self.model, messages, tools=tools)
        return {"calls": add.calls, "text": final.choices[0].message.content}

    def structured(self) -> Result:
        reply = litellm.completion(self.model, said(PLACE), response_format=Place)
        return {"object": Place.model_validate_json(reply.choices[0].message.content).model_dump()}


if __name__ == "__main__":
    play(Completion({"chat": "openai", "messages": "anthropic"}[sys.argv[1]]))
