"""Automatic number of episodes in flight, which follows the engine, against the best fixed one.

    PYTHONPATH=. python bench/concurrency.py            # simulated engines, small and large
    PYTHONPATH=. python bench/concurrency.py --unseen   # engines and work made after the rules
    PYTHONPATH=. python bench/concurrency.py --drawn 20 # drawn by chance, 20 of them
    PYTHONPATH=. python bench/concurrency.py --vllm     # vLLM with the tiny policy in a terminal

Tokens a second of episodes that ended. A simulated run lasts 7,200 s of the engine's time; `whole`
counts from its first second, `later` the last two thirds. The real one compares numbers in turns,
on one server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import random
from collections.abc import Iterator, Sequence

from clawrl_gym.cluster import cluster
from clawrl_gym.cluster.environments import Environments
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.rollout.collection.concurrency import Concurrency
from clawrl_gym.rollout.collection.flow import Flow
from clawrl_gym.rollout.collection.pool import WorkerPool
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.run.policy import ServedPolicy
from tests.support.simulated_engine import Engine, SimulatedEngine, Work

SECONDS = 7200
_SETTLES_S = 4.0
FIXED = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
MOST = 2048
ENGINES = {
    "a tiny model on a CPU": Engine(128, 200_000, 0.010, 0.0003, 0.00002),
    "a GPU with a small cache": Engine(256, 60_000, 0.012, 0.00005, 0.00004, 2e-8),
    "a large GPU": Engine(1024, 1_500_000, 0.02, 0.00003, 0.00003, 1e-8, 8192, 32_768),
    "few sequences": Engine(16, 2_000_000, 0.02, 0.0001, 0.00003),
}
WORKS = {
    "short episodes": Work(),
    "long contexts": Work(10, 1500, 200, 300, env_s=2.0),
    "slow environments": Work(8, 1000, 100, 200, env_s=20.0),
    "16 cores for environments": Work(5, 400, 60, env_s=1.0, env_cores=16),
    "one turn": Work(1, 500, 800, env_s=0.05),
}
UNSEEN_ENGINES = {
    "7B on a 24 GB card": Engine(256, 110_000, 0.025, 0.00012, 0.00012, 1e-8, 2048, 32_768),
    "70B on eight cards": Engine(512, 900_000, 0.035, 0.00008, 0.00006, 4e-9, 8192, 32_768),
    "0.5B on a laptop": Engine(64, 30_000, 0.03, 0.002, 0.0004, 1e-7, 512, 16_384),
}
UNSEEN_WORKS = {
    "repositories": Work(25, 2500, 150, 500, env_s=6.0),
    "repositories, swaps a minute": Work(25, 2500, 150, 500, env_s=6.0, swap_s=60.0),
    "tool calls": Work(4, 800, 40, 120, env_s=0.01),
    "web pages": Work(12, 1800, 50, 900, env_s=3.0, env_cores=48),
    "thinking": Work(3, 300, 1500, 200, env_s=0.3),
}


Case = tuple[str, Engine, Work]


def crossed(engines: dict[str, Engine], works: dict[str, Work]) -> Iterator[Case]:
    for (engine, shape), (work, episodes) in itertools.product(engines.items(), works.items()):
        yield f"{engine:24} {work:28}", shape, episodes


def drawn(count: int) -> Iterator[Case]:
    """Any engine with any work whose contexts it can take, each of a seed of its own."""
    for seed in range(count):
        draw = random.Random(seed)

        def between(low: float, high: float, draw: random.Random = draw) -> float:
            return math.exp(draw.uniform(math.log(low), math.log(high)))

        work = Work(
            turns=round(between(1, 30)),
            prompt_tokens=round(between(200, 3000)),
            reply_tokens=round(between(30, 800)),
            observation_tokens=round(between(30, 600)),
            env_s=between(0.01, 30),
            env_cores=draw.choice((10_000, 10_000, round(between(8, 500)))),
            swap_s=draw.choice((0, 0, between(10, 300))),
        )
        longest = 1.6 * (
            work.prompt_tokens + work.turns * 1.6 * (work.reply_tokens + work.observation_tokens)
        )
        engine = Engine(
            max_num_seqs=round(between(16, 1024)),
            kv_tokens=round(longest * between(4, 400)),
            step_s=between(0.008, 0.05),
            request_s=between(1e-5, 5e-4),
            prefill_s=between(2e-5, 4e-4),
            context_s=between(1e-9, 2e-8),
            chunk=draw.choice((512, 2048, 8192)),
            max_model_len=round(longest * between(1, 4)),
        )
        name = f"{engine.max_num_seqs} sequences, {engine.kv_tokens:,} tokens; {work.turns} turns, "
        yield f"{name}{work.env_s:.1f} s outside", engine, work


def simulated(cases: Iterator[Case]) -> None:
    whole_ratios, later_ratios = [], []
    for name, shape, episodes in cases:
        fixed = {n: SimulatedEngine(shape, episodes).run(SECONDS, n) for n in FIXED}
        best = max(fixed, key=fixed.__getitem__)
        best_later = _later(shape, episodes, best)
        concurrency, follows = Concurrency(MOST), SimulatedEngine(shape, episodes)
        first = follows.run(SECONDS / 3, concurrency.limit, concurrency.read)
        later = follows.run(SECONDS * 2 / 3, concurrency.limit, concurrency.read)
        whole_ratios.append((first + 2 * later) / 3 / fixed[best])
        later_ratios.append(later / best_later)
        print(
            f"{name} best {best:4} {fixed[best]:6.0f} tokens/s, "
            f"{fixed[FIXED[-1]] / fixed[best]:.2f} of it at {FIXED[-1]}; follows: whole "
            f"{whole_ratios[-1]:.2f} later {later_ratios[-1]:.2f}, at the end "
            f"{concurrency.limit} ({concurrency.reason})",
            flush=True,
        )
    for name, ratios in (("whole", whole_ratios), ("later", later_ratios)):
        mean = sum(ratios) / len(ratios)
        enough = sum(ratio >= 0.95 for ratio in ratios)
        print(
            f"{name}: mean {mean:.2f}, smallest {min(ratios):.2f}, {enough} of {len(ratios)} at "
            "least 0.95"
        )


def _later(engine: Engine, work: Work, limit: int) -> float:
    """Throughput of the best fixed number, of the last two thirds as well."""
    fixed = SimulatedEngine(engine, work)
    fixed.run(SECONDS / 3, limit)
    return fixed.run(SECONDS * 2 / 3, limit)


async def real(seconds: float, numbers: Sequence[int]) -> None:
    """Tokens a second with each fixed number and following the engine, in turns."""
    config = load_config(["env=terminal", "policy=tiny"])
    ray = cluster.Cluster()
    await ray.start()
    try:
        async with (
            ServedPolicy(config) as policy,
            Environments(config.env, policy.address, slots=max(numbers), workers=1) as environments,
        ):
            tasks, counter = TaskSampler.of(config.env, 0), itertools.count()

            async def play() -> None:
                for number in counter:
                    await environments.episode(tasks.train(number), group_id=number)

            players = [asyncio.create_task(play()) for _ in range(2 * max(numbers))]
            await _compare(policy, environments.pool, seconds, numbers)
            for player in players:
                player.cancel()
            await asyncio.gather(*players, return_exceptions=True)
    finally:
        ray.stop()


async def _compare(
    policy: ServedPolicy, pool: WorkerPool, seconds: float, numbers: Sequence[int]
) -> None:
    flow = Flow(pool, None, policy.fleet.metrics)
    tokens_per_s: dict[str, list[float]] = {}
    for repeat in range(2):
        for number in (None, *numbers):
            following = asyncio.create_task(flow.run() if number is None else asyncio.sleep(0))
            pool.limit = pool.limit if number is None else number
            await asyncio.sleep((2 - repeat) * seconds if number is None else _SETTLES_S)
            before = policy.gateway.stats.tokens_sampled
            await asyncio.sleep(seconds)
            rate = (policy.gateway.stats.tokens_sampled - before) / seconds
            following.cancel()
            name = str(number or "follows")
            tokens_per_s.setdefault(name, []).append(rate)
            engine = await policy.fleet.metrics()
            print(
                f"{name:8} {rate:7.0f} tokens/s, limit {pool.limit}, in vLLM "
                f"{engine['running']:.0f} + {engine['waiting']:.0f}, cache "
                f"{engine['kv_usage']:.0%}",
                flush=True,
            )
    means = {name: sum(rates) / len(rates) for name, rates in tokens_per_s.items()}
    follows = means.pop("follows")
    best = max(means, key=means.__getitem__)
    print(
        f"best fixed {best}: {means[best]:.0f}; follows {follows:.0f}: {follows / means[best]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--drawn", type=int, default=0, metavar="COUNT")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each number, with --vllm")
    options = parser.parse_args()
    if options.vllm:
        asyncio.run(real(options.seconds, (8, 32, 64, 128, 256)))
    elif options.unseen:
        simulated(crossed(UNSEEN_ENGINES, UNSEEN_WORKS))
    elif options.drawn:
        simulated(drawn(options.drawn))
    else:
        simulated(crossed(ENGINES, WORKS))


if __name__ == "__main__":
    main()
