"""Cost of a publication beside running requests, and which are refused: none of the good ones, and
each that did not arrive, arrived in half, or is another's.

    PYTHONPATH=. python bench/publications.py [--model tiny] [--dtype bfloat16] [--form adapters]
                                              [--good 50] [--bad 12] [--requests 128]

Each update moves the trained weights by random steps of a size between a hundredth and all of
`--step`, small ones too, which add up until they can be told. Bad publications come in the place of
good ones of at least a third of it; the good one follows, so that both sides go on alike.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from clawrl_gym.config import AdapterConfig, LearnerConfig, PolicyConfig, TrainerConfig
from clawrl_gym.core.errors import NotServed
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.vllm.build import vllm_device
from clawrl_gym.run.weight_checks import WeightChecks
from clawrl_gym.trainers.updates.learner import Learner

PROMPT = list(range(5, 69))
BAD = ("old", "half the layers", "half as strong", "another's")


@dataclass
class Seen:
    """Results of publications."""

    seconds: list[float] = field(default_factory=list)
    refused: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    arrived: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    gaps: list[float] = field(default_factory=list)
    why: list[str] = field(default_factory=list)


class Rig:
    """A learner whose updates are random, and the servers that serve them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.model = resolve_model(options.model)
        self.device = vllm_device("auto")
        form = AdapterConfig(rank=8, alpha=32) if options.form == "adapters" else None
        self.learner = Learner(
            TrainerConfig(), LearnerConfig(adapter=form), str(self.model), 0, self.device
        )
        config = PolicyConfig(
            dtype=options.dtype, max_model_len=1024, max_num_seqs=128, gpu_memory_utilization=0.3
        )
        self.servers = PolicyServers(config, self.model, folder / "s", folder, print, adapter=form)
        (self.client,) = self.servers.fleet(options.requests + 8).policies
        self.chance = random.Random(0)
        self.numbers = torch.Generator().manual_seed(0)

    def move(self, size: float) -> None:
        with torch.no_grad():
            for tensor in self._trained():
                step = torch.randn(tensor.shape, generator=self.numbers) * size
                tensor += step.to(tensor.device)

    def _trained(self) -> list[torch.Tensor]:
        return [each for each in self.learner.model.net.parameters() if each.requires_grad]

    def save(self, name: str) -> Path:
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if self.options.form == "adapters":
            self.learner.save_adapter(str(target))
        else:
            self.learner.save_weights(str(target))
        return target

    def spoilt(self, kind: str, new: Path, old: Path, size: float) -> Path:
        """Folder that arrives instead of the new weights."""
        target = shutil.copytree(new, self.folder / "bad", dirs_exist_ok=True)
        (file,) = target.glob("*.safetensors")
        ours, before = load_file(file), load_file(old / file.name)
        for number, name in enumerate(sorted(ours)):
            if kind == "old" or (kind == "half the layers" and number % 4 < 2):
                ours[name] = before[name]
            elif kind == "half as strong":
                ours[name] = ((ours[name].float() + before[name].float()) / 2).to(ours[name])
            elif kind == "another's":
                step = torch.randn(before[name].shape, generator=self.numbers) * size
                ours[name] = (before[name].float() + step).to(ours[name])
        save_file(ours, file, metadata={"format": "pt"})
        return target

    async def publish(
        self, weight_checks: WeightChecks, folder: Path, version: int, kind: str, seen: Seen
    ) -> None:
        reading = self.learner.probe()
        weight_check = await weight_checks.of(reading, "", version, self.servers.version)
        assert weight_check is not None
        started_s = time.perf_counter()
        try:
            if self.options.form == "adapters":
                await self.servers.publish_adapter(version, folder, verify=weight_check)
            else:
                weights = folder / "model.safetensors"
                await self.servers.publish(version, weights, verify=weight_check)
        except NotServed as error:
            seen.refused[kind].append(True)
            seen.why.append(f"{kind}: {error}")
        else:
            seen.refused[kind].append(False)
            if kind == "good":
                weight_check.mark_verified()
        if kind == "good":
            seen.seconds.append(time.perf_counter() - started_s)
            seen.gaps.append(weight_check.metrics["learner/probe_gap"])
        print(
            f"{version} {kind}: {time.perf_counter() - started_s:.2f} s {weight_check.metrics}",
            flush=True,
        )
        if "learner/probe_arrived" in weight_check.metrics:
            seen.arrived[kind].append(weight_check.metrics["learner/probe_arrived"])

    async def load(self) -> None:
        """One request after another, without end."""
        while True:
            tokens = self.chance.randrange(100, 900)
            if self.servers.adapters is None:
                version = self.servers.version
                await self.client.generate(PROMPT, Sampling(1.0, 1.0, tokens), version=version)
                continue
            with self.servers.adapters.use() as served:
                await self.client.generate(
                    PROMPT, Sampling(1.0, 1.0, tokens), version=served.version
                )


async def measure(rig: Rig) -> Seen:
    options, seen = rig.options, Seen()
    if options.form == "adapters":
        await rig.servers.start_adapters()
    else:
        await rig.servers.start()
    weight_checks = WeightChecks(rig.servers, print, is_exact=False)
    weight_checks.begin(rig.learner.probe())
    load = [asyncio.create_task(rig.load()) for _ in range(options.requests)]
    try:
        await _until_running(rig.client, options.requests)
        bad = itertools.islice(itertools.cycle(BAD), options.bad)
        versions, old = itertools.count(1), rig.save("before")
        plan = [*["good"] * (options.good - options.bad), *bad]
        rig.chance.shuffle(plan)
        for number, kind in enumerate(plan):
            share = rig.chance.uniform(1 / 3, 1) if kind != "good" else rig.chance.random() ** 2
            size = options.step * max(0.01, share)
            rig.move(size)
            new = rig.save(f"new-{number % 2}")
            if kind != "good":
                spoilt = rig.spoilt(kind, new, old, size)
                await rig.publish(weight_checks, spoilt, next(versions), kind, seen)
            await rig.publish(weight_checks, new, next(versions), "good", seen)
            old = new
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        await rig.servers.stop()
        await rig.servers.close_clients()
    return seen


async def _until_running(client: EngineClient, count: int) -> None:
    while (await client.metrics())["running"] < min(count, 128) / 2:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny", help="whatever policy.model takes")
    parser.add_argument("--dtype", default="bfloat16", help="policy.dtype")
    parser.add_argument("--form", choices=("adapters", "weights"), default="adapters")
    parser.add_argument("--good", type=int, default=50)
    parser.add_argument("--bad", type=int, default=12)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--step", type=float, default=0.02)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = asyncio.run(measure(Rig(options, Path(folder))))
    good = seen.seconds
    print(
        f"{options.model} in {options.dtype}, {options.form}, {options.requests} requests:\n"
        f"  published in {statistics.median(good):.2f} s (median), {max(good):.2f} s at most\n"
        f"  gaps {min(seen.gaps):.2g} to {max(seen.gaps):.2g}"
    )
    for kind in ("good", *BAD):
        refused, arrived = seen.refused[kind], seen.arrived[kind]
        told = f"{min(arrived):.2f} to {max(arrived):.2f}" if arrived else "-"
        print(
            f"  {kind}: {sum(refused)} of {len(refused)} refused; "
            f"told {len(arrived)}, arrived {told}"
        )
    for line in seen.why:
        if line.startswith("good"):
            print(f"  {line}")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    )
    print(f"{' '.join(sys.argv)} at {commit.stdout.strip()}")


if __name__ == "__main__":
    main()
