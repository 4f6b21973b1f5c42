"""What goes into the engine and what comes out: sampling settings, ids, log-probs, versions.

Every sampled token has a log-prob or an explicit None, and a weight version; an answer of vLLM's
that lacks them is an error and never repaired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypedDict, TypeVar, cast

from clawrl_gym.core.errors import PolicyError, PolicyUnavailable
from clawrl_gym.core.types import FunctionCall, JsonObject, Message, ToolCall


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one reply is drawn."""

    temperature: float
    top_p: float
    max_tokens: int
    """Longest reply; the context may end it sooner."""
    seed: int | None = None
    """None draws from the engine's own stream."""
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
        return " ".join(name for name, is_changed in changed.items() if is_changed)

    @property
    def can_go_on(self) -> bool:
        """Whether another server can go on with a reply as the first one would have: it takes what
        was sampled for a part of the prompt, which these settings do not look at."""
        return not (self.presence_penalty or self.frequency_penalty or self.bad_words)

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
    """What the engine sampled, exactly."""

    prompt_ids_T: list[int]
    sampled_ids_T: list[int]
    """With the token that ended the reply."""
    logprobs_T: list[float | None]
    """Under the distribution that was sampled from; None when vLLM gave none."""
    versions_T: list[int]
    """The weight version that sampled each token."""
    finish_reason: str
    text: str | None = None
    """The sampled ids as vLLM's detokenizer reads them, without special tokens."""
    stop_text: str | None = None
    """The one of `Sampling.stop` that ended the reply."""

    @property
    def spoken_ids_T(self) -> list[int]:
        """The sampled ids without the token that only ended the reply."""
        ended_by_token = self.finish_reason == "stop" and self.stop_text is None
        return self.sampled_ids_T[:-1] if ended_by_token else self.sampled_ids_T


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What came of a chat that was rendered, generated and parsed in one request."""

    prompt_ids_T: list[int]
    whole: tuple[Generation, Message] | None
    """None: the prompt does not begin as it had to, and nothing was generated."""


class ToolCallDelta(ToolCall):
    """A piece of a tool call."""

    index: int
    """Of the call in its reply."""


class Delta(TypedDict, total=False):
    """What a piece adds to the reply, in the OpenAI wire form; empty while a parser holds back."""

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
    """Of the ids, for a reply that breaks off; empty when vLLM sends them with the end."""
    prompt_ids_T: list[int] | None = None
    """On the first piece of `stream_chat`, which has no other ids."""


LEAST_TEMPERATURE = 0.1
"""Below it replies are not trained on: they are almost greedy, vLLM draws the coldest of them in
another way, and 1 / temperature multiplies the rounding of the engine's logits."""
UNSPOKEN_BIAS = -100.0
"""Added to the logits of ids that stand for pictures, where they are sampled and where they are
learned from."""


class VersionSpan(TypedDict):
    """Which weights sampled the tokens from `start` to before `end`, in vLLM's words."""

    start: int
    end: int
    version: str


class GenerationEnd(TypedDict, total=False):
    """Why vLLM ended a generation."""

    finish_reason: str
    stop_reason: str | int | None
    weight_versions: list[VersionSpan] | None


class StreamEvent(GenerationEnd, total=False):
    """One event of /clawrl/stream: the prompt's ids first if it was rendered, then the reply's."""

    prompt_ids: list[int]
    goes_on: bool
    """False: the prompt does not begin as asked for, and nothing is generated."""
    ids: list[int]
    logprobs: list[float | None]
    versions: list[str]
    delta: Delta


class ReplyAnswer(GenerationEnd, total=False):
    """What /clawrl/reply answers: the prompt's ids behind those that the client knows, then the
    reply."""

    prompt_ids: list[int]
    goes_on: bool
    """False: the prompt does not begin as asked for, comes whole, and nothing is generated."""
    ids: list[int]
    logprobs: list[float | None]
    text: str
    deltas: list[Delta] | None
    """None where no parser was asked."""


def sampling_params(sampling: Sampling, unspoken: Sequence[int] = ()) -> JsonObject:
    """In vLLM's words."""
    params: JsonObject = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "logprobs": 0,  # of the sampled token only
    }
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    bias = dict(sampling.logit_bias) | dict.fromkeys(unspoken, UNSPOKEN_BIAS)
    if bias:
        params["logit_bias"] = {str(token): value for token, value in bias.items()}
    for name in _AS_VLLM_HAS_THEM:
        value = getattr(sampling, name)
        if value != _USUAL[name]:
            params[name] = list(value) if isinstance(value, tuple) else value
    return params


