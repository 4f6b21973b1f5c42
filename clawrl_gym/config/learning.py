"""Configuration of learning: rollouts, the algorithm and its loss, the optimizer, evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from clawrl_gym.config.loss import LossConfig, with_loss
from clawrl_gym.config.part import Part, Threads
from clawrl_gym.core.plugins import ALGORITHMS, LEARNERS

_ENVS_PER_WORKER = 128


class RolloutConfig(Part):
    """Collection of episodes."""

    mode: Literal["async", "sync"] = "async"
    """`sync` collects and learns in turns (for comparison only)."""
    groups: int = Field(24, ge=1)
    """Groups in one batch of the learner."""
    group_size: int = Field(8, ge=1)
    """Episodes of one task. 1: as in a live chat, an episode is compared only with a running
    mean."""
    workers: int = Field(1, ge=1)
    """Ray actors that hold environments; on a cluster that was joined, on each node (at most one a
    core)."""
    envs_per_worker: int | None = Field(None, ge=1)
    """Most episodes that one worker runs at a time. None: 128, and in training a batch if that is
    more, or more batches where `max_staleness` allows them."""
    in_flight: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """Training: episodes at a time in all workers. `auto` follows the engine's metrics (requests
    that run and queue, its key-value cache) up and down; a number fixes it. Never more than
    the workers hold."""
    max_staleness: int = Field(2, ge=0)
    """Most versions that a group's oldest token may be behind; older groups are dropped. Where the
    learner is the bottleneck, groups are begun later, so that most are one version old."""
    episode_timeout_s: float = Field(120.0, gt=0)
    growth_mb: int = Field(1024, ge=0)
    """Memory in MB that a worker may gain once its environments are warm; above it they are
    recreated, and the worker after them. 0 watches nothing."""
    max_retries: int = Field(3, ge=0)
    """Retries of an episode that infrastructure ended."""
    min_group: int = Field(2, ge=1)
    """A group with fewer rewarded episodes is dropped (never a whole one)."""
    dynamic_sampling: bool = False
    """Replace groups that teach nothing in a batch by others (DAPO)."""

    @property
    def measured_slots(self) -> int:
        """Environments of a worker that only measures."""
        return self.envs_per_worker or _ENVS_PER_WORKER

    @property
    def slots(self) -> int:
        """Environments of each worker in training; they are made when they are first used."""
        if self.envs_per_worker is not None:
            return self.envs_per_worker
        return max(_ENVS_PER_WORKER, math.ceil(self.useful_in_flight / self.workers))

    @property
    def useful_in_flight(self) -> int:
        """Episodes that are not stale when they end: one meets as many updates as there are batches
        in flight, some of them more, and half of `max_staleness` leaves room for these."""
        batch = self.groups * self.group_size
        return max(_ENVS_PER_WORKER, int(batch * max(1.0, self.largest_lag / 2)))

    @property
    def largest_lag(self) -> int:
        """Most versions by which the sampling policy may lag behind the learner."""
        return 0 if self.mode == "sync" else self.max_staleness

    @property
    def fixed_in_flight(self) -> int | None:
        """The fixed number of episodes in flight; None: the engine decides."""
        return None if self.in_flight == "auto" else self.in_flight


class DistillationConfig(Part):
    """Distillation from a teacher: the policy itself with a hint in its prompt (trainer=opd,
    hybrid, which take form=topk and teacher=frozen)."""

    teacher: str = "policy"
    """`policy`: the current weights; `frozen`: those that the run began with; `average`: the moving
    average of those after each update; or another model with the same vocabulary, named as
    `policy.model` is."""
    average_decay: float = Field(0.95, ge=0, lt=1)
    """teacher=average: share of it that an update keeps; it is about the mean of the last 1 / (1 -
    average_decay) updates."""
    form: Literal["sampled", "topk"] = "sampled"
    """`sampled`: a policy gradient on the sampled tokens, which says of most only that they are
    worse, and lets their probability go anywhere; `topk`: a divergence over the `top_k` most likely
    tokens and one bin for all others, which says what is better: use it with a fixed teacher
    (`teacher=frozen`)."""
    gap_clip: float = Field(5.0, gt=0)
    """sampled: bound of the teacher's log-prob less the policy's, in nats, to either side."""
    top_k: int = Field(20, ge=1)
    top_k_of: Literal["student", "teacher"] = "student"
    """topk: whose most likely tokens are compared."""
    divergence: Literal["reverse", "forward", "js"] = "reverse"
    """topk: KL(student || teacher), KL(teacher || student), or Jensen-Shannon."""
    baseline: Literal["policy", "control"] = "policy"
    """Baseline of the teacher's log-probs. `policy`: the policy's own; `control`: those of the
    teacher with a hint about something else (one of `judge.hints.controls`), so that only the
    content of the hint is learned and not the effect of any hint; it asks the teacher twice."""

    @model_validator(mode="after")
    def _has_words_of_both(self) -> Self:
        if self.baseline == "control" and self.form == "topk" and self.top_k_of == "teacher":
            raise ValueError(
                "got baseline=control with top_k_of=teacher, expected top_k_of=student: the "
                "policy's own words are needed for the tokens that are compared"
            )
        return self

    @property
    def is_another_model(self) -> bool:
        """Whether the teacher's weights come from files of their own."""
        return self.teacher not in ("policy", "frozen", "average")


