"""Samples as arrays: the input of a learner in any process or on any machine.

Streams of all samples lie end to end, as wide as Python's own numbers, so that `samples` gives back
what went in, bit by bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clawrl_gym.core.types import DistillTarget, Sample

_STREAMS = {
    "ids_T": np.int64,
    "mask_T": np.bool_,
    "logprobs_T": np.float64,
    "versions_T": np.int64,
    "advantages_T": np.float64,
}
_REST = (
    "session_id", "group_id", "reward", "turn_id", "pictures", "strength", "temperature", "signal",
    "id",
)  # fmt: skip
"""Fields that are one value a sample."""


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """N samples of T tokens in all, with P tokens of hinted prompts."""

    lengths_N: NDArray[np.int64]
    """Tokens of each sample."""
    ids_T: NDArray[np.int64]
    mask_T: NDArray[np.bool_]
    """True where the policy sampled the token and its log-prob is known."""
    logprobs_T: NDArray[np.float64]
    """Behaviour log-probs, in nats; 0 where the mask is False."""
    versions_T: NDArray[np.int64]
    """Weight version of each sampled token; -1 elsewhere."""
    advantages_T: NDArray[np.float64]
    distill_T: NDArray[np.float64]
    """Weight of the distillation term; 0 where no teacher is asked."""
    prompts_P: NDArray[np.int64]
    """Ids of all prompts of all distillation targets."""
    rest: tuple[Mapping[str, Any], ...]
    """Fields of each sample that are no stream, as JSON has them: the fields of `Sample` by their
    names; `distils`: whether it has a stream of distillation weights; `lessons`: of each `start`,
    `length`, `pictures` and the `lengths` of its prompts."""

    def __len__(self) -> int:
        return len(self.lengths_N)

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Self:
        """The batch of some samples. Raises nothing: every sample has a place."""
        streams = {
            name: _end_to_end([getattr(sample, name) for sample in samples], kind)
            for name, kind in _STREAMS.items()
        }
        distill = [sample.distill_T or [0.0] * len(sample.ids_T) for sample in samples]
        prompts = [p for s in samples for target in s.distill_targets for p in target.prompts]
        return cls(
            lengths_N=np.array([len(sample.ids_T) for sample in samples], np.int64),
            distill_T=_end_to_end(distill, np.float64),
            prompts_P=_end_to_end(prompts, np.int64),
            rest=tuple(map(_rest_of, samples)),
            **streams,
        )

    def samples(self) -> list[Sample]:
        """The samples that it was made of."""
        samples, prompts, start = [], _Reader(self.prompts_P), 0
        for length, rest in zip(self.lengths_N.tolist(), self.rest, strict=True):
            place = slice(start, start + length)
            streams = {name: getattr(self, name)[place].tolist() for name in _STREAMS}
            fields = {name: rest[name] for name in _REST} | {"pictures": tuple(rest["pictures"])}
            distill_T = self.distill_T[place].tolist() if rest["distils"] else []
            targets = tuple(_distill_target(target, prompts) for target in rest["lessons"])
            samples.append(
                Sample(**streams, **fields, distill_T=distill_T, distill_targets=targets)
            )
            start += length
        return samples

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The whole batch as arrays by name, such as `numpy.savez` writes."""
        text = json.dumps(self.rest).encode()
        named = {name: getattr(self, name) for name in _names()}
        return named | {"rest": np.frombuffer(text, np.uint8)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The batch that `arrays` came from. Raises KeyError for one that is missing."""
        rest = tuple(json.loads(arrays["rest"].tobytes()))
        return cls(**{name: arrays[name] for name in _names()}, rest=rest)


class _Reader:
    """Takes prompts off the front of all of them."""

    def __init__(self, ids_P: NDArray[np.int64]) -> None:
        self._ids_P = ids_P
        self._start = 0

    def take(self, length: int) -> list[int]:
        self._start += length
        taken: list[int] = self._ids_P[self._start - length : self._start].tolist()
        return taken


def _names() -> tuple[str, ...]:
    return ("lengths_N", *_STREAMS, "distill_T", "prompts_P")


def _end_to_end(streams: Sequence[Sequence[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *(np.asarray(one, kind) for one in streams)])


def _rest_of(sample: Sample) -> dict[str, Any]:
    targets = [
        {
            "start": target.start,
            "length": target.length,
            "pictures": target.pictures,
            "lengths": [len(prompt) for prompt in target.prompts],
        }
        for target in sample.distill_targets
    ]
    fields = {name: getattr(sample, name) for name in _REST}
    return fields | {"distils": bool(sample.distill_T), "lessons": targets}


def _distill_target(rest: Mapping[str, Any], prompts: _Reader) -> DistillTarget:
    read = tuple(prompts.take(length) for length in rest["lengths"])
    return DistillTarget(rest["start"], rest["length"], read, rest["pictures"])
