"""Figures of the guards of learner.publish=if_not_worse on a run's own batches, without an engine.

    PYTHONPATH=. python bench/guards.py RUN [--rate-times 20]

The batches in RUN's run.db are learned once more in their order, by a learner that begins as the
run did; `--rate-times` has it learn so many times as fast, which spoils it. Prints the largest of
each figure and the first update that is refused. The distance of engine and learner is left out:
nobody samples here.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from clawrl_gym.config import RunConfig
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.store import StoreReader
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Guard, Review
from clawrl_gym.trainers.updates.learner import Learner


class Here:
    """The learner, in this process."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    async def review(self, batch: SampleBatch) -> Review:
        return self._learner.review(batch.samples())


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rate-times", type=float, default=1.0)
    options = parser.parse_args()
    config = RunFolder(options.run).read_config(RunConfig)
    rate = config.learner.lr * options.rate_times
    learner = Learner(
        config.trainer,
        config.learner.model_copy(update={"lr": rate}),
        str(resolve_model(config.policy.model)),
        config.seed,
        "cpu",
        config.policy.sampling.temperature,
    )
    guard = Guard(config.learner.guards.model_copy(update={"logprob_gap": None}), Here(learner))
    largest: dict[str, float] = {}
    refused: list[str] = []
    reader, updates = StoreReader(options.run), 0
    for row in reader.updates():
        samples = reader.samples_of_update(row.version)
        if not samples:
            continue
        updates += 1
        await guard.before(samples)
        decision = await guard.decide(samples, learner.step(samples, row.version - 1))
        refused += [f"update {row.version}: {why}" for why in decision.refusals]
        for name, value in decision.metrics.items():
            largest[name] = max(value, largest.get(name, value))
    reader.close()
    largest.pop("guard/logprob_gap", None)
    figures = "  ".join(f"{name} {value:.3f}" for name, value in sorted(largest.items()))
    print(f"{updates} updates at lr {rate:g}: {figures}")
    print(refused[0] if refused else "none refused")


if __name__ == "__main__":
    asyncio.run(main())
