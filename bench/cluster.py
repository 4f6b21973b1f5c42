"""Rollout throughput by number of nodes: workers on each, and an engine of fixed speed for each.

    PYTHONPATH=. python bench/cluster.py [--nodes 1 2 4] [--seconds 20] [--engine 20] [--slots 16]

Each node is a machine of its own in network namespaces (as root; `tests/support/machines.py`), and
one more holds the run: gateway, store, dispatching. Sandboxes are real; an engine is a queue that
`--slots` replies go through at a time, `--engine` of them a second. All nodes share the cores of
this one, so keep `--engine` times the nodes below what these can do: the line says what they were
busy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.gateway import SleepingPolicy
from clawrl_gym.cluster.cluster import Cluster
from clawrl_gym.cluster.environments import Environments
from clawrl_gym.config import GatewayConfig, RayConfig, SamplingConfig
from clawrl_gym.core.types import ChatBody, Message, TaskRef
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.generation import Generation, Sampling
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.store import Store
from tests.support.machines import Machine, machines, until

PORT = 6379
TOKEN = "a token of this bench alone"
WARM_S = 5.0
TURNS = 4
START_S = 120.0


class FixedSpeed(SleepingPolicy):
    """So many replies a second, `slots` at a time, whatever is asked."""

    def __init__(self, replies_per_s: float, slots: int) -> None:
        super().__init__(slots / replies_per_s)
        self.replies = 0
        self._slots = asyncio.Semaphore(slots)

    async def generate(
        self, prompt_ids: list[int], sampling: Sampling, *, version: int
    ) -> Generation:
        async with self._slots:
            generation = await super().generate(prompt_ids, sampling, version=version)
        self.replies += 1
        return generation

    async def parse(self, body: ChatBody, generation: Generation) -> Message:
        return {"role": "assistant", "content": "```bash\nls | wc -l\n```"}


@asynccontextmanager
async def serving(folder: Path, engines: list[FixedSpeed], host: str) -> AsyncIterator[str]:
    """The gateway's address."""
    store = Store.open(folder)
    config = GatewayConfig(host=host, key=TOKEN)
    gateway = Gateway(config, SamplingConfig(), store, Fleet(engines), "simulated")
    try:
        yield await gateway.start()
    finally:
        await gateway.stop()
        await store.close()


async def measure(address: str, engines: int, options: argparse.Namespace) -> dict[str, float]:
    """Replies a second of all engines, measured on the machine of the run."""
    policies = [FixedSpeed(options.engine, options.slots) for _ in range(engines)]
    in_flight = 3 * options.slots // 2  # of each node: the engine's queue is never empty
    async with AsyncExitStack() as stack:
        cluster = Cluster(RayConfig(address=address))
        stack.callback(cluster.stop)
        await cluster.start()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clawrl-bench-")))
        url = await stack.enter_async_context(serving(folder, policies, cluster.host))
        environments = Environments(
            TerminalEnvConfig(max_turns=TURNS),
            PolicyAddress(url, TOKEN, "simulated"),
            slots=in_flight, workers=1, cluster=cluster, say=print,
        )  # fmt: skip
        await environments.start(stack)
        async with asyncio.timeout(START_S):
            while environments.pool.capacity < in_flight * engines:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return await _rate(environments, policies, in_flight * engines, options.seconds)


async def _rate(
    environments: Environments, policies: list[FixedSpeed], in_flight: int, seconds: float
) -> dict[str, float]:
    async def play(first: int) -> None:
        for number in range(first, 1 << 30, in_flight):
            episode = await environments.episode(TaskRef(None, number, "train"), group_id=number)
            assert episode.error is None, episode.error

    async with asyncio.TaskGroup() as running:
        tasks = [running.create_task(play(number)) for number in range(in_flight)]
        await asyncio.sleep(WARM_S)
        before, busy_s, began_s = sum(p.replies for p in policies), _busy_s(), time.monotonic()
        await asyncio.sleep(seconds)
        took_s = time.monotonic() - began_s
        replies = sum(p.replies for p in policies) - before
        cores = (_busy_s() - busy_s) / took_s
        for task in tasks:
            task.cancel()
    return {"replies_per_s": replies / took_s, "cores": cores}


def _busy_s() -> float:
    """CPU of the whole machine so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def measured_on(nodes: int, arguments: list[str], folder: Path) -> dict[str, float]:
    """One measurement, on machines of its own."""
    with machines(nodes + 1) as (run, *others):
        address = f"{run.address}:{PORT}"
        _join(run, ["--head", f"--host={run.address}", "--sandbox=0"], folder / f"{nodes}-head.log")
        for number, machine in enumerate(others):
            _join(machine, [f"--address={address}"], folder / f"{nodes}-{number}.log")
        log = folder / f"{nodes}-run.log"
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--run",
            address,
            "--engines",
            str(nodes),
            *arguments,
        ]
        measuring = run.start(command, log, {"RAY_AUTH_TOKEN": TOKEN})
        text = until(log, '"cores"', measuring, 300.0)
        rates: dict[str, float] = json.loads(
            next(line for line in text.splitlines() if '"cores"' in line)
        )
        return rates


def _join(machine: Machine, arguments: list[str], log: Path) -> None:
    command = [sys.executable, "-m", "clawrl_gym.node", *arguments, "--docker=0", "--browser=0"]
    process = machine.start(command, log, {"RAY_AUTH_TOKEN": TOKEN})
    until(log, "Ctrl-C", process, START_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--engine", type=float, default=20.0, help="replies a second of each engine"
    )
    parser.add_argument("--slots", type=int, default=16, help="replies at a time of each engine")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--engines", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(asyncio.run(measure(options.run, options.engines, options))))
        return
    arguments = [f"--{name}={getattr(options, name)}" for name in ("seconds", "engine", "slots")]
    print("| nodes | replies/s | of a single one's share | cores busy |\n|---|---|---|---|")
    first = 0.0
    with tempfile.TemporaryDirectory(prefix="clawrl-bench-") as folder:
        for nodes in options.nodes:
            rates = measured_on(nodes, arguments, Path(folder))
            rate = rates["replies_per_s"]
            first = first or rate / nodes
            share = rate / nodes / first
            print(f"| {nodes} | {rate:.1f} | {share:.2f} | {rates['cores']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
