"""A reply while it is streamed: events in, pieces out, and the whole at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import FunctionCall, Message, ToolCall
from clawrl_gym.policy.generation import Delta, Generation, Piece, ToolCallDelta, whole_generation


class Draft:
    """What one stream has told so far."""

    def __init__(
        self, prompt_ids: list[int], already: Sequence[Piece] = (), *, plain: bool
    ) -> None:
        """`already`: pieces of the same reply from a stream that broke off. `plain`: the deltas
        are all of the text."""
        self.prompt_ids = prompt_ids
        self.ended = False
        self.sampled_ids_T = [token for piece in already for token in piece.ids_T]
        self._logprobs_T = [logprob for piece in already for logprob in piece.logprobs_T]
        self._versions_before_T = [version for piece in already for version in piece.versions_T]
        if len(self._versions_before_T) != len(self.sampled_ids_T):
            raise PolicyError("a reply without weight versions cannot be gone on with: ask anew")
        self._text = [piece.delta.get("content", "") for piece in already] if plain else None

    def piece(self, event: dict[str, Any]) -> Piece:
        """The piece in one event of /clawrl/stream, and the whole generation in the last."""
        if "prompt_ids" in event:
            self.prompt_ids = event["prompt_ids"]
            self.ended = not event["goes_on"]
            return Piece([], [], {}, prompt_ids_T=self.prompt_ids)
        delta: Delta = event.get("delta") or Delta()
        self.sampled_ids_T += event["ids"]
        self._logprobs_T += event["logprobs"]
        if self._text is not None:
            self._text.append(delta.get("content", ""))
        self.ended = "finish_reason" in event
        done = self._whole(event) if self.ended else None
        return Piece(event["ids"], event["logprobs"], delta, done, _numbers(event["versions"]))

    def _whole(self, end: dict[str, Any]) -> Generation:
        return whole_generation(
            self.prompt_ids,
            self.sampled_ids_T,
            self._logprobs_T,
            end,
            None if self._text is None else "".join(self._text),
            self._versions_before_T,
        )


def assembled(deltas: Iterable[Delta]) -> Message:
    """The message that deltas make together."""
    content, reasoning = [], []
    calls: dict[int, _CallParts] = {}
    for delta in deltas:
        content.append(delta.get("content", ""))
        reasoning.append(delta.get("reasoning_content", ""))
        for part in delta.get("tool_calls", ()):
            calls.setdefault(part["index"], _CallParts()).add(part)
    text = "".join(content)
    message: Message = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        message["tool_calls"] = [calls[index].whole() for index in sorted(calls)]
    if any(reasoning):
        message["reasoning_content"] = "".join(reasoning)
    return message


@dataclass(slots=True)
class _CallParts:
    """A tool call while its deltas come."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def add(self, delta: ToolCallDelta) -> None:
        function = delta.get("function") or FunctionCall()
        self.id = delta.get("id") or self.id
        self.name += function.get("name") or ""
        self.arguments += str(function.get("arguments") or "")

    def whole(self) -> ToolCall:
        function: FunctionCall = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


def _numbers(versions: list[str]) -> list[int]:
    """Nothing when vLLM has not been told a number yet."""
    return [int(version) for version in versions if version.isdecimal()]
