"""What goes into the engine and what comes out: sampling settings, ids, log-probs, versions.

Every sampled token has a log-prob or an explicit None, and a weight version; an answer of vLLM's
that lacks them is an error and never repaired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clawrl_gym.errors import PolicyError

_MISSING_LOGPROB = -9999.0  # what vLLM sends in place of none, NaN and -inf


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


def sampling_params(sampling: Sampling) -> dict[str, Any]:
    """In vLLM's words."""
    params: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "logprobs": 0,  # of the sampled token only
    }
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    return params


def read_generation(prompt_ids: list[int], choice: dict[str, Any]) -> Generation:
    """The Generation in one choice of vLLM's answer; PolicyError when something is missing."""
    if choice["finish_reason"] in ("abort", "error"):
        raise PolicyError(f"vLLM ended the request with {choice['finish_reason']!r}: try it again")
    sampled = choice["token_ids"] or []
    content = (choice["logprobs"] or {}).get("content") or []
    logprobs = [_known(entry["logprob"]) for entry in content] or [None] * len(sampled)
    if len(logprobs) != len(sampled):
        raise PolicyError(f"vLLM sent {len(logprobs)} log-probs for {len(sampled)} tokens")
    return Generation(
        prompt_ids_T=prompt_ids,
        sampled_ids_T=sampled,
        logprobs_T=logprobs,
        versions_T=_versions(choice.get("weight_versions") or [], len(sampled)),
        finish_reason=choice["finish_reason"],
        text=choice.get("text"),
        stop_text=choice["stop_reason"] if isinstance(choice.get("stop_reason"), str) else None,
    )


def _known(logprob: float) -> float | None:
    return None if logprob <= _MISSING_LOGPROB else logprob


def _versions(spans: list[dict[str, Any]], length: int) -> list[int]:
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