class TrainerConfig(Part):
    """The algorithm and its loss."""

    algorithm: str = "grpo"
    """`grpo`: outcomes within groups, and verdicts on turns beside them (groups of one: `binary`);
    `binary`: each turn by its own verdict; `opd`: hints, through a teacher that has read them;
    `hybrid`: rewards and hints together; or a class of your own: package.module:Name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of a class of your own, as its `Options` say."""
    steps: int = Field(20, ge=1)
    """Updates of the run."""
    normalize_std: bool = True
    """Divide group advantages by their standard deviation (GRPO); False is Dr. GRPO's choice."""
    leave_one_out: bool = False
    """Compare an episode only with the others of its group (RLOO: with normalize_std=False)."""
    process_weight: float = Field(1.0, ge=0)
    """Weight of verdicts on single turns beside the episode's outcome (needs a judge)."""
    baseline_decay: float = Field(0.95, ge=0, lt=1)
    """Decay of the running mean of verdicts, the baseline of turns without a group."""
    rl_weight: float = Field(1.0, ge=0)
    """Weight of the reward term (hybrid)."""
    opd_weight: float = Field(1.0, ge=0)
    """Weight of the distillation term (opd, hybrid)."""
    distillation: DistillationConfig = DistillationConfig()
    loss: LossConfig = LossConfig()
    reduction: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    """Mean over the batch's tokens; over its sequences' means; or over sequences, each summed and
    divided by `constant_length` (Dr. GRPO)."""
    constant_length: int = Field(1024, ge=1)
    """reduction=constant: tokens that a sequence counts as."""
    tis_cap: float = Field(2.0, gt=0)
    """Cap of the truncated importance weight between learner and engine. loss.type=dppo weighs by
    the whole ratio to the engine instead, with `loss.options.ratio_cap`."""
    token_ratio_min: float = Field(0.125, ge=0, le=1)
    """A token whose importance ratio (learner before the update over engine) is below this is left
    out of the loss, not of its denominator; 0: no bound."""
    token_ratio_max: float | None = Field(8.0, ge=1)
    """Upper bound of the same ratio; None: no bound."""
    sequence_ratio_min: float = Field(0.25, ge=0, le=1)
    """So is a whole sequence whose ratios' geometric mean is below this; 0: no bound."""
    sequence_ratio_max: float | None = Field(4.0, ge=1)
    """Upper bound of the same mean; None: no bound."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL term against the first weights; 0 keeps no reference model."""
    kl_correction: bool = False
    """Weigh the KL term by the importance ratio of the weights that are updated over those that
    sampled: unbiased for stale samples, in value and gradient, with more variance."""
    minibatches: int = Field(1, ge=1)
    """Optimizer steps that one batch is split into; with 1, old and current policy are the same, no
    ratio is ever clipped, and gspo, cispo and sapo are refused: they would be ppo."""
    max_tokens_per_pack: int = Field(2048, ge=128)
    """Tokens of one packed forward pass."""

    @model_validator(mode="before")
    @classmethod
    def _fits_its_class(cls, values: object) -> object:
        values = with_loss(values) if isinstance(values, Mapping) else values
        return ALGORITHMS.with_options(values, "algorithm", "grpo")


