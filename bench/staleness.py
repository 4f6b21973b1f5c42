"""Share of tokens left out by the masks of importance ratios, by the samples' age in versions.

`python -m clawrl_gym.train run.dir=RUN learner.keep_checkpoints=100` and then
`python bench/staleness.py RUN`: the samples of each update are scored by the weights of later
checkpoints, as if they had waited so long. Bounds are the defaults; shares are of sampled tokens.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, list_checkpoints
from clawrl_gym.store import StoreReader
from clawrl_gym.trainers.losses.loss import LossSettings, outside
from clawrl_gym.trainers.losses.loss_function import build_loss
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs

AGES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(slots=True)
class Shares:
    """Sums over tokens."""

    tokens: int = 0
    below: int = 0
    """Ratio below the lower bound of tokens."""
    above: int = 0
    in_sequences: int = 0
    """Tokens in a sequence that is masked whole."""
    masked: int = 0

    def row(self, age: int) -> str:
        shares = (self.below, self.above, self.in_sequences, self.masked)
        return " | ".join(
            [f"| {age}", str(self.tokens), *(f"{100 * n / self.tokens:.2f} %" for n in shares)]
        )


def measure(run: Path, ages: tuple[int, ...], most: int, temperature: float) -> dict[int, Shares]:
    """By age; of about so many versions that sampled, spread over the run."""
    checkpoints = list_checkpoints(run / CHECKPOINTS)
    reader = StoreReader(run)
    sampled_by: defaultdict[int, list[Sample]] = defaultdict(list)
    for row in reader.updates():
        for sample in reader.samples_of_update(row.version):
            if set(sample.versions_T) <= {-1, sample.oldest_version}:
                sampled_by[sample.oldest_version].append(sample)
    reader.close()
    wanted: defaultdict[int, list[tuple[int, list[Sample]]]] = defaultdict(list)
    for age in ages:
        pairs = [(v + age, samples) for v, samples in sampled_by.items() if v + age in checkpoints]
        for later, samples in pairs[:: max(1, len(pairs) // most)]:
            wanted[later].append((age, samples))
    shares: defaultdict[int, Shares] = defaultdict(Shares)
    for later, batches_of_ages in sorted(wanted.items()):
        model = PackedModel(str(resolve_model(str(checkpoints[later]))), "cpu", temperature)
        for age, samples in batches_of_ages:
            add(shares[age], model, samples)
    return dict(sorted(shares.items()))


def add(shares: Shares, model: PackedModel, samples: list[Sample]) -> None:
    import torch

    bounds = TrainerConfig()
    settings = LossSettings(
        build_loss(bounds.loss), tis_cap=1.0, kl_coef=0.0,
        token_ratio_min=bounds.token_ratio_min, token_ratio_max=bounds.token_ratio_max,
        sequence_ratio_min=bounds.sequence_ratio_min, sequence_ratio_max=bounds.sequence_ratio_max,
    )  # fmt: skip
    for pack in make_packs(samples, 8192):
        with torch.no_grad():
            old_M = model.score(pack).logprobs_M
        mu_M, rows_M = torch.from_numpy(pack.behaviour_M), torch.from_numpy(pack.rows_M)
        of_tokens_M, of_sequences_M = outside(old_M, mu_M, settings, rows_M)
        shares.tokens += len(old_M)
        shares.below += int((of_tokens_M & (old_M < mu_M)).sum())
        shares.above += int((of_tokens_M & (old_M > mu_M)).sum())
        shares.in_sequences += int(of_sequences_M.sum())
        shares.masked += int((of_tokens_M | of_sequences_M).sum())


def lines(shares: dict[int, Shares]) -> Iterator[str]:
    yield "| versions old | tokens | ratio too small | too large | in masked sequences | masked |"
    yield "|---|---|---|---|---|---|"
    for age, of_age in shares.items():
        yield of_age.row(age) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--most", type=int, default=12, help="versions for each age")
    parser.add_argument("--temperature", type=float, default=1.0, help="of the sampling")
    options = parser.parse_args()
    print(*lines(measure(options.run, AGES, options.most, options.temperature)), sep="\n")


if __name__ == "__main__":
    main()
