"""Movement of a policy by an adapter's updates, against all weights' on the same batches.

    python bench/adapter_replay.py RUN [--updates 3] [--ranks 16] [--alphas 32 256] [--lr RATE]

Takes the first batches of a recorded run through a learner of all weights and through one of an
adapter for each rank and alpha, at one rate, and prints a Markdown table: how much log-probs of the
next batch's tokens moved, and the slope and correlation of what the adapter moved with what all
weights did (both 1: the same update). Needs no engine.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.run_folder.folder import read_config_values
from clawrl_gym.store import StoreReader
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.learner import Learner


def batches(run: Path, count: int) -> list[list[Sample]]:
    """Batches of the first updates."""
    reader = StoreReader(run)
    rows = reader.updates()[:count]
    samples = [reader.samples_of_update(row.version) for row in rows]
    reader.close()
    return samples


@torch.no_grad()
def logprobs(learner: Learner, samples: list[Sample]) -> NDArray[np.float32]:
    """Log-probs of all sampled tokens."""
    packs = make_packs(samples, learner.trainer.max_tokens_per_pack)
    return np.concatenate([learner.model.score(pack).logprobs_M.numpy() for pack in packs])


def movement(
    values: dict[str, Any], samples: list[list[Sample]], adapter: AdapterConfig | None
) -> tuple[NDArray[np.float32], float]:
    """Change of the last batch's log-probs by all batches before it; mean gradient norm."""
    config = LearnerConfig.model_validate({**values["learner"], "adapter": adapter})
    trainer = TrainerConfig.model_validate(values["trainer"])
    model = str(resolve_model(values["policy"]["model"]))
    learner = Learner(trainer, config, model, 0, "cpu")
    *learned, last = samples
    before = logprobs(learner, last)
    norms = [
        learner.step(batch, version).metrics["learner/grad_norm"]
        for version, batch in enumerate(learned)
    ]
    return logprobs(learner, last) - before, sum(norms) / len(norms)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16])
    parser.add_argument("--alphas", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--lr", type=float, default=None, help="default: the run's own")
    options = parser.parse_args()
    values: dict[str, Any] = dict(read_config_values(options.run / "config.yaml"))
    if options.lr is not None:
        values["learner"] = {**values["learner"], "lr": options.lr}
    samples = batches(options.run, options.updates + 1)
    whole, norm = movement(values, samples, None)
    print("| learner | moved (mean, nats) | slope | correlation | gradient norm |")
    print("|---|---|---|---|---|")
    print(f"| all weights | {np.abs(whole).mean():.4f} | 1 | 1 | {norm:.2f} |")
    for rank in options.ranks:
        for alpha in options.alphas:
            adapter = AdapterConfig(rank=rank, alpha=alpha)
            moved, norm = movement(values, samples, adapter)
            slope, correlation = np.polyfit(whole, moved, 1)[0], np.corrcoef(whole, moved)[0, 1]
            cells = [f"{np.abs(moved).mean():.4f}", f"{slope:.2f}", f"{correlation:.3f}"]
            print(f"| rank {rank}, alpha {alpha} | {' | '.join(cells)} | {norm:.2f} |", flush=True)


if __name__ == "__main__":
    main()