class AdapterConfig(Part):
    """LoRA: beside each chosen weight W of the frozen model, (alpha / rank) B A is trained."""

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    """With 32 the best rate is about ten times that of all weights, whatever the rank ("LoRA
    Without Regret", 2025), which `learner=lora` takes for each size of models."""
    modules: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Names of linear layers, such as [q_proj,v_proj]; the output head is none of them."""


class GuardsConfig(Part):
    """Limits of an update with `publish=if_not_worse`. None switches a guard off.

    Medians are those of the last 16 updates that served; before the fourth nothing is compared with
    them.
    """

    entropy: float | None = Field(3.0, gt=1)
    """Most by which one update may multiply or divide the entropy of what is replayed: a policy
    that collapses, or forgets what a word is, does so in few updates. In runs that learn well it
    was 1.8 at most, with few samples to replay."""
    reply_length: float | None = Field(8.0, gt=1)
    """Most by which its replies may be longer or shorter than the median, as a factor."""
    logprob_gap: float | None = Field(0.2, gt=0)
    """Mean distance of engine and learner on tokens of the current version, in nats: above it the
    learner does not see what was sampled. Rounding in bfloat16 is some hundredths."""
    grad_norm: float | None = Field(20.0, gt=1)
    """Largest gradient norm before clipping, as a multiple of the median."""
    replay: float | None = Field(0.05, gt=0)
    """Nats per token of full advantage that the update may take from good replies of earlier
    batches, or give to bad ones. Updates of runs that learn well do the reverse."""
    replay_samples: int = Field(32, ge=1)
    """Number of replayed samples: the newest of earlier batches, at most 8 of each."""
    canary: float | None = Field(0.15, gt=0)
    """`serve`: nats per token that one update may take from canaries: replies to fixed prompts, and
    turns that people praised; the worse of the two sets counts."""
    drift: float | None = Field(0.6, gt=0)
    """`serve`: nats per token that canaries may be below the anchor: the version that was pinned
    last, else the first one that was measured. It bounds the sum of many small updates, while
    others than the owner share the weights."""
    canary_file: str | None = None
    """Your own fixed prompts instead of the shipped ones: a JSON object a line with `messages`, and
    a good `reply`; without it the policy's own first one is used."""
    complaints: float | None = Field(0.1, ge=0, lt=1)
    """`serve`: rise of the share of complaints (verdicts of -1), at the low end of its 95 %
    interval, from which the run rolls back by itself to the last good version. No single user
    decides it, except the owner."""
    most_refusals: int = Field(3, ge=1)
    """Refusals in a row that end a run of `train`; `serve` continues with the last good weights and
    says so."""


