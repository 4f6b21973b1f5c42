"""Cost of the rollout layer: episodes in flight with an instant policy and environment.

    python -m bench.rollout [--in-flight 128 1000 2000] [--seconds 10] [--workers 1]

Everything but vLLM is real: Ray workers, the gateway over loopback, the store on disk. Replies of
48 tokens to prompts of 600 come at once from an object where vLLM's client would be, so what is
left is ours: turns a second, and the CPU of each process by turn, from /proc. Episodes have two
turns. `--workers 0` plays in the gateway's own process.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium

from bench.gateway import REPLY_TOKENS, SleepingPolicy
from clawrl_gym.cluster import cluster
from clawrl_gym.cluster.environments import Environments
from clawrl_gym.config import GatewayConfig, SamplingConfig
from clawrl_gym.core.processes.descendants import command_of, descendants
from clawrl_gym.core.processes.garbage import collected_by_the_clock
from clawrl_gym.core.types import TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.spaces import Unicode
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.interface import Policies
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.store import Store

TURNS = 2
GROUP_SIZE = 8
_TICKS = os.sysconf("SC_CLK_TCK")
_START_S = 120.0


class Instant(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Two turns of no work; the second one solves it."""

    observation_space = action_space = Unicode()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self._turns = 0
        return "Count the files of the folder. " * 10, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._turns += 1
        done = self._turns == TURNS
        return "total 24\n" * 8, float(done), done, False, {}


# --- what processes cost -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that the layer's processes had used at a time."""

    time_s: float
    turns: int
    cpu_s: dict[tuple[int, str], float]
    """CPU seconds by process and name."""

    @classmethod
    def now(cls, turns: int) -> Usage:
        own = os.getpid()
        names = {own: "driver", **{pid: command_of(pid) for pid in descendants(own)}}
        cpu_s = {(pid, _short(name)): _cpu_s(pid) for pid, name in names.items()}
        return cls(time.perf_counter(), turns, cpu_s)

    def cpu_ms_since(self, before: Usage) -> dict[str, float]:
        """CPU milliseconds by name."""
        cpu_ms: dict[str, float] = {}
        for key, cpu_s in self.cpu_s.items():
            cpu_ms[key[1]] = cpu_ms.get(key[1], 0.0) + (cpu_s - before.cpu_s.get(key, 0.0)) * 1e3
        return cpu_ms


def _short(name: str) -> str:
    return "worker" if name.startswith("ray::") else name


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _threads_and_files(pids: Iterable[int]) -> tuple[int, int]:
    pids = list(pids)
    threads = sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids)
    return threads, sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


# --- the load ----------------------------------------------------------------------------------


@dataclass
class Load:
    """Keeps so many episodes in flight."""

    environments: Environments
    warm_up: int
    """Episodes until it has begun."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    failures: list[str] = field(default_factory=list)
    numbers: Iterable[int] = field(default_factory=itertools.count)
    ends: bool = False
    """No more episodes begin."""

    @asynccontextmanager
    async def playing(self, in_flight: int) -> AsyncIterator[None]:
        """Inside it has warmed up; afterwards running episodes are played to their end."""
        tasks = [asyncio.create_task(self.play_on()) for _ in range(in_flight)]
        try:
            async with asyncio.timeout(_START_S):
                await self.begun.wait()
            yield
        finally:
            self.ends = True
            await asyncio.gather(*tasks)
        if self.failures:
            count = len(self.failures)
            raise SystemExit(f"{count} episodes failed, for example: {self.failures[0]}")

    async def play_on(self) -> None:
        for number in self.numbers:
            if self.ends:
                return
            task = TaskRef(f"train-{number}", number, "train")
            episode = await self.environments.episode(task, group_id=number // GROUP_SIZE)
            if episode.error is not None or episode.reward is None:
                self.failures.append(f"{episode.stop_reason}: {episode.error}")
            if number == self.warm_up:
                self.begun.set()


@asynccontextmanager
async def rollouts(
    policies: Policies,
    model: str,
    in_flight: int,
    workers: int,
    max_tokens: int = REPLY_TOKENS,
) -> AsyncIterator[tuple[Gateway, Environments]]:
    """The gateway before policies, its store on disk, and environments of no time."""
    with tempfile.TemporaryDirectory(prefix="clawrl-bench-") as folder:
        store = Store.open(Path(folder))
        sampling = SamplingConfig(max_tokens=max_tokens)
        gateway = Gateway(GatewayConfig(), sampling, store, policies, model)
        url = await gateway.start()
        env = GymEnvConfig(target="bench.rollout:Instant", own_thread=False)
        address = PolicyAddress(url, gateway.key, model)
        slots = -(-in_flight // max(1, workers))
        try:
            async with (
                collected_by_the_clock(),
                Environments(env, address, slots=slots, workers=workers) as environments,
            ):
                yield gateway, environments
        finally:
            await gateway.stop()
            await store.close()


async def measure(in_flight: int, seconds: float, workers: int) -> dict[str, object]:
    """Warm up for one round of episodes, then count."""
    async with rollouts(Fleet([SleepingPolicy(0.0)]), "tiny", in_flight, workers) as (
        gateway,
        envs,
    ):
        return await _under_load(gateway, Load(envs, in_flight), in_flight, seconds)


async def _under_load(
    gateway: Gateway, load: Load, in_flight: int, seconds: float
) -> dict[str, object]:
    async with load.playing(in_flight):
        before = Usage.now(gateway.stats.turns)
        await asyncio.sleep(seconds)
        after = Usage.now(gateway.stats.turns)
        threads, files = _threads_and_files(
            pid for pid, name in after.cpu_s if name in ("driver", "worker")
        )
    turns, cpu_ms = after.turns - before.turns, after.cpu_ms_since(before)
    return {
        "in_flight": in_flight,
        "turns_per_s": round(turns / (after.time_s - before.time_s), 1),
        "cpu_ms_per_turn": round(sum(cpu_ms.values()) / turns, 2),
        "by_process": {
            name: round(ms / turns, 2) for name, ms in cpu_ms.items() if ms > 0.005 * turns
        },
        "threads": threads,
        "files": files,
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


async def bench(levels: Sequence[int], seconds: float, workers: int) -> None:
    ray = cluster.Cluster()
    if workers:
        await ray.start()
    try:
        for in_flight in levels:
            print(json.dumps(await measure(in_flight, seconds, workers)), flush=True)
    finally:
        ray.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[128, 1000, 2000])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each measurement")
    parser.add_argument("--workers", type=int, default=1, help="Ray actors; 0: this process")
    options = parser.parse_args()
    asyncio.run(bench(options.in_flight, options.seconds, options.workers))


if __name__ == "__main__":
    main()
