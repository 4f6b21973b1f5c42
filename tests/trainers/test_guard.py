"""Which updates are kept out of service, and why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from clawrl_gym.config import GuardsConfig
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Decision, Guard, Review

HEALTHY = {"learner/grad_norm": 1.0, "learner/strength": 1.0, "logprob_gap/mean": 0.01}


def sample(advantage: float = 1.0, tokens: int = 4, session: str = "s") -> Sample:
    return Sample(
        session, 0, [1] * (tokens + 1), [False] + [True] * tokens, [0.0] + [-1.0] * tokens,
        [-1] + [0] * tokens, [0.0] + [advantage] * tokens, 1.0,
    )  # fmt: skip


class Weights:
    """A learner of whom every token has one log-prob."""

    def __init__(self) -> None:
        self.logprob, self.entropy = -1.0, 0.5
        self.read: list[list[Sample]] = []

    async def review(self, batch: SampleBatch) -> Review:
        samples = batch.samples()
        self.read.append(samples)
        return Review(self.entropy, [[self.logprob] * sum(s.mask_T) for s in samples])


class Run:
    """Updates one after the other, with what each does to the weights."""

    def __init__(self, **guards: object) -> None:
        self.weights = Weights()
        self.guard = Guard(GuardsConfig.model_validate(guards), self.weights)

    async def update(
        self,
        *samples: Sample,
        logprob: float = 0.0,
        entropy: float = 1.0,
        **metrics: float,
    ) -> Decision:
        batch = list(samples) or [sample()]
        await self.guard.before(batch)
        self.weights.logprob += logprob
        self.weights.entropy *= entropy
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        stats = StepStats(HEALTHY | named, 1, 0.1)
        return await self.guard.decide(batch, stats)

    async def healthy(self, updates: int = 4) -> None:
        for _ in range(updates):
            assert not (await self.update()).refusals


WORSE = {
    "grad_norm": {"learner__grad_norm": 25.0},
    "logprob_gap": {"logprob_gap__mean": 0.3},
    "entropy": {"entropy": 0.1},
    "replay": {"logprob": -0.5},
}


@pytest.mark.parametrize("name", WORSE)
async def test_an_update_that_is_worse_is_refused_and_the_guard_can_be_switched_off(
    name: str,
) -> None:
    run = Run()
    await run.healthy()
    (why,) = (await run.update(**WORSE[name])).refusals
    assert why.endswith(f"(learner.guards.{name})")
    off = Run(**{name: None})
    await off.healthy()
    decision = await off.update(**WORSE[name])
    assert not decision.refusals
    assert decision.metrics[f"guard/{name}"] > 0


async def test_entropy_may_not_explode_either_and_one_that_is_hardly_any_may_halve() -> None:
    run = Run()
    await run.healthy()
    assert (await run.update(entropy=10.0)).refusals
    run.weights.entropy = 0.004
    assert not (await run.update(entropy=0.1)).refusals


@pytest.mark.parametrize("tokens", [40, 1])
async def test_replies_of_another_length_are_refused(tokens: int) -> None:
    run = Run(reply_length=3.0)
    await run.healthy()
    assert "as long or short" in (await run.update(sample(tokens=tokens))).refusals[0]


async def test_what_was_bad_may_become_rarer_and_not_likelier() -> None:
    run = Run()
    for _ in range(4):
        await run.update(sample(advantage=-1.0))
    assert not (await run.update(logprob=-3.0)).refusals
    assert (await run.update(logprob=3.0)).refusals


async def test_a_gradient_counts_by_the_strength_of_its_evidence() -> None:
    run = Run()
    for _ in range(4):
        await run.update(learner__grad_norm=0.01, learner__strength=0.01)
    assert not (await run.update(learner__grad_norm=2.0)).refusals


async def test_what_is_refused_is_no_measure_for_others_and_is_not_replayed() -> None:
    run = Run()
    await run.healthy()
    bad = sample(session="bad")
    for _ in range(20):
        assert (await run.update(bad, learner__grad_norm=50.0)).refusals
    await run.update()
    assert bad not in run.weights.read[-1]


async def test_numbers_that_are_none_are_refused_where_they_are_the_updates_own() -> None:
    run = Run()
    await run.healthy()
    assert (await run.update(learner__grad_norm=math.nan)).refusals
    assert not (await run.update(logprob_gap__mean=math.nan)).refusals, "no token of this version"


async def test_deleted_sessions_are_not_read_again() -> None:
    run = Run()
    await run.update(sample(session="gone"), sample(session="here"))
    run.guard.forget(lambda one: one.session_id == "gone")
    await run.update()
    assert {one.session_id for one in run.weights.read[-1]} == {"here"}


async def test_the_first_update_is_compared_on_its_own_batch() -> None:
    assert (await Run().update(logprob=-0.5)).refusals


async def test_few_of_each_batch_are_replayed_and_none_without_an_advantage() -> None:
    run = Run(replay_samples=12)
    await run.update(*[sample(session=str(n)) for n in range(100)], sample(advantage=0.0))
    await run.update(*[replace(sample(), session_id="later") for _ in range(100)])
    assert len(run.weights.read[-1]) == 8
    await run.update()
    assert len(run.weights.read[-1]) == 12
