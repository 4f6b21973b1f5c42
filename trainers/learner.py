"""The learner: samples in, one update of the weights, weights out.

Blind to the algorithm: it reads ids, behaviour log-probs and advantages. The proximal policy of
the clipped surrogate is always the learner itself before the update; what vLLM sampled with,
however many versions ago, enters through the truncated importance weight only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.errors import TrainerError, boundary
from clawrl_gym.trainers import checkpoint
from clawrl_gym.trainers.batch import Pack, count_tokens, make_packs, staleness
from clawrl_gym.trainers.loss import LossSettings, policy_loss
from clawrl_gym.trainers.model import PackedModel
from clawrl_gym.trainers.schedule import learning_rate
from clawrl_gym.trainers.watch import Watch
from clawrl_gym.types import Sample, StepStats


class Learner:
    """A model and its optimizer; synchronous, for a process of its own."""

    def __init__(
        self,
        trainer: TrainerConfig,
        learner: LearnerConfig,
        model_dir: str,
        seed: int,
        device: str,
        temperature: float = 1.0,
    ) -> None:
        """`model_dir` holds the run's first weights (also when a checkpoint is loaded after)."""
        if temperature <= 0:
            raise TrainerError(f"got a sampling temperature of {temperature}, expected above 0")
        torch.set_num_threads(learner.threads)
        torch.manual_seed(seed)
        self.trainer, self.config, self.seed = trainer, learner, seed
        with boundary(TrainerError, f"loading the learner's model from {model_dir!r}"):
            self.model = PackedModel(model_dir, device, temperature)
            self.reference = (
                PackedModel(model_dir, device, temperature) if trainer.kl_coef > 0 else None
            )
        self.settings = LossSettings(
            trainer.clip_low, trainer.clip_high, trainer.tis_cap, trainer.kl_coef
        )
        self.optimizer = _make_optimizer(self.model.net, learner)
        self.updates = 0
        """Steps done so far, those before a resumption too."""
        self.skipped = 0
        """Optimizer steps left out because the gradient was not finite."""

    def step(self, samples: Sequence[Sample], version: int) -> StepStats:
        """Update once on the batch: weights of `version` become those of `version + 1`.

        The version is the schedule's clock too, so batches that never came here do not delay the
        decay. A batch without a trainable token changes no weight.
        """
        start_s = time.perf_counter()
        rate = learning_rate(version, self.trainer.steps, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batches = [
            (make_packs(part, self.trainer.max_tokens_per_pack), count_tokens(part))
            for part in self._minibatches(samples, version)
        ]
        batches = [(packs, count) for packs, count in batches if count]
        watch = Watch(version)
        olds = self._proximal([packs for packs, _ in batches])
        for (packs, count), old in zip(batches, olds, strict=True):
            self._update(packs, old, count, watch)
        self.updates += 1
        tokens = sum(len(pack.ids_T) for packs, _ in batches for pack in packs)
        duration_s = time.perf_counter() - start_s
        metrics = watch.metrics() | staleness(samples, version)
        metrics["learner/lr"] = rate
        metrics["learner/skipped"] = float(self.skipped)
        metrics["learner/tokens_per_s"] = tokens / duration_s
        return StepStats(metrics, tokens, duration_s)

    def save_weights(self, folder: str) -> None:
        """Put `model.safetensors` into `folder`, in the element type of the first weights.

        The folder must not hold an index of weight shards, which would hide the file.
        """
        with boundary(TrainerError, f"writing weights to {folder!r}"):
            checkpoint.write_weights(self.model.state(), Path(folder), self.model.saved_dtype)

    def save_checkpoint(self, folder: str) -> None:
        """Make `folder` hold all that `load_checkpoint` needs to go on bit by bit."""
        state = {
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "skipped": self.skipped,
            "rng": torch.get_rng_state(),
        }
        with boundary(TrainerError, f"writing the checkpoint {folder!r}"):
            checkpoint.write_checkpoint(self.model.state(), state, Path(folder))

    def load_checkpoint(self, folder: str) -> None:
        """Go on from a checkpoint of the same model and configuration."""
        with boundary(TrainerError, f"reading the checkpoint {folder!r}"):
            weights, state = checkpoint.read_checkpoint(Path(folder))
            self.model.load_state(weights)
            self.optimizer.load_state_dict(state["optimizer"])
        self.updates, self.skipped = state["updates"], state["skipped"]
        torch.set_rng_state(state["rng"])

    def _minibatches(self, samples: Sequence[Sample], version: int) -> list[list[Sample]]:
        """The batch in `trainer.minibatches` parts, drawn by seed and version alone."""
        parts = self.trainer.minibatches
        order = list(samples)
        if parts > 1:
            random.Random(f"{self.seed}:{version}").shuffle(order)
        return [order[index::parts] for index in range(parts)]

    def _proximal(self, batches: list[list[Pack]]) -> list[list[Tensor] | None]:
        """Log-probs before the update, by minibatch and pack.

        None for a single minibatch: there the forward pass of the update itself has them.
        """
        if len(batches) < 2:
            return [None for _ in batches]
        with torch.no_grad():
            return [[self.model.score(pack).logprobs_M for pack in packs] for packs in batches]

    def _update(
        self, packs: list[Pack], old: list[Tensor] | None, count: int, watch: Watch
    ) -> None:
        """One optimizer step on the mean over `count` tokens."""
        self.optimizer.zero_grad(set_to_none=True)
        for index, pack in enumerate(packs):
            scores = self.model.score(pack)
            lp_M = scores.logprobs_M
            old_M = lp_M.detach() if old is None else old[index]
            mu_M, advantages_M = (
                torch.from_numpy(stream).to(lp_M.device)
                for stream in (pack.behaviour_M, pack.advantages_M)
            )
            terms = policy_loss(
                lp_M, old_M, mu_M, advantages_M, count, self.settings, self._reference(pack)
            )
            terms.loss.backward()  # type: ignore[no-untyped-call]
            watch.pack(pack, scores, terms, old_M, mu_M)
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.net.parameters(), self.config.max_grad_norm
        )
        if bool(norm.isfinite()):
            self.optimizer.step()
        else:
            self.skipped += 1
        watch.step(float(norm))

    def _reference(self, pack: Pack) -> Tensor | None:
        if self.reference is None:
            return None
        with torch.no_grad():
            return self.reference.score(pack).logprobs_M


def _make_optimizer(net: torch.nn.Module, config: LearnerConfig) -> torch.optim.AdamW:
    """AdamW; vectors (norms, biases) are not decayed."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)
