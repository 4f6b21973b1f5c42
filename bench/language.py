"""First replies of a policy at other learning rates: the basis of the language warning.

`python bench/language.py RUN` reads the replies that a run's policy gave to held-out tasks before
the first update under the weights of each of its checkpoints. `python bench/language.py RUN --rate
100` lets a new learner take the run's own first batches at so many times its rate.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clawrl_gym.config import RunConfig
from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.core.types import Turn
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, checkpoint_dir, list_checkpoints
from clawrl_gym.store import StoreReader
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review
from clawrl_gym.trainers.updates.learner import Learner
from clawrl_gym.trainers.updates.references import References


def first_replies(reader: StoreReader) -> Iterator[Turn]:
    """Replies to held-out tasks by the first weights."""
    for session in reader.sessions():
        turns = reader.turns_of(session.id) if session.id.startswith("heldout-") else []
        if any(version for turn in turns for version in turn.versions_T):
            return
        yield from turns[:1]


async def measure(run: Path, rate: float | None, updates: int) -> None:
    config = RunConfig.of(plain_values((run / "config.yaml").read_text("utf-8")))
    faster = config.learner.model_copy(update={"lr": config.learner.lr * (rate or 1.0)})
    model, temperature = resolve_model(config.policy.model), config.policy.sampling.temperature
    learner = Learner(config.trainer, faster, str(model), config.seed, "cpu", temperature)
    reader = StoreReader(run)

    async def review(batch: SampleBatch) -> Review:
        return learner.review(batch.samples())

    with tempfile.TemporaryDirectory() as folder:
        references = References(review, Path(folder) / "references.json")
        references.take(list(first_replies(reader)), most=32)

        async def show(version: int, **beside: float) -> None:
            values = {**await references.measure(version), **beside}
            words = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
            sys.stdout.write(f"{version:>4}  {words}\n")

        await show(0)
        if rate is None:
            for version in list_checkpoints(run / CHECKPOINTS):
                learner.load_checkpoint(str(checkpoint_dir(run / CHECKPOINTS, version)))
                await show(version)
            return
        for row in reader.updates()[:updates]:
            stats = learner.step(reader.samples_of_update(row.version), row.version - 1)
            shown = ("learner/entropy", "learner/masked_share")
            await show(row.version, **{k: stats.metrics[k] for k in shown if k in stats.metrics})
    reader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rate", type=float, help="times the run's own; without it: checkpoints")
    parser.add_argument("--updates", type=int, default=6)
    options = parser.parse_args()
    asyncio.run(measure(options.run, options.rate, options.updates))


if __name__ == "__main__":
    main()
