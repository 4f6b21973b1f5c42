"""Requests to vLLM and its answers, and their conversion.

An answer that lacks log-probs or versions is an error and never repaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from clawrl_gym.core.errors import PolicyError, PolicyUnavailable
from clawrl_gym.core.types import JsonObject
from clawrl_gym.inference.generation import UNSPOKEN_BIAS, Delta, Generation, Piece, Sampling


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
    prefix_matched: bool
    """False: the prompt does not begin as asked for, and nothing is generated."""
    ids: list[int]
    logprobs: list[float | None]
    versions: list[str]
    delta: Delta


class ReplyAnswer(GenerationEnd, total=False):
    """Answer of /clawrl/reply: the prompt's ids behind those that the client knows, then the
    reply."""

    prompt_ids: list[int]
    prefix_matched: bool
    """False: the prompt does not begin as asked for, comes whole, and nothing is generated."""
    ids: list[int]
    logprobs: list[float | None]
    text: str
    deltas: list[Delta] | None
    """Deltas; None where no parser was asked."""


def sampling_params(sampling: Sampling, unspoken: Sequence[int] = ()) -> JsonObject:
    """Sampling parameters of a request. `unspoken`: ids that are never sampled."""
    changed = sampling.changed
    params = {name: changed.pop(name) for name in ("temperature", "top_p", "max_tokens")}
    params["logprobs"] = 0  # of the sampled token only
    if sampling.structured is not None:
        del changed[sampling.structured.field]
        changed |= sampling.structured.for_vllm
    changed.pop("logit_bias", None)
    bias = dict(sampling.logit_bias) | dict.fromkeys(unspoken, UNSPOKEN_BIAS)
    if bias:
        params["logit_bias"] = {str(token): value for token, value in bias.items()}
    return params | changed


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
        self, prompt_ids: list[int], resume_from: Sequence[Piece] = (), *, plain: bool
    ) -> None:
        """`resume_from`: pieces of the same reply from a stream that broke off. `plain`: the deltas
        are all of the text."""
        self.version: int | None = None
        """Version of the adapter that samples it; None: vLLM reports the weights' version."""
        self.prompt_ids = prompt_ids
        self.ended = False
        self.sampled_ids_T = [token for piece in resume_from for token in piece.ids_T]
        self._logprobs_T = [logprob for piece in resume_from for logprob in piece.logprobs_T]
        self._versions_before_T = [version for piece in resume_from for version in piece.versions_T]
        if len(self._versions_before_T) != len(self.sampled_ids_T):
            raise PolicyError("a reply without weight versions cannot be resumed: ask again")
        self._text = [piece.delta.get("content", "") for piece in resume_from] if plain else None

    def piece(self, event: StreamEvent) -> Piece:
        """The piece in one event of /clawrl/stream, and the whole generation in the last."""
        if "prompt_ids" in event:
            self.prompt_ids = event["prompt_ids"]
            self.ended = not event["prefix_matched"]
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


def _numbers(versions: list[str]) -> list[int]:
    """Version numbers; empty when vLLM has not been told one yet."""
    return [int(version) for version in versions if version.isdecimal()]