class LearnerConfig(Part):
    """The optimizer and its process."""

    backend: str = "torch"
    """`simulated` sleeps instead of learning: it rehearses the loops without a model; or a class of
    your own, in a process of its own or called over a network: package.module:Name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of a class of your own, as its `Options` say."""
    placement: Literal["driver", "beside", "apart"] = "driver"
    """`driver`: on the command's machine, on one GPU with the engine. `apart`: with a GPU for
    itself, the machine's last one; on a cluster (`ray.address`) on a node with the resource
    `learner`, else with a GPU. `beside`: on a cluster, with an engine (policy.placement=nodes)."""
    adapter: AdapterConfig | None = None
    """The adapter to train; None trains all weights. `learner=lora` sets one."""
    base: Literal["served", "float32", "bfloat16", "nf4"] = "served"
    """The frozen weights beside an adapter. `served`: in the element type of the model's files;
    `nf4`: linear layers in 4 bits (QLoRA, arXiv 2305.14314), which needs bitsandbytes."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Element type of the learner's computation on a GPU. `auto`: float32 for a model whose files
    are float32, without TF32, so that its log-probs are the engine's (policy.dtype=float32); else
    bfloat16, several times as fast, with log-probs some hundredths apart. On a CPU it is that of
    the weights."""
    offload: bool = False
    """Without an adapter: float32 weights and Adam's moments stay in main memory, and the device
    has the weights in bfloat16 alone: 2 bytes a parameter there, 16 here."""
    checkpoint_layers: bool = False
    """Recompute layers in the backward pass instead of keeping their activations: about a third
    more time, and memory for activations of one layer at a time."""
    moment_bits: Literal[8, 32] = 32
    """Bits of Adam's moments. 8, which needs bitsandbytes: 2 bytes a parameter instead of 8. Its
    step is quick on a GPU; in main memory (a learner on a CPU, `offload`) it takes tens of times as
    long and, for its time, 20 bytes for each element of the largest tensor."""
    lr: float = Field(8e-4, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.0, ge=0)
    warmup_steps: int = Field(2, ge=0)
    schedule: Literal["constant", "linear", "cosine", "inverse"] = "linear"
    """Decay after the warm-up, down to `min_lr_ratio`: `linear` and `cosine` over `trainer.steps`;
    `inverse`, for learning without a last update, as 1 / (1 + updates / `halves_after`)."""
    halves_after: int = Field(8, ge=1)
    """schedule=inverse: updates after which the rate is half of `lr`."""
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    max_grad_norm: float = Field(1.0, gt=0)
    max_skipped: int = Field(5, ge=1)
    """Steps in a row with a gradient that is not finite, each left out, that end a run."""
    most_without_gradient: int | None = Field(10, ge=1)
    """Updates in a row without any gradient that end a run, each of which is reported with its
    cause; held-out tasks are measured first. None continues. They never end `serve`."""
    threads: Threads = 1
    """Torch threads of the learner on a CPU. `auto`: half of its machine's cores; all of them with
    rollout=sync, and with `all`."""
    publish: Literal["always", "if_not_worse"] = "always"
    """`if_not_worse`: `guards` check each update before its weights serve; a refused one is undone,
    its samples count as used. It takes a checkpoint of every update."""
    guards: GuardsConfig = GuardsConfig()
    checkpoint_every: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """Updates between checkpoints; the last update always makes one. `auto`: each update makes one,
    unless it is larger than 1 GiB: then as many updates go by as it has GiB, 16 at most."""
    keep_checkpoints: Literal["auto", "by_age"] | Annotated[int, Field(ge=1)] = 2
    """Newest checkpoints to keep, to which a run can roll back; the best on held-out tasks and
    pinned ones stay beside them. `auto`: 2, and up to 16 as long as they take 1 GiB together.
    `by_age`: all of today, the last of each of the seven days before and of each week before these,
    within `keep_gb`; those that lie closest together in time go first. Of those larger than 1 GiB
    only the newest keeps the optimizer's state."""
    keep_gb: float = Field(20.0, gt=0)
    """keep_checkpoints=by_age: GiB that the checkpoints of one set of weights may take; the two
    newest and the pinned ones stay even where they take more."""
    remote_checkpoints: str | None = None
    """An fsspec address (s3://BUCKET/PATH, gs://, sftp://; a mounted path works too): each finished
    checkpoint is copied below it, into a folder of the run's name, while learning continues, and
    what `keep_checkpoints` removes is removed there, too. None copies nothing."""
    simulated_step_s: float = Field(1.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _fits_its_class(cls, values: object) -> object:
        return LEARNERS.with_options(values, "backend", "torch")


def _several(value: object) -> object:
    """Turn a single number into a list."""
    return (value,) if isinstance(value, int) else value


class EvalConfig(Part):
    """Held-out evaluation: before the first update, in between, and after the last."""

    tasks: int = Field(120, ge=0)
    """Held-out tasks, the same ones each time; 0 switches evaluation off."""
    ends: bool = True
    """Measure before the first update and after the last. False: only in between; the bench
    measures these two itself."""
    every: int = Field(5, ge=0)
    """Updates between evaluations in between; 0 for none."""
    between_tasks: int = Field(48, ge=1)
    """Held-out tasks of an evaluation in between (the first of the same list)."""
    temperature: float = Field(0.0, ge=0)
    """0 takes the most likely token; policy.sampling's own temperature shows what users get."""
    k: Annotated[tuple[int, ...], BeforeValidator(_several)] = ()
    """pass@k beside success, such as 8 or [1,8]: before the first update, after the last, and in
    `evaluate`; of `samples` more episodes of each task at the policy's own temperature."""
    sampled: bool = False
    """Each evaluation also plays every task once at the policy's own temperature, beside the
    episode at `temperature`: held-out success and reward of both, in a line each, and paired
    differences of both to another run (`evaluate compare RUN CONTROL`)."""
    samples: int | None = Field(None, ge=1)
    """Episodes of each task for pass@k; more are more exact. None takes the largest k."""
    also: tuple[str, ...] = ()
    """Options of conf/env/ whose held-out tasks are measured too, before the first update and after
    the last: skills learned and forgotten elsewhere."""

    @model_validator(mode="after")
    def _has_enough_samples(self) -> Self:
        largest = max(self.k, default=0)
        if min(self.k, default=1) < 1 or (self.samples or largest) < largest:
            raise ValueError(
                f"got eval.k={list(self.k)} and eval.samples={self.samples}, expected each k to be "
                "at least 1 and at most eval.samples"
            )
        return self

    @property
    def samples_per_task(self) -> int:
        """Episodes of each task at the policy's own temperature at the first and the last
        evaluation, and in `evaluate`."""
        return self.samples_with(self.k)

    def samples_with(self, ks: Sequence[int]) -> int:
        """Episodes of each task of an evaluation that measures pass@k with `ks`."""
        if ks:
            return self.samples or max(ks)
        return 1 if self.sampled else 0
