"""The learner: samples in, one update of the weights, weights out.

Blind to the algorithm, whose class its process never sees: it gets the terms of the loss, and
reads ids, behaviour log-probs, advantages and distillation targets. The proximal policy is always
the learner itself before the update; what vLLM sampled with, however many versions ago, enters
through the truncated importance weight, or as the loss reads it (`trainer.loss`).
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, TrainerError, boundary
from clawrl_gym.core.ownership import OWNER, OWNER_NAME
from clawrl_gym.core.provenance import threads_of
from clawrl_gym.core.types import DistilledTurn, Sample, StepStats
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.models.vocabulary import check_vocabulary
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.capabilities import TORCH, LearnerCapabilities
from clawrl_gym.trainers.limits import FiniteGradients, memory_errors
from clawrl_gym.trainers.losses.loss import LossSettings
from clawrl_gym.trainers.losses.loss_function import build_loss
from clawrl_gym.trainers.models.adapter import write_adapter
from clawrl_gym.trainers.models.adapter_state_cache import (
    AdapterState,
    AdapterStateCache,
    in_memory,
)
from clawrl_gym.trainers.models.average import MovingAverage
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.optimizer import strength_of
from clawrl_gym.trainers.models.packing import Pack, make_packs, staleness
from clawrl_gym.trainers.models.pictures import Images
from clawrl_gym.trainers.models.weights import trained_weights
from clawrl_gym.trainers.objectives import OF_A_TEACHER, checked_objectives
from clawrl_gym.trainers.schedule import learning_rate
from clawrl_gym.trainers.updates import checkpoint
from clawrl_gym.trainers.updates.guard import Review
from clawrl_gym.trainers.updates.minibatch import Minibatch, distilled_turns_of, pack_loss, split
from clawrl_gym.trainers.updates.probing import probe_sample
from clawrl_gym.trainers.updates.step_metrics import StepMetrics
from clawrl_gym.trainers.updates.supervised import SupervisedMetrics, supervised_loss
from clawrl_gym.trainers.updates.teacher import Teacher, TeacherReport

if TYPE_CHECKING:
    from clawrl_gym.trainers.updates.actor import LearnerSetup

MAX_DISTILLED_TURNS = 4
"""Most distilled turns of a step that are returned for people to look at."""


class Learner:
    """A model and its optimizer; synchronous, for a process of its own."""

    capabilities: ClassVar[LearnerCapabilities] = TORCH

    def __init__(
        self,
        trainer: TrainerConfig,
        learner: LearnerConfig,
        model_dir: str,
        seed: int,
        device: str,
        temperature: float = 1.0,
        images: Images | None = None,
        objectives: frozenset[str] | None = None,
    ) -> None:
        """`model_dir` holds the run's first weights (also when a checkpoint is loaded after).
        `objectives`: the terms of the loss; None: those of `trainer.algorithm`."""
        if temperature <= 0:
            raise TrainerError(f"got a sampling temperature of {temperature}, expected above 0")
        self.objectives = checked_objectives(trainer, learner) if objectives is None else objectives
        torch.set_num_threads(threads_of(learner.threads))
        torch.manual_seed(seed)
        self.trainer, self.config, self.seed = trainer, learner, seed
        self.model_dir = Path(model_dir)
        distils = bool(self.objectives & OF_A_TEACHER)
        frozen = distils and trainer.distillation.teacher == "frozen"
        self.first: PackedModel | None = None
        """The run's first weights: the KL term's reference and the frozen teacher."""
        with (
            boundary(TrainerError, f"loading the learner's model from {model_dir!r}"),
            memory_errors("for the learner's weights", trainer, learner),
        ):
            self.model = PackedModel(model_dir, device, temperature, images, learner)
            if trainer.kl_coef > 0 or frozen:
                self.first = (
                    self.model.first()
                    if self.model.adapted
                    else PackedModel(model_dir, device, temperature, images)
                )
        self.average: MovingAverage | None = None
        """Moving average of the weights, where it is the teacher."""
        if distils and trainer.distillation.teacher == "average":
            self.average = MovingAverage(self.model.net, trainer.distillation.average_decay)
        self.teacher = self._make_teacher(model_dir, device, images) if distils else None
        self.settings = LossSettings(
            loss=build_loss(trainer.loss),
            tis_cap=trainer.tis_cap,
            kl_coef=trainer.kl_coef,
            kl_correction=trainer.kl_correction,
            token_ratio_min=trainer.token_ratio_min,
            token_ratio_max=trainer.token_ratio_max,
            sequence_ratio_min=trainer.sequence_ratio_min,
            sequence_ratio_max=trainer.sequence_ratio_max,
            reduction=trainer.reduction,
            constant_length=trainer.constant_length,
        )
        self.user = OWNER
        """User whose adapter is trained now."""
        self._adapter_states = AdapterStateCache()
        self.weights = trained_weights(self.model.net, learner)
        self._finite = FiniteGradients(learner.max_skipped, trainer.loss.type)
        self.updates = 0
        """Steps done so far, those before a resumption included."""
        self.skipped = 0
        """Optimizer steps left out because the gradient was not finite."""

    @classmethod
    def from_config(cls, config: LearnerConfig, setup: LearnerSetup) -> Self:
        """The learner as a run makes it. Raises TrainerError for what cannot be loaded."""
        return cls(*setup.arguments(), setup.objectives)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.weights.optimizer

    def step(self, samples: Sequence[Sample], version: int) -> StepStats:
        """Update once on the batch: weights of `version` become those of `version + 1`.

        The version is the schedule's clock too, so batches that never came here do not delay the
        decay; a user's weights are as old as their own updates, for they begin as a version of the
        run's. A batch without a trainable token changes no weight.
        """
        start_s = time.perf_counter()
        age = version if self.user == OWNER else self.updates
        rate = learning_rate(age, self.trainer.steps, self.config)
        with memory_errors("when the teacher read the batch", *self._limits):
            readings = self._readings(samples)
        parts = split(
            samples,
            readings.of,
            self.trainer.minibatches,
            self.trainer.max_tokens_per_pack,
            draw=random.Random(f"{self.seed}:{version}"),
        )
        distillation = self.trainer.distillation
        watch = StepMetrics(
            version,
            self.objectives,
            self.trainer.tis_cap,
            distillation.gap_clip if distillation.form == "sampled" else None,
        )
        distilled_turns: list[DistilledTurn] = []
        with memory_errors("for log-probs before the update", *self._limits):
            before = self._proximal(parts)
        for part, old in zip(parts, before, strict=True):
            distilled_turns.extend(
                self._update(part, old, rate, watch, MAX_DISTILLED_TURNS - len(distilled_turns))
            )
        self.updates += 1
        if self.average is not None and parts:
            self.average.follow()
        tokens = sum(len(pack.ids_T) for part in parts for pack in part.packs)
        duration_s = time.perf_counter() - start_s
        metrics = watch.metrics() | readings.metrics | staleness(samples, version)
        metrics["learner/lr"] = rate
        metrics["learner/skipped"] = float(self.skipped)
        metrics["learner/tokens_per_s"] = tokens / duration_s
        return StepStats(metrics, tokens, duration_s, distilled_turns)

    def supervised_step(self, samples: Sequence[Sample], update: int) -> StepStats:
        """Update once by maximum likelihood: the tokens that the masks mark become likelier.

        Advantages are the tokens' weights; behaviour log-probs and versions are not read. `update`
        (0 is the first) is the schedule's clock.
        """
        start_s = time.perf_counter()
        rate = learning_rate(update, self.trainer.steps, self.config)
        nothing = [None for _ in samples]
        parts = split(samples, nothing, 1, self.trainer.max_tokens_per_pack, random.Random(update))
        if not parts:
            raise TrainerError("got a batch without a token to learn from, expected at least one")
        (part,) = parts
        watch = SupervisedMetrics()

        def learn(_: int, pack: Pack) -> None:
            scores = self.model.score(pack)
            loss = supervised_loss(scores.logprobs_M, pack, part.tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            watch.pack(float(loss.detach()), scores)

        norm = self._optimize(part, rate, learn)
        self.updates += 1
        tokens = sum(len(pack.ids_T) for pack in part.packs)
        duration_s = time.perf_counter() - start_s
        metrics = watch.metrics() | {
            "learner/grad_norm": norm,
            "learner/lr": rate,
            "learner/skipped": float(self.skipped),
            "learner/tokens_per_s": tokens / duration_s,
        }
        return StepStats(metrics, tokens, duration_s)

    @torch.no_grad()
    def review(self, samples: Sequence[Sample]) -> Review:
        """Review of samples by the current weights; nothing is learned from them."""
        logprobs: list[list[float]] = [[] for _ in samples]
        entropy, tokens = 0.0, 0
        for pack in make_packs(samples, self.trainer.max_tokens_per_pack):
            scores = self.model.score(pack)
            entropy += float(scores.entropies_M.sum())
            tokens += len(pack.rows_M)
            for row, logprob in zip(pack.rows_M, scores.logprobs_M.tolist(), strict=True):
                logprobs[pack.origins[row]].append(logprob)
        return Review(entropy / max(tokens, 1), logprobs)

    def probe(self) -> Reading:
        """Reading of a short text by the current weights; the text is the same throughout a run."""
        sample = probe_sample(self.model_dir, self.model.width, self.model.context)
        (pack,) = make_packs([sample], len(sample.ids_T))
        with torch.no_grad():
            logprobs_M = self.model.at_temperature_one().score(pack).logprobs_M
        return Reading(sample.ids_T, logprobs_M.tolist())

    def save_weights(self, folder: str) -> None:
        """Put `model.safetensors` into `folder`, in the element type of the first weights.

        The folder must not hold an index of weight shards, which would hide the file.
        """
        with boundary(TrainerError, f"writing weights to {folder!r}"):
            dtype = self.model.saved_dtype
            checkpoint.write_weights(self.model.state(dtype), Path(folder), dtype)

    def save_adapter(self, folder: str) -> None:
        """Make `folder` hold the adapter alone, as PEFT and vLLM load it."""
        with boundary(TrainerError, f"writing the adapter to {folder!r}"):
            shutil.rmtree(folder, ignore_errors=True)
            write_adapter(self.model.net, Path(folder))

    def save_checkpoint(self, folder: str) -> None:
        """Make `folder` a model's folder that transformers and vLLM load, or an adapter's, with the
        learner's own state inside: all that `load_checkpoint` needs to resume bit by bit."""
        state: checkpoint.LearnerState = {
            "optimizer": self.weights.state(),
            "updates": self.updates,
            "skipped": self.skipped,
            "rng": torch.get_rng_state(),
            "average": None if self.average is None else self.average.tensors,
            "user": self.user,
        }
        with boundary(TrainerError, f"writing the checkpoint {folder!r}"):
            checkpoint.write_checkpoint(self.model, state, self.model_dir, Path(folder))

    def load_checkpoint(self, folder: str) -> None:
        """Resume from a checkpoint of the same model and configuration; the optimizer restarts
        where it holds the weights alone."""
        with boundary(TrainerError, f"reading the checkpoint {folder!r}"):
            checkpoint.check_user(Path(folder), self.user)
            state = checkpoint.read_checkpoint(self.model, self.model_dir, Path(folder))
            if self.average is not None:
                self.average.begin()
            if state is None:  # weights alone
                self.weights.begin()
                return
            tensors = state.get("average")  # checkpoints of earlier versions have none
            if self.average is not None and tensors is not None:
                self.average.load(tensors)
            self.weights.take_state(state["optimizer"])
        self.updates, self.skipped = state["updates"], state["skipped"]
        torch.set_rng_state(state["rng"])

    def use(self, user: str, folder: str | None) -> None:
        """Switch to a user's adapter and optimizer, and put away those that are loaded.

        They come from memory, else from their checkpoint `folder`; without one the user begins with
        the run's own adapter as it is and an optimizer of their own.

        Raises TrainerError where all weights are trained, and for a checkpoint that cannot be
        taken: the learner is as it was then.
        """
        if user == self.user:
            return
        if not self.model.adapted:
            raise TrainerError(
                f"got the turn of {user or OWNER_NAME} at a learner of all weights, expected one "
                "with adapters (learner=lora): all share one set of weights"
            )
        before, state = self.user, self._adapter_state()
        self._adapter_states.put(before, state)
        self.user = user
        try:
            self._become(user, folder)
        except BaseException:  # else these weights would pass for the user's
            self._adapter_states.take(before)
            self.user = before
            self._go_on(state)
            raise
        self._finite = FiniteGradients(self.config.max_skipped, self.trainer.loss.type)

    def _become(self, user: str, folder: str | None) -> None:
        state = self._adapter_states.take(user)
        if state is not None:
            self._go_on(state)
        elif folder is not None:
            self.load_checkpoint(folder)
        else:
            self._begin_as(self._adapter_states.own())

    def forget(self, user: str) -> None:
        """Drop from memory all state of a user whose turn it is not."""
        self._adapter_states.take(user)

    def _adapter_state(self) -> AdapterState:
        average = None if self.average is None else self.average.tensors
        return AdapterState(
            in_memory(self._trained()),
            in_memory(self.weights.state()),
            self.updates,
            self.skipped,
            torch.get_rng_state(),
            in_memory(average),
        )

    def _trained(self) -> list[Tensor]:
        return [parameter for parameter in self.model.net.parameters() if parameter.requires_grad]

    def _go_on(self, state: AdapterState) -> None:
        self._begin_as(state)
        self.weights.take_state(state.optimizer)
        self.updates, self.skipped = state.updates, state.skipped
        torch.set_rng_state(state.rng)
        if self.average is not None and state.average is not None:
            self.average.load(state.average)

    def _begin_as(self, state: AdapterState) -> None:
        with torch.no_grad():
            for parameter, tensor in zip(self._trained(), state.trained, strict=True):
                parameter.copy_(tensor)
        self.weights.begin()
        self.updates = self.skipped = 0
        if self.average is not None:
            self.average.begin()

    def _make_teacher(self, model_dir: str, device: str, images: Images | None) -> Teacher:
        config = self.trainer.distillation
        if config.teacher == "policy":
            model = self.model
        elif config.teacher == "frozen" and self.first is not None:
            model = self.first
        elif self.average is not None:
            model = self.model.averaged(self.average)
        else:
            with boundary(TrainerError, f"loading the teacher {config.teacher!r}"):
                teacher_dir = _folder_of(config.teacher)
                check_vocabulary(teacher_dir, model_dir)
                model = PackedModel(teacher_dir, device, self.model.temperature, images)
        return Teacher(config, self.model, model, self.trainer.max_tokens_per_pack)

    def _readings(self, samples: Sequence[Sample]) -> TeacherReport:
        """The teacher's readings of the batch before the update; empty without a teacher."""
        if self.teacher is not None:
            return self.teacher.read(samples)
        for sample in samples:
            if any(sample.distill_T):
                raise TrainerError(
                    f"session {sample.session_id!r}: got a sample to distil, expected none with "
                    f"trainer.algorithm={self.trainer.algorithm} and trainer.opd_weight="
                    f"{self.trainer.opd_weight:g}: no teacher is asked"
                )
        return TeacherReport([None for _ in samples], {})

    def _proximal(self, parts: list[Minibatch]) -> list[list[Tensor] | None]:
        """Log-probs before the update, by minibatch and pack.

        None for a single minibatch: there the forward pass of the update itself has them.
        """
        if len(parts) < 2:
            return [None for _ in parts]
        with torch.no_grad():
            return [[self.model.score(pack).logprobs_M for pack in part.packs] for part in parts]

    def _update(
        self,
        part: Minibatch,
        old: list[Tensor] | None,
        rate: float,
        watch: StepMetrics,
        max_distilled_turns: int,
    ) -> list[DistilledTurn]:
        """Make one optimizer step on a minibatch; returns some of its turns that were distilled."""
        distilled_turns: list[DistilledTurn] = []

        def learn(index: int, pack: Pack) -> None:
            of_pack = self._learn(pack, part, None if old is None else old[index], watch)
            distilled_turns.extend(islice(of_pack, max_distilled_turns - len(distilled_turns)))

        norm = self._optimize(part, rate, learn)
        watch.step(norm, strength_of(part.samples))
        return distilled_turns

    def _optimize(
        self, part: Minibatch, rate: float, learn: Callable[[int, Pack], object]
    ) -> float:
        """Step once on the gradients that `learn` adds, pack by pack; returns their norm."""
        self.weights.forget_gradients()
        try:
            for index, pack in enumerate(part.packs):
                with memory_errors(f"in a pack of {len(pack.ids_T):,} tokens", *self._limits):
                    learn(index, pack)
            with memory_errors("for the optimizer", *self._limits):
                norm = self.weights.step(rate, strength_of(part.samples))
        except TrainerError:
            self.weights.forget_gradients()
            raise
        is_finite = bool(norm.isfinite())
        self.skipped += not is_finite
        self._finite.saw(is_finite)
        return float(norm)

    @property
    def _limits(self) -> tuple[TrainerConfig, LearnerConfig]:
        return self.trainer, self.config

    def _learn(
        self, pack: Pack, part: Minibatch, old_M: Tensor | None, watch: StepMetrics
    ) -> Iterator[DistilledTurn]:
        """Add a pack's gradient; yields its turns that were distilled."""
        scores = self.model.score(pack)
        if old_M is None:
            old_M = scores.logprobs_M.detach()
        mu_M = torch.from_numpy(pack.behaviour_M).to(old_M.device)
        reference_M = self._reference(pack)
        terms = pack_loss(
            pack, part, scores, old_M, reference_M, self.settings, self.trainer.distillation
        )
        terms.loss.backward()  # type: ignore[no-untyped-call]
        watch.pack(pack, scores, terms, old_M, mu_M)
        return distilled_turns_of(pack, part, terms)

    def _reference(self, pack: Pack) -> Tensor | None:
        if self.first is None or self.trainer.kl_coef == 0:
            return None
        with torch.no_grad():
            return self.first.score(pack).logprobs_M


def _folder_of(teacher: str) -> str:
    try:
        return str(resolve_model(teacher))
    except ConfigError as error:
        raise TrainerError(
            str(error).replace("policy.model", "trainer.distillation.teacher")
        ) from error
