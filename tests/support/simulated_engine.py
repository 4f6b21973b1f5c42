"""An engine that batches, caches prefixes and preempts as vLLM does, in simulated time.

Requests of one decoding step share it; prompts are computed in chunks beside it. Blocks of requests
that are over stay cached until room is wanted, the least recently used first; a request that finds
no room for its next token is preempted and computed again. Episodes alternate between the engine
and their environment. Nothing sleeps: 300 s with 256 requests take about a second.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from clawrl_gym.rollout.collection.concurrency import Reading


@dataclass(frozen=True, slots=True)
class Engine:
    """What one engine can do."""

    max_num_seqs: int
    kv_tokens: int
    step_s: float
    """Seconds of a decoding step, whatever is in it."""
    request_s: float
    """More for each request in it."""
    prefill_s: float
    """More for each token of a prompt in it."""
    context_s: float = 0.0
    """More for each token of the contexts in it."""
    chunk: int = 2048
    """Prompt tokens in one step."""
    max_model_len: int = 8192


@dataclass(frozen=True, slots=True)
class Work:
    """What episodes are like; lengths and times are drawn around these means."""

    turns: int = 6
    prompt_tokens: int = 400
    reply_tokens: int = 60
    observation_tokens: int = 100
    env_s: float = 0.5
    env_cores: int = 10_000
    """Environments that step at the same time; others wait for them."""
    most: int = 100_000
    """Episodes that anybody wants at a time."""
    swap_s: float = 0.0
    """After so long weights are swapped and no prefix counts any more; 0: never."""


@dataclass(slots=True, eq=False)
class _Episode:
    context: int
    turns: int
    reply_left: int = 0
    cached: int = 0
    """Tokens of its context that are in the cache, while nothing runs."""
    ends_at_step: int = 0
    sampled: int = 0


@dataclass(slots=True)
class SimulatedEngine:
    """One engine with its episodes."""

    engine: Engine
    work: Work
    random: random.Random = field(default_factory=lambda: random.Random(0))
    now_s: float = 0.0
    limit: int = 1
    in_flight: int = 0
    turns: int = 0
    episodes: int = 0
    generated_tokens: int = 0
    finished_tokens: int = 0
    """Tokens of finished episodes: what a learner could use."""
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    swaps: int = 0
    most_in_flight: int = 0
    _steps: int = 0
    _pinned: int = 0
    """Tokens of running requests."""
    _idle: int = 0
    """Cached tokens of requests that are over."""
    _cache: OrderedDict[_Episode, None] = field(default_factory=OrderedDict)
    _waiting: deque[_Episode] = field(default_factory=deque)
    _prefilling: deque[tuple[_Episode, int]] = field(default_factory=deque)
    _decoding: dict[_Episode, None] = field(default_factory=dict)
    _ends: list[tuple[int, int, _Episode]] = field(default_factory=list)
    _outside: list[tuple[float, int, _Episode]] = field(default_factory=list)
    """In their environment until then."""
    _cores: list[float] = field(default_factory=list)
    """When those that are used are free."""
    _numbers: int = 0

    def run(
        self,
        seconds: float,
        limit: int,
        decide: Callable[[Reading], int] | None = None,
        every_s: float = 1.0,
    ) -> float:
        """Tokens a second of episodes that ended; `decide` sets the limit anew every so often."""
        began_s, began_tokens = self.now_s, self.finished_tokens
        self.limit = limit
        next_s = self.now_s + every_s
        while self.now_s < began_s + seconds:
            self._step()
            if decide is not None and self.now_s >= next_s:
                self.limit = decide(self.reading())
                next_s = self.now_s + every_s
            if self.work.swap_s and self.now_s >= self.work.swap_s * (self.swaps + 1):
                self._swap()
        return (self.finished_tokens - began_tokens) / (self.now_s - began_s)

    def reading(self) -> Reading:
        return Reading(
            in_flight=self.in_flight,
            wanted=self.work.most - self.in_flight,
            engines=1,
            running=len(self._decoding) + len(self._prefilling),
            waiting=len(self._waiting),
            kv_usage=self._pinned / self.engine.kv_tokens,
            turns=self.turns,
            episodes=self.episodes,
            preemptions=self.preemptions,
            contexts=self.engine.kv_tokens / self.engine.max_model_len,
        )

    def _step(self) -> None:
        while self.in_flight < min(self.limit, self.work.most):
            self._begin()
        while self._outside and self._outside[0][0] <= self.now_s:
            self._waiting.append(heapq.heappop(self._outside)[2])
        self._admit()
        if not self._decoding and not self._prefilling:
            self.now_s = max(self.now_s, self._outside[0][0]) if self._outside else self.now_s + 1
            return
        computed = self._prefill()
        decoding = len(self._decoding)
        self._decode()
        engine = self.engine
        self.now_s += (
            engine.step_s + engine.request_s * decoding + engine.prefill_s * computed
            + engine.context_s * self._pinned
        )  # fmt: skip

    def _begin(self) -> None:
        work = self.work
        episode = _Episode(self._around(work.prompt_tokens), self._around(work.turns))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._to_environment(episode)

    def _to_environment(self, episode: _Episode) -> None:
        begins_s = self.now_s
        if len(self._cores) >= self.work.env_cores:
            begins_s = max(begins_s, heapq.heappop(self._cores))
        ends_s = begins_s + self.random.expovariate(1 / max(1e-9, self.work.env_s))
        if self.work.env_cores < 10_000:
            heapq.heappush(self._cores, ends_s)
        self._numbers += 1
        heapq.heappush(self._outside, (ends_s, self._numbers, episode))

    def _admit(self) -> None:
        engine = self.engine
        while self._waiting and len(self._decoding) + len(self._prefilling) < engine.max_num_seqs:
            episode = self._waiting[0]
            if self._pinned + episode.context > engine.kv_tokens:
                return
            self._waiting.popleft()
            self._cache.pop(episode, None)
            self._idle -= episode.cached
            self.prompt_tokens += episode.context
            self.cached_tokens += episode.cached
            self._pinned += episode.context
            self._prefilling.append((episode, episode.context - episode.cached))
            episode.cached = 0
            self._evict()

    def _prefill(self) -> int:
        computed = 0
        while self._prefilling and computed < self.engine.chunk:
            episode, left = self._prefilling.popleft()
            part = min(left, self.engine.chunk - computed)
            computed += part
            if part < left:
                self._prefilling.appendleft((episode, left - part))
                break
            episode.reply_left = episode.reply_left or self._around(self.work.reply_tokens)
            episode.ends_at_step = self._steps + episode.reply_left
            self._decoding[episode] = None
            self._numbers += 1
            heapq.heappush(self._ends, (episode.ends_at_step, self._numbers, episode))
        return computed

    def _decode(self) -> None:
        self._steps += 1
        self.generated_tokens += len(self._decoding)
        self._pinned += len(self._decoding)
        self._evict()
        while self._pinned > self.engine.kv_tokens and len(self._decoding) > 1:
            self._preempt()
        while self._ends and self._ends[0][0] <= self._steps:
            ends_at_step, _, episode = heapq.heappop(self._ends)
            if episode in self._decoding and episode.ends_at_step == ends_at_step:
                self._finish(episode)

    def _preempt(self) -> None:
        episode, _ = self._decoding.popitem()
        left = episode.ends_at_step - self._steps
        episode.context += episode.reply_left - left
        episode.sampled += episode.reply_left - left
        episode.reply_left = max(1, left)
        self.preemptions += 1
        self._pinned -= episode.context
        self._waiting.appendleft(episode)

    def _finish(self, episode: _Episode) -> None:
        del self._decoding[episode]
        episode.context += episode.reply_left
        episode.sampled += episode.reply_left
        episode.reply_left = 0
        self._pinned -= episode.context
        self.turns += 1
        episode.turns -= 1
        episode.cached = episode.context
        self._idle += episode.cached
        self._cache[episode] = None
        if episode.turns <= 0:
            self.in_flight -= 1
            self.episodes += 1
            self.finished_tokens += episode.sampled
            return
        episode.context += self._around(self.work.observation_tokens)
        self._to_environment(episode)

    def _evict(self) -> None:
        over = self._pinned + self._idle - self.engine.kv_tokens
        while over > 0 and self._cache:
            oldest = next(iter(self._cache))
            part = min(over, oldest.cached)
            oldest.cached -= part
            self._idle -= part
            over -= part
            if not oldest.cached:
                del self._cache[oldest]

    def _swap(self) -> None:
        self.swaps += 1
        for episode in self._cache:
            episode.cached = 0
        self._cache.clear()
        self._idle = 0

    def _around(self, mean: int) -> int:
        return max(1, round(self.random.uniform(0.4, 1.6) * mean))
