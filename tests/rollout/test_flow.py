"""The pool's door: so many episodes at a time, and none is ended when there may be fewer."""

import asyncio
from collections.abc import Mapping

from clawrl_gym.config import RolloutConfig
from clawrl_gym.core import provenance
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.collection.concurrency import Why
from clawrl_gym.rollout.collection.flow import Flow, Preemptions, memory_free
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from tests.rollout.virtual_time import run_in_virtual_time


class Waits(EpisodeRunner):
    """Each episode ends when it may."""

    def __init__(self) -> None:
        self.may_end = asyncio.Semaphore(0)

    async def run(self, spec: EpisodeSpec) -> Episode:
        await self.may_end.acquire()
        return Episode(spec.session_id, 0, spec.task, StopReason.TERMINATED, 1.0, turns=1)


def start(pool: WorkerPool, count: int) -> list["asyncio.Task[Episode]"]:
    task = TaskRef("a", 0, "train")
    return [
        asyncio.create_task(pool.run(EpisodeSpec(f"s{n}", 0, task, max_turns=1, timeout_s=1e6)))
        for n in range(count)
    ]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_fewer_may_run_from_now_on_and_more_at_once() -> None:
    worker = Waits()
    pool = WorkerPool([worker], slots=10)
    episodes = start(pool, 20)
    await settle()
    assert (pool.in_flight, pool.waiting, pool.limit) == (10, 10, 10)
    pool.limit = 4
    for _ in range(6):
        worker.may_end.release()
    await settle()
    assert (pool.in_flight, pool.waiting, pool.ended) == (4, 10, 6)
    pool.limit = 99
    await settle()
    assert (pool.in_flight, pool.waiting, pool.limit) == (10, 4, 10)
    episodes[-1].cancel()  # one that waits
    await settle()
    assert pool.waiting == 3
    for _ in range(20):
        worker.may_end.release()
    await asyncio.gather(*episodes, return_exceptions=True)
    assert (pool.in_flight, pool.waiting, pool.ended) == (0, 0, 19)


class Metrics:
    """What vLLM says, reading after reading; an error is one that it did not answer."""

    def __init__(self, *answers: Mapping[str, float] | Exception) -> None:
        self._answers = list(answers)

    async def __call__(self) -> Mapping[str, float]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def engine(turns: float, **changes: float) -> dict[str, float]:
    values = {"running": 30.0, "waiting": 0.0, "kv_usage": 0.02, "engines": 1.0}
    return values | {"requests": turns, "preemptions": 0.0} | changes


def follow(
    metrics: Metrics,
    seconds: float,
    fixed: int | None = None,
    useful: int | None = None,
    ended: int = 0,
) -> tuple[Flow, list[Why]]:
    reasons: list[Why] = []

    async def main() -> Flow:
        pool = WorkerPool([Waits()], slots=512)
        pool.ended = ended
        flow = Flow(
            pool,
            fixed,
            metrics,
            lambda limit, why: reasons.append(why),
            memory_free=lambda: 1.0,
            useful=useful,
        )
        episodes = start(pool, 600)
        following = asyncio.create_task(flow.run())
        await asyncio.sleep(seconds)
        for task in (following, *episodes):
            task.cancel()
        await asyncio.gather(following, *episodes, return_exceptions=True)
        return flow

    return run_in_virtual_time(main()), reasons


def test_the_pool_follows_the_engine_and_a_reason_is_told_once() -> None:
    rising = [engine(n * 100.0, running=10.0 * n) for n in range(20)]
    full = [engine(2000 + n * 1000.0, waiting=90.0) for n in range(20)]
    flow, reasons = follow(Metrics(*rising, *full), 39.5)
    assert flow.limit < 512
    assert reasons[0] is Why.YOUNG, "no episode ends here"
    assert Why.QUEUE in reasons
    assert len(reasons) == len(set(reasons))
    shares = flow.shares()
    assert abs(sum(shares.values()) - 1) < 1e-9
    assert shares["flow/queue"] > 0
    assert flow.shares() == {}


def test_no_more_are_in_flight_than_are_fresh_when_they_are_learned() -> None:
    rising = [engine(n * 1000.0, running=40.0 + n) for n in range(60)]
    flow, reasons = follow(Metrics(*rising), 59.5, useful=48, ended=99)
    assert (flow.limit, reasons[-1]) == (48, Why.STALE)
    config = RolloutConfig(groups=32, group_size=8, max_staleness=2)
    assert (config.useful_in_flight, config.slots) == (256, 256)
    assert config.model_copy(update={"max_staleness": 8}).useful_in_flight == 1024
    assert config.model_copy(update={"mode": "sync", "max_staleness": 8}).useful_in_flight == 256
    assert RolloutConfig(groups=2, group_size=2).useful_in_flight == 128


def test_while_the_engine_says_nothing_the_number_stays() -> None:
    flow, reasons = follow(Metrics(PolicyError("vLLM starts")), 60)
    assert (flow.limit, reasons) == (4, [])


def test_a_share_of_memory_is_free_on_any_machine() -> None:
    assert 0.0 < memory_free() <= 1.0 or provenance.memory_total_gb() > 100


def test_a_fixed_number_is_fixed() -> None:
    flow, reasons = follow(Metrics(engine(0, waiting=500.0)), 60, fixed=100)
    assert (flow.limit, reasons, flow.shares()) == (100, [], {})
    assert follow(Metrics(engine(0)), 5, fixed=9999)[0].limit == 512, "what the workers hold"


def test_preemptions_of_weight_swaps_are_not_taken_for_load() -> None:
    version = 0
    preemptions = Preemptions(lambda: version)
    assert [preemptions.of_load(total) for total in (0, 5, 5)] == [0, 5, 5]
    version = 1  # a swap: 90 requests are read again
    assert [preemptions.of_load(total) for total in (95, 96, 99)] == [5, 5, 8]
    assert preemptions.of_load(3) == 8  # vLLM has started again
    assert preemptions.of_load(4) == 9
