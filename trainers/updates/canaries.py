"""Canaries: replies that new weights must still find likely, or they do not serve.

Two sets are read by the learner's own forward pass before and after each update, so that nobody
waits: fixed prompts with the replies that the weights gave when the run began to serve (or those of
a file of the owner's), and turns that people praised, of one user at most the part that `UserShare`
allows: nobody keeps others' learning back with praise for nonsense. What is compared is the mean
log-prob of a reply's tokens, under three weights:

- the new ones against those that serve: `learner.guards.canary`, one update that does too much;
- the new ones against the anchor: `learner.guards.drift`, many small updates that add up. The
  anchor is the version that was pinned last, else the first that was measured. Its figures are kept
  in `canaries.json`, so a restart moves no anchor. Of a turn that was praised later it is the first
  version that was measured with it.

The worse of the two sets counts; praised turns fewer than eight count as eight. Fixed
prompts hold nothing of a user, and of praised turns nothing but numbers is written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import statistics
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import ClawError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.ownership import user_of
from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.user_share import Candidate, UserShare

CANARIES_FILE = "canaries.json"
"""File below a serving folder."""
_MOST_CHANGE = 2.0
"""Largest change of a reply's mean log-prob that counts, in nats: one that became impossible shall
not outweigh all others."""
_VERSIONS = 128
"""Versions whose figures are kept, beside the first and the pinned ones."""
PRAISED = 1024
"""The newest praises that are read again at a start."""
_PRAISED = 32
"""Praised turns that are looked at, and at most of one user in memory."""
_FEWEST_PRAISED = 8
"""Praised turns over which a change is spread at least: the mean of few moves by chance alone."""
_log = logging.getLogger(__name__)

PROMPTS = (
    "Hello!",
    "Who are you?",
    "What can you help me with?",
    "Thank you.",
    "Say yes.",
    "What is 2 plus 2?",
    "Name three colours.",
    "Write a short poem about the sea.",
    "How do I boil an egg?",
    "Summarise this in one sentence: The meeting is moved from Monday to Thursday at ten.",
    "Translate 'good morning' into French.",
    "Which files are in this folder?",
    "Write a function that adds two numbers.",
    "Explain why the sky is blue to a child.",
    "Please remind me to call the dentist tomorrow.",
    "Goodbye.",
)
"""Prompts of the shipped canaries; the policy's own first replies are the standard."""


class Scores(Protocol):
    """Log-probs of samples under some weights."""

    @property
    def logprobs(self) -> Sequence[Sequence[float]]: ...


