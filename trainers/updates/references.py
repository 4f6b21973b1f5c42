"""Reference replies: log-probs, under current weights, of replies from before the first update.

A reward can rise while the policy forgets how to speak. So a few of its own held-out replies of
before are read by the learner's forward pass at each held-out evaluation, and the mean log-prob of
their tokens is logged. It is a measure only: nothing is learned from them. They are `Canaries`,
without any guard.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from clawrl_gym.core.metrics import REFERENCE_LOGPROB
from clawrl_gym.core.spread import evenly
from clawrl_gym.core.types import Sample, Turn
from clawrl_gym.trainers.updates.canaries import Canaries, Exchange, Review

REFERENCES_FILE = "references.json"
"""File below a run's folder."""
MOST = 16
"""Most replies that are read."""
_LONGEST_REPLY = 64
"""Most tokens of one reply."""


class References:
    """The reference replies of a run."""

    def __init__(self, review: Review, file: Path) -> None:
        self._exchanges: list[Exchange] = []
        self._file = file
        self._canaries = Canaries(review, self._missing, file)

    def take(self, replies: Sequence[Turn], most: int = MOST) -> None:
        """Read some of these replies from now on."""
        self._exchanges = [
            Exchange(turn.session_id, turn.prompt_ids_T, turn.sampled_ids_T[:_LONGEST_REPLY])
            for turn in evenly([turn for turn in replies if _is_plain(turn)], most)
        ]

    async def measure(self, version: int) -> dict[str, float]:
        """Metrics of the current weights, which are `version`; empty where there is no reply."""
        if not self._exchanges and not self._file.exists():
            return {}
        await self._canaries.before(version)
        mean = self._canaries.mean
        return {} if mean is None else {REFERENCE_LOGPROB: mean}

    async def _missing(self, known: Collection[str]) -> list[Exchange]:
        return [one for one in self._exchanges if one.key not in known]


def reply_tokens(samples: Sequence[Sample]) -> float | None:
    """Sampled tokens of a reply, the mean over the replies of a batch; None without any."""
    tokens = replies = 0
    for sample in samples:
        tokens += sum(sample.mask_T)
        replies += sum(
            is_sampled and not was_sampled
            for was_sampled, is_sampled in zip([False, *sample.mask_T], sample.mask_T, strict=False)
        )
    return tokens / replies if replies else None


def _is_plain(turn: Turn) -> bool:
    """Whether it has text and no picture, which a reference would have to keep."""
    contents = [message.get("content") for message in turn.messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return bool(turn.sampled_ids_T) and all(part["type"] == "text" for part in parts)
