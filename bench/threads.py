"""Throughput by threads of engine and learner on a CPU, compiled or not, in tokens a second.

    PYTHONPATH=. python bench/threads.py FOLDER [--forms 1:0,2:0,0:1,0:2,1:1,2:2,2:0:compiled]
        [--streams 32] [--seconds 30] [--learner lora|all]

A form is ENGINE:LEARNER, threads of each; 0 leaves that part out, `:compiled` has vLLM compile the
model (policy.enforce_eager=false). The engine answers that many streams of 96 tokens behind prompts
of 64; the learner trains on batches of 8 sequences of such prompts and replies, in a process of its
own. Both run for the same seconds, after a first reply and a first update that do not count.
Prints a Markdown table: start-up of vLLM, tokens generated and tokens learned a second, by the wall
and for each second of the CPU, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from clawrl_gym.config import AdapterConfig, LearnerConfig, PolicyConfig, TrainerConfig
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.servers import PolicyServers

PROMPT_TOKENS, REPLY_TOKENS, LEARNED = 64, 96, 8
IDS = (100, 5000)
"""Token ids that every vocabulary in question has, and none of which ends a reply."""


@dataclass(frozen=True, slots=True)
class Form:
    """Threads of each part; 0: it is left out."""

    engine: int
    learner: int
    compiled: bool = False

    @classmethod
    def of(cls, text: str) -> Form:
        engine, learner, *rest = text.split(":")
        return cls(int(engine), int(learner), rest == ["compiled"])


@dataclass(slots=True)
class Rates:
    """Tokens a second, and how long vLLM took to answer."""

    start_s: float = 0.0
    generated: float = 0.0
    learned: float = 0.0
    generated_cpu: float = 0.0
    learned_cpu: float = 0.0
    """Learned tokens for each second of all threads together."""


def batch() -> list[Sample]:
    """One-turn episodes."""
    draw = random.Random(0)
    mask = [False] * PROMPT_TOKENS + [True] * REPLY_TOKENS
    return [
        Sample(
            session_id=str(number),
            group_id=0,
            ids_T=[draw.randrange(*IDS) for _ in mask],
            mask_T=mask,
            logprobs_T=[-10.0 if m else 0.0 for m in mask],
            versions_T=[0 if m else -1 for m in mask],
            advantages_T=[draw.choice([-1.0, 1.0]) if m else 0.0 for m in mask],
            reward=0.0,
        )
        for number in range(LEARNED)
    ]


def learn(model: str, threads: int, form: str, pipe: Connection) -> None:
    """Update until told to stop; sends the tokens learned and the seconds that took."""
    from clawrl_gym.trainers.updates.learner import Learner

    adapter = AdapterConfig() if form == "lora" else None
    config = LearnerConfig(threads=threads, lr=1e-6, adapter=adapter)
    learner = Learner(TrainerConfig(), config, model, 0, "cpu")
    samples = batch()
    learner.step(samples, 0)
    pipe.send("ready")
    pipe.recv()
    tokens, began_s, cpu_s = 0, time.perf_counter(), time.process_time()
    while not pipe.poll():
        learner.step(samples, 0)
        tokens += sum(len(sample.ids_T) for sample in samples)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    pipe.send((tokens / wall_s, tokens / cpu_s))


async def generate(
    client: EngineClient, version: int, draw: random.Random, until_s: float
) -> list[float]:
    """Generate; returns when each token came."""
    came: list[float] = []
    while time.perf_counter() < until_s:
        prompt = [draw.randrange(*IDS) for _ in range(PROMPT_TOKENS)]
        async for piece in client.stream(
            prompt, Sampling(1.0, 1.0, REPLY_TOKENS), None, version=version
        ):
            if piece.generation is None:
                came.append(time.perf_counter())
    return came


async def engine(
    model: Path, form: Form, streams: int, seconds: float, folder: Path, rates: Rates,
    begin: asyncio.Event | None,
) -> None:  # fmt: skip
    config = PolicyConfig(
        dtype="float32", max_model_len=1024, threads=form.engine, kv_cache_gb=1.0,
        enforce_eager=not form.compiled, request_timeout_s=600.0, tool_parser=None,
    )  # fmt: skip
    servers = PolicyServers(config, model, folder / "serving", folder / "logs", lambda _: None)
    try:
        (client,) = servers.fleet(2 * streams).policies
        began_s = time.perf_counter()
        await servers.start()
        await generate(client, servers.version, random.Random(-1), time.perf_counter() + 0.1)
        rates.start_s = time.perf_counter() - began_s
        if begin is not None:
            begin.set()
        began_s, cpu_s = time.perf_counter(), _cpu_s()
        draws = [random.Random(number) for number in range(streams)]
        until_s = began_s + seconds
        came = await asyncio.gather(
            *(generate(client, servers.version, draw, until_s) for draw in draws)
        )
        in_time = sum(at <= until_s for times in came for at in times)
        rates.generated = in_time / seconds
        made = sum(map(len, came))
        rates.generated_cpu = made / max(_cpu_s() - cpu_s, 0.001)
    finally:
        await servers.stop()
        await servers.close_clients()


def _cpu_s() -> float:
    """CPU time of the engine: all that this process started, but a learner."""
    started = psutil.Process().children(recursive=True)
    times = [each.cpu_times() for each in started if "multiprocessing" not in str(each.cmdline())]
    return sum(each.user + each.system for each in times)


async def measure(form: Form, model: Path, streams: int, seconds: float, learner: str) -> Rates:
    rates = Rates()
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = None
    if form.learner:
        process = multiprocessing.get_context("spawn").Process(
            target=learn, args=(str(model), form.learner, learner, there)
        )
        process.start()
        await asyncio.to_thread(here.recv)
    with tempfile.TemporaryDirectory() as folder:
        if form.engine:
            begin = asyncio.Event()
            work = asyncio.create_task(
                engine(model, form, streams, seconds, Path(folder), rates, begin)
            )
            waiting = asyncio.create_task(begin.wait())
            await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
            if process is not None:
                here.send("go")
            await work
        else:
            here.send("go")
            await asyncio.sleep(seconds)
    if process is not None:
        here.send("stop")
        rates.learned, rates.learned_cpu = await asyncio.to_thread(here.recv)
        process.join()
    return rates


def row(form: Form, rates: Rates) -> str:
    name = f"engine {form.engine or '-'}, learner {form.learner or '-'}"
    return (
        f"| {name}{', compiled' if form.compiled else ''} | {rates.start_s:.0f} | "
        f"{rates.generated:.0f} | {rates.generated_cpu:.0f} | {rates.learned:.0f} | "
        f"{rates.learned_cpu:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--forms", default="1:0,2:0,0:1,0:2,1:1,2:2,2:0:compiled")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--learner", choices=("lora", "all"), default="lora")
    options = parser.parse_args()
    print(
        "| threads | start s | generated/s | a CPU second | learned/s | a CPU second |", flush=True
    )
    print("|---|---|---|---|---|---|", flush=True)
    for form in map(Form.of, options.forms.split(",")):
        rates = asyncio.run(
            measure(form, options.model, options.streams, options.seconds, options.learner)
        )
        print(row(form, rates), flush=True)


if __name__ == "__main__":
    main()