_AS_VLLM_HAS_THEM = (
    "stop", "stop_token_ids", "ignore_eos", "skip_special_tokens", "top_k", "min_p",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "allowed_token_ids", "bad_words",
    "min_tokens",
)  # fmt: skip
_USUAL = {setting.name: setting.default for setting in fields(Sampling)}


def whole_generation(
    prompt_ids: list[int],
    sampled: list[int],
    logprobs: list[float | None],
    end: GenerationEnd,
    text: str | None,
    versions_before: Sequence[int] = (),
    version: int | None = None,
) -> Generation:
    """A Generation; `end` says in vLLM's words why it ended and which versions sampled it.

    `versions_before` are those of its first ids, when another server sampled them; `version` is
    that of all others, where an adapter sampled them.
    """
    if end["finish_reason"] in ("abort", "error"):
        raise PolicyUnavailable(f"vLLM ended the request with {end['finish_reason']!r}")
    logprobs = logprobs or [None] * len(sampled)
    if len(logprobs) != len(sampled):
        raise PolicyError(f"vLLM sent {len(logprobs)} log-probs for {len(sampled)} tokens")
    spans, new = end.get("weight_versions") or [], len(sampled) - len(versions_before)
    versions = _versions(spans, new) if version is None else [version] * new
    stop_reason = end.get("stop_reason")
    return Generation(
        prompt_ids_T=prompt_ids,
        sampled_ids_T=sampled,
        logprobs_T=logprobs,
        versions_T=[*versions_before, *versions],
        finish_reason=end["finish_reason"],
        text=text,
        stop_text=stop_reason if isinstance(stop_reason, str) else None,
    )


def _versions(spans: list[VersionSpan], length: int) -> list[int]:
    """One version a token from vLLM's spans [start, end), which must cover all tokens."""
    versions: list[int] = []
    for span in spans:
        if span["start"] != len(versions) or not span["version"].isdecimal():
            break
        versions += [int(span["version"])] * (span["end"] - span["start"])
    if len(versions) != length:
        raise PolicyError(
            f"vLLM named no weight version for some of {length} tokens: got {spans!r}, "
            "expected whole numbers for all; was /update_weight_version called?"
        )
    return versions


class ReplyStream:
    """One reply while it is streamed: events in, pieces out, and the whole with the last."""

    def __init__(
        self, prompt_ids: list[int], already: Sequence[Piece] = (), *, plain: bool
    ) -> None:
        """`already`: pieces of the same reply from a stream that broke off. `plain`: the deltas
        are all of the text."""
        self.version: int | None = None
        """Of the adapter that samples it; None: vLLM says which weights do."""
        self.prompt_ids = prompt_ids
        self.ended = False
        self.sampled_ids_T = [token for piece in already for token in piece.ids_T]
        self._logprobs_T = [logprob for piece in already for logprob in piece.logprobs_T]
        self._versions_before_T = [version for piece in already for version in piece.versions_T]
        if len(self._versions_before_T) != len(self.sampled_ids_T):
            raise PolicyError("a reply without weight versions cannot be gone on with: ask anew")
        self._text = [piece.delta.get("content", "") for piece in already] if plain else None

    def piece(self, event: StreamEvent) -> Piece:
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
        generation = self._whole(event) if self.ended else None
        if generation is not None:  # of all that came at once vLLM tells them with the end alone
            versions_T = generation.versions_T[len(generation.versions_T) - len(event["ids"]) :]
        elif self.version is None:
            versions_T = _numbers(event["versions"])
        else:
            versions_T = [self.version] * len(event["ids"])
        return Piece(event["ids"], event["logprobs"], delta, generation, versions_T)

    def _whole(self, end: GenerationEnd) -> Generation:
        return whole_generation(
            self.prompt_ids,
            self.sampled_ids_T,
            self._logprobs_T,
            end,
            None if self._text is None else "".join(self._text),
            self._versions_before_T,
            self.version,
        )


D = TypeVar("D", Delta, Message)
_OURS = {"unread_calls", "reading_notes"}
"""What only we know of a reply."""


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


def _numbers(versions: list[str]) -> list[int]:
    """Nothing when vLLM has not been told a number yet."""
    return [int(version) for version in versions if version.isdecimal()]
