"""Cost of a publication for those who are being answered, and proof that it fails no request.

    python bench/swap.py [--form weights|adapters] [--publications 30] [--streams 64]

Serves the tiny policy, keeps that many streams in flight and publishes new versions again and
again: its weights, swapped while requests wait, or adapters of rank 16 beside them. The longest gap
between two tokens of a stream that a publication meets is compared with the longest in as long a
time before it.
Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from clawrl_gym.config import AdapterConfig, LearnerConfig, PolicyConfig, TrainerConfig
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.servers import PolicyServers

Form = Literal["weights", "adapters"]
Gap = tuple[float, float]
"""Begin and end of a gap."""
PROMPT_TOKENS, REPLY_TOKENS = 40, 120
PAUSE_S = 0.4


async def stream(
    servers: PolicyServers,
    client: EngineClient,
    draw: random.Random,
    stop: asyncio.Event,
    gaps: list[Gap],
    versions: list[list[int]],
) -> None:
    """One reply after the other, until told to stop."""
    while not stop.is_set():
        prompt = [draw.randrange(10, 900) for _ in range(PROMPT_TOKENS)]
        sampling, last_s = Sampling(1.0, 1.0, REPLY_TOKENS), 0.0
        async for piece in client.stream(prompt, sampling, None, version=servers.version):
            now_s = time.perf_counter()
            if last_s:
                gaps.append((last_s, now_s))
            last_s = now_s
            if piece.generation is not None:
                versions.append(piece.generation.versions_T)


def make_adapter(model: Path, folder: Path, form: AdapterConfig) -> Path:
    """Make an adapter that changes what is said, as a trained one does."""
    import torch

    from clawrl_gym.trainers.models.adapter import trained
    from clawrl_gym.trainers.updates.learner import Learner

    learner = Learner(TrainerConfig(), LearnerConfig(adapter=form), str(model), 0, "cpu")
    with torch.no_grad():
        for tensor in trained(learner.model.net).values():
            tensor.normal_(0, 0.01)
    learner.save_adapter(str(folder))
    return folder


async def publications(publish: Callable[[int], Awaitable[object]], count: int) -> list[Gap]:
    """Publish; returns when each publication began and ended."""
    spans = []
    for version in range(1, count + 1):
        await asyncio.sleep(PAUSE_S)
        began_s = time.perf_counter()
        await publish(version)
        spans.append((began_s, time.perf_counter()))
    return spans


async def measure(form: Form, count: int, streams: int, folder: Path) -> dict[str, object]:
    """Any failed request raises."""
    config = PolicyConfig(dtype="float32", max_model_len=1024)
    model = resolve_model("tiny")
    adapter = AdapterConfig(rank=16) if form == "adapters" else None
    source = None if adapter is None else make_adapter(model, folder / "adapter", adapter)
    servers = PolicyServers(
        config, model, folder / "serving", folder / "logs", print, adapter=adapter
    )
    gaps: list[Gap] = []
    versions: list[list[int]] = []

    async def publish(version: int) -> None:
        if source is None:
            await servers.publish(version, model / "model.safetensors")
        else:
            await servers.publish_adapter(version, source)

    try:
        (client,) = servers.fleet(2 * streams).policies
        await (servers.start() if adapter is None else servers.start_adapters())
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(streams):
                draw = random.Random(number)
                group.create_task(stream(servers, client, draw, stop, gaps, versions))
            await asyncio.sleep(2.0)
            spans = await publications(publish, count)
            stop.set()
    finally:
        await servers.stop()
        await servers.close_clients()
    return {"form": form, "streams": streams} | figures(gaps, spans, versions)


def figures(gaps: list[Gap], spans: list[Gap], versions: list[list[int]]) -> dict[str, object]:
    """Milliseconds between two tokens of a stream: the longest that a publication meets, and the
    longest in as long a time just before it, which is what the machine does anyway."""
    before = [(2 * began - end, began) for began, end in spans]
    longest, otherwise = _longest_in(spans, gaps), _longest_in(before, gaps)
    others = [end - began for began, end in gaps]
    return {
        "publications": len(spans),
        "publication_p50_ms": _ms(statistics.median(end - began for began, end in spans)),
        "token_p50_ms": _ms(statistics.median(others)),
        "token_p99_ms": _ms(_quantile(others, 0.99)),
        "longest_p50_ms": _ms(statistics.median(longest)),
        "longest_before_p50_ms": _ms(statistics.median(otherwise)),
        "added_p50_ms": _ms(
            statistics.median(x - y for x, y in zip(longest, otherwise, strict=True))
        ),
        "replies": len(versions),
        "replies_of_several_versions": sum(len(set(reply)) > 1 for reply in versions),
    }


def _longest_in(spans: list[Gap], gaps: list[Gap]) -> list[float]:
    """The longest gap that each span meets."""
    return [
        max((end - began for began, end in gaps if began < over and end > start), default=0.0)
        for start, over in spans
    ]


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--form", choices=("weights", "adapters"), default="weights")
    parser.add_argument("--publications", type=int, default=30)
    parser.add_argument("--streams", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(
            measure(options.form, options.publications, options.streams, Path(folder))
        )
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