Review = Callable[[SampleBatch], Awaitable[Scores]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A fixed prompt and the reply to it, as ids."""

    key: str
    prompt_ids_T: list[int]
    reply_ids_T: list[int]


MakeExchanges = Callable[[Collection[str]], Awaitable[list[Exchange]]]
"""Make the exchanges whose keys are not among the given ones."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How far weights are behind others on canaries, in nats a token; NaN without any canary."""

    fixed: float
    praised: float

    @property
    def worst(self) -> float:
        known = [value for value in (self.fixed, self.praised) if not math.isnan(value)]
        return max(known, default=math.nan)


class Canaries:
    """Canaries of one set of weights."""

    def __init__(
        self,
        review: Review,
        make: MakeExchanges | None = None,
        file: Path | None = None,
        pins: Callable[[], Collection[int]] = tuple,
        share: UserShare | None = None,
    ) -> None:
        """`make` asks the policy that serves for its replies to fixed prompts; None: there are
        none. `file` stores figures; None: memory alone. `pins`: pinned versions, the last one last.
        `share`: the part of the praised turns that one user may have; None: any part."""
        self._review = review
        self._make = make
        self._file = file
        self._pins = pins
        self._share = share
        self._exchanges: dict[str, Exchange] = {}
        self._praised: dict[str, Sample] = {}
        self._means: dict[int, dict[str, float]] = {}
        """Mean log-prob of a canary's tokens, by version and canary."""
        self._before: dict[str, float] = {}
        self._now: dict[str, float] = {}
        if file is not None:
            self._read(file)

    @property
    def are_shared(self) -> bool:
        """Whether these weights answer others than the owner."""
        return self._share is None or self._share.has_others

    async def before(self, version: int) -> None:
        """Measure the weights that serve, as `version`."""
        if self._make is not None:
            try:
                for exchange in await self._make(self._exchanges.keys()):
                    self._exchanges[exchange.key] = exchange
            except ClawError as error:  # they are asked for again before the next update
                _log.warning("canaries: the policy did not answer their prompts: %s", error)
        self._before = await self._measure()
        known = self._means.setdefault(version, {})
        for key, mean in self._before.items():
            known.setdefault(key, mean)
        await self._write()

    @property
    def mean(self) -> float | None:
        """Mean log-prob of a token of the fixed replies when `before` was called last."""
        fixed = [mean for key, mean in self._before.items() if key in self._exchanges]
        return _mean(fixed) if fixed else None

    async def compare(self) -> tuple[Measured, Measured]:
        """How far the current weights are behind those of `before`, and behind the anchor."""
        self._now = await self._measure()
        anchor = {key: mean for key in self._now if (mean := self._anchor_of(key)) is not None}
        return self._behind(self._before), self._behind(anchor)

    async def serve(self, version: int, samples: Sequence[Sample] = ()) -> None:
        """Record that the compared weights serve as `version`, having learned from `samples`."""
        self._means[version] = dict(self._now)
        self.praise(samples)
        await self._write()

    def praise(self, samples: Sequence[Sample]) -> None:
        """Take in turns that people praised."""
        for sample in samples:
            if sample.signal == "feedback" and sample.reward > 0 and sample.turn_id is not None:
                self._praised[f"turn {sample.turn_id}"] = replace(
                    sample, distill_targets=(), distill_T=[]
                )
        of_user: dict[str, list[str]] = {}
        for key, sample in self._praised.items():
            of_user.setdefault(user_of(sample.session_id), []).append(key)
        for keys in of_user.values():
            for key in keys[:-_PRAISED]:
                del self._praised[key]

    def forget(self, is_gone: Callable[[Sample], bool]) -> None:
        """Deleted samples are not read again, and none of their figures is kept."""
        for key in [key for key, sample in self._praised.items() if is_gone(sample)]:
            del self._praised[key]
            for means in self._means.values():
                means.pop(key, None)

    def _anchor_of(self, key: str) -> float | None:
        first = [means[key] for _, means in sorted(self._means.items()) if key in means]
        pinned = [
            self._means[version][key]
            for version in self._pins()
            if key in self._means.get(version, {})
        ]
        return pinned[-1] if pinned else first[0] if first else None

    def _behind(self, earlier: Mapping[str, float]) -> Measured:
        drops = {
            key: min(max(earlier[key] - now, -_MOST_CHANGE), _MOST_CHANGE)
            for key, now in self._now.items()
            if key in earlier
        }
        fixed = [drop for key, drop in drops.items() if key in self._exchanges]
        praised = [drop for key, drop in drops.items() if key not in self._exchanges]
        spread = sum(praised) / max(len(praised), _FEWEST_PRAISED) if praised else math.nan
        return Measured(_mean(fixed), spread)

    def _counted(self) -> dict[str, Sample]:
        """The praised turns that are measured: the newest ones that fit."""
        newest = list(self._praised.items())[::-1]
        if self._share is None:
            return dict(newest[:_PRAISED])
        candidates = [Candidate(user_of(sample.session_id), 1, 1.0) for _, sample in newest]
        fitting = self._share.fitting(candidates, None)
        return dict(newest[at] for at in fitting[:_PRAISED])

    async def _measure(self) -> dict[str, float]:
        samples = {key: _sample_of(one) for key, one in self._exchanges.items()}
        samples |= self._counted()
        if not samples:
            return {}
        scores = await self._review(SampleBatch.of(list(samples.values())))
        means = {key: _mean(of_one) for key, of_one in zip(samples, scores.logprobs, strict=True)}
        return {key: _MISSING if math.isnan(mean) else mean for key, mean in means.items()}

    def _read(self, file: Path) -> None:
        try:
            kept = json.loads(file.read_text())
            self._exchanges = {
                one["key"]: Exchange(one["key"], one["prompt_ids"], one["reply_ids"])
                for one in kept["exchanges"]
            }
            self._means = {int(version): dict(means) for version, means in kept["means"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            _log.warning("%s cannot be read, the anchor is the next version: %s", file, error)

    async def _write(self) -> None:
        pinned = set(self._pins())
        newest = sorted(self._means)[-_VERSIONS:]
        wanted = {min(self._means, default=0), *newest, *pinned}
        self._means = {v: means for v, means in self._means.items() if v in wanted}
        if self._file is None:
            return
        kept = {
            "exchanges": [
                {"key": one.key, "prompt_ids": one.prompt_ids_T, "reply_ids": one.reply_ids_T}
                for one in self._exchanges.values()
            ],
            "means": {str(version): means for version, means in self._means.items()},
        }
        try:
            await asyncio.to_thread(replace_text, self._file, json.dumps(kept) + "\n")
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._file, error)


_MISSING = -100.0
"""Stands for a mean log-prob that is not a number: as bad as can be."""


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _sample_of(exchange: Exchange) -> Sample:
    prompt, reply = len(exchange.prompt_ids_T), len(exchange.reply_ids_T)
    return Sample(
        session_id="", group_id=-1, ids_T=exchange.prompt_ids_T + exchange.reply_ids_T,
        mask_T=[False] * prompt + [True] * reply, logprobs_T=[0.0] * (prompt + reply),
        versions_T=[-1] * prompt + [0] * reply, advantages_T=[0.0] * (prompt + reply), reward=0.0,
    )  # fmt: skip
