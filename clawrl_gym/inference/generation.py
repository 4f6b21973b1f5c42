"""Inputs and outputs of the engine: sampling settings, ids, log-probs, versions.

Every sampled token has a log-prob or an explicit None, and a weight version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TypedDict, TypeVar, cast

from clawrl_gym.core.types import (
    UNKNOWN_ID,
    UNKNOWN_IDS,
    FunctionCall,
    JsonObject,
    Message,
    ToolCall,
)
from clawrl_gym.inference.structured import Structured


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings of one reply."""

    temperature: float
    top_p: float
    max_tokens: int
    """Longest reply; the context may end it sooner."""
    seed: int | None = None
    """Seed; None draws from the engine's own stream."""
    stop: tuple[str, ...] = ()
    """Texts that end the reply; the ids keep them, the message does not."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the reply, beside the model's own."""
    ignore_eos: bool = False
    """The model's own end does not end it."""
    skip_special_tokens: bool = True
    """The text leaves special tokens out."""
    top_k: int = 0
    """0: all tokens."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    """Empty: all."""
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    """No end before so many."""
    structured: Structured | None = None
    """The form that it is sampled in; None: any."""

    @property
    def untrainable(self) -> str:
        """The settings by which tokens are drawn otherwise than from the softmax of all logits at
        the temperature, which is what the learner computes; empty where there is none."""
        changed = {
            "temperature": self.temperature < LEAST_TEMPERATURE,
            "top_p": self.top_p < 1,
            "top_k": self.top_k > 0,
            "min_p": self.min_p > 0,
            "presence_penalty": self.presence_penalty != 0,
            "frequency_penalty": self.frequency_penalty != 0,
            "repetition_penalty": self.repetition_penalty != 1,
            "logit_bias": bool(self.logit_bias),
            "allowed_token_ids": bool(self.allowed_token_ids),
            "bad_words": bool(self.bad_words),
            "min_tokens": self.min_tokens > 0,
        }
        names = [name for name, is_changed in changed.items() if is_changed]
        return " ".join(names if self.structured is None else [*names, self.structured.field])

    @property
    def changed(self) -> JsonObject:
        """As plain values: temperature, `top_p`, `max_tokens`, and what is not as usual; a form by
        the name of the field that asks for it."""
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        form = values.pop("structured")
        in_form = {} if form is None else {form.field: form.value}
        return in_form | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name not in _USUAL or value != _USUAL[name]
        }

    @property
    def can_go_on(self) -> bool:
        """Whether another server can continue a reply as the first one would have: it takes what
        was sampled for a part of the prompt, which these settings do not look at."""
        looks_back = self.presence_penalty or self.frequency_penalty or self.bad_words
        return not (looks_back or self.structured)

    def after(self, sampled: int) -> Sampling:
        """For the rest of a reply, with other random numbers than those that are used up."""
        return replace(
            self,
            max_tokens=max(1, self.max_tokens - sampled),
            min_tokens=max(0, self.min_tokens - sampled),
            seed=None,
        )


@dataclass(frozen=True, slots=True)
class Generation:
    """The engine's exact output."""

    prompt_ids_T: list[int]
    sampled_ids_T: list[int]
    """With the token that ended the reply. Where the engine tells no ids, UNKNOWN_ID for each."""
    logprobs_T: list[float | None]
    """Under the distribution that was sampled from; None when the engine gave none."""
    versions_T: list[int]
    """The weight version that sampled each token."""
    finish_reason: str
    text: str | None = None
    """The sampled ids as the engine's detokenizer reads them, without special tokens."""
    stop_text: str | None = None
    """The one of `Sampling.stop` that ended the reply."""

    @property
    def untrainable(self) -> str:
        """Why no learner can use it, whatever it was sampled with; empty where one can."""
        return UNKNOWN_IDS if UNKNOWN_ID in self.prompt_ids_T[:1] + self.sampled_ids_T[:1] else ""

    @property
    def spoken_ids_T(self) -> list[int]:
        """The sampled ids without the token that only ended the reply."""
        ended_by_token = self.finish_reason == "stop" and self.stop_text is None
        return self.sampled_ids_T[:-1] if ended_by_token else self.sampled_ids_T


@dataclass(frozen=True, slots=True)
class ChatReply:
    """Result of a chat that was rendered, generated and parsed in one request."""

    prompt_ids_T: list[int]
    """UNKNOWN_ID for each where the engine tells none: then nothing can be joined to it."""
    whole: tuple[Generation, Message] | None
    """The reply; None: the prompt does not begin as it had to, and nothing was generated."""


class ToolCallDelta(ToolCall):
    """A piece of a tool call."""

    index: int
    """Index of the call in its reply."""


class Delta(TypedDict, total=False):
    """A piece's addition to the reply, in the OpenAI wire form; empty while a parser holds back."""

    content: str
    reasoning_content: str
    tool_calls: list[ToolCallDelta]
    """Each with its index; name and id come once."""
    unread_calls: list[str]
    reading_notes: list[str]


@dataclass(frozen=True, slots=True)
class Piece:
    """One step of a reply that is streamed."""

    ids_T: list[int]
    logprobs_T: list[float | None]
    delta: Delta
    generation: Generation | None = None
    """The whole one, on the last piece only."""
    versions_T: list[int] = field(default_factory=list)
    """Versions of the ids, for a reply that breaks off; empty when they come with the end."""
    prompt_ids_T: list[int] | None = None
    """Prompt ids on the first piece of `stream_chat`, which has no other ids."""


LEAST_TEMPERATURE = 0.1
"""Temperature below which replies are not trained on: they are almost greedy, vLLM draws the
coldest of them in another way, and 1 / temperature multiplies the rounding of the engine's
logits."""
UNSPOKEN_BIAS = -100.0
"""Added to the logits of ids that stand for pictures, where they are sampled and where they are
learned from."""

_USUAL = {s.name: s.default for s in fields(Sampling) if s.default is not MISSING}
D = TypeVar("D", Delta, Message)
_OURS = {"unread_calls", "reading_notes"}
"""Fields of a reply that only this package knows."""


def for_clients(part: D) -> D:
    """A message, or a delta of it, as clients of the OpenAI API know it."""
    if _OURS.isdisjoint(part):
        return part
    return cast(D, {key: value for key, value in part.items() if key not in _OURS})


def message_of(deltas: Iterable[Delta]) -> Message:
    """The message that deltas make together."""
    content, reasoning = [], []
    unread: list[str] = []
    notes: list[str] = []
    calls: dict[int, _CallParts] = {}
    for delta in deltas:
        unread += delta.get("unread_calls", ())
        notes += delta.get("reading_notes", ())
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
    if unread:
        message["unread_calls"] = unread
    if notes:
        message["reading_notes"] = notes
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
