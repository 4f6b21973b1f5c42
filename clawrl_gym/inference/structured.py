"""Structured: the form that a reply is sampled in, as engines are asked for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from clawrl_gym.core.types import JsonObject

Kind = Literal["json", "json_object", "regex", "choice", "grammar", "tool_call"]
"""Kinds of forms, in the words of vLLM's `structured_outputs`; `tool_call` is a call that must be
made, of which `tool_choice` in the chat says more."""


@dataclass(frozen=True, slots=True)
class Structured:
    """A form. At each step only tokens are sampled with which the reply can still take it."""

    field: str
    """The request's field that asks for it."""
    kind: Kind
    text: str
    """Its value, as JSON text."""

    @classmethod
    def of(cls, field: str, kind: Kind, value: object) -> Structured:
        return cls(field, kind, json.dumps(value, ensure_ascii=False))

    @property
    def value(self) -> Any:
        """Its value: a JSON schema, true, a pattern, texts, a grammar or a tool choice."""
        return json.loads(self.text)

    @property
    def for_vllm(self) -> JsonObject:
        """Sampling parameters for vLLM. A call's form is made inside it, by the policy's tool
        parser, which reads the call too."""
        if self.kind == "tool_call":
            return {}
        return {"structured_outputs": {self.kind: self.value}}

    @property
    def for_openai(self) -> JsonObject | None:
        """Fields for a server of the OpenAI API, which has no others: None. A call's are in the
        chat."""
        if self.kind == "tool_call":
            return {}
        if self.kind == "json_object":
            return {"response_format": {"type": "json_object"}}
        if self.kind != "json":
            return None
        schema: JsonObject = {"name": "reply", "schema": self.value, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
