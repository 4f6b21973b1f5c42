"""The run's configuration as frozen objects: every key, its meaning, unit and default.

Each component receives its own part, never the whole. `compose.py` makes a RunConfig from files
and command lines.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Part(BaseModel):
    """Base of all configuration parts: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RunFolderConfig(Part):
    """Where the run's folder is."""

    root: str = "runs"
    """Parent of the run's folder when `dir` is not given."""
    name: str | None = None
    """Folder name below `root`; None makes one from environment, policy and time."""
    dir: str | None = None
    """The folder itself; wins over `root` and `name`."""


class SandboxConfig(Part):
    """Limits of one sandbox."""

    memory_mb: int = Field(512, ge=32)
    """Memory of all its processes together."""
    disk_mb: int = Field(64, ge=1)
    """What it may write (kept in memory, charged in addition to `memory_mb`)."""
    cpus: float = Field(1.0, gt=0)
    """CPU time per wall time."""
    pids: int = Field(64, ge=8)
    """Processes and threads."""
    output_bytes: int = Field(16_384, ge=256)
    """Output kept of one command; the rest is drained and counted."""
    rootfs: str | None = None
    """Folder of a root file system; None: the host's own /usr, read-only, and a minimal /etc."""
    unsafe_no_limits: bool = False
    """Accept that cgroup limits are missing on this host and run with rlimits only."""


class TerminalEnvConfig(Part):
    """`ClawRL/Terminal-v0`: a shell in a sandbox."""

    type: Literal["terminal"] = "terminal"
    id: str = "ClawRL/Terminal-v0"
    tasks: str = "generated"
    """`generated`: the shipped seeded families; or a folder of tasks in the Harbor layout."""
    families: list[str] | None = None
    """Only these generated families; None takes all."""
    max_turns: int = Field(8, ge=1)
    """Commands after which an episode is truncated (a task may end earlier by itself)."""
    command_timeout_s: float = Field(10.0, gt=0)
    grader_timeout_s: float = Field(60.0, gt=0)
    sandbox: SandboxConfig = SandboxConfig()


class GymEnvConfig(Part):
    """Any Gymnasium environment with text in and text out."""

    type: Literal["gym"] = "gym"
    id: str | None = None
    """A registered id: `Name-v0`, or `module:Name-v0` to import the module that registers it."""
    target: str | None = None
    """`package.module:ClassName`, when the class is registered nowhere."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment."""
    max_turns: int = Field(8, ge=1)
    """Steps after which an episode is truncated."""


EnvConfig = Annotated[TerminalEnvConfig | GymEnvConfig, Field(discriminator="type")]


class AgentConfig(Part):
    """How observations become messages and replies become actions."""

    type: Literal["auto", "terminal", "text"] = "auto"
    """`auto`: terminal for the terminal environment, text for any other."""
    system: str | None = None
    """System prompt; None takes the agent's own."""


class SamplingConfig(Part):
    """How the policy samples during training."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(64, ge=1)
    """Longest reply."""


class PolicyConfig(Part):
    """The model and the vLLM that serves it."""

    model: str = "tiny"
    """`tiny` is the shipped model; otherwise a folder or a Hugging Face id."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int = Field(4096, ge=128)
    """Context, in tokens."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    port: int = Field(0, ge=0, le=65535)
    """vLLM's port on loopback; 0 takes a free one."""
    kv_cache_gb: float = Field(0.25, gt=0)
    """CPU build: memory of the key-value cache."""
    gpu_memory_utilization: float = Field(0.45, gt=0, le=1)
    """CUDA build: vLLM's share of the device; the rest is the learner's."""
    max_num_seqs: int = Field(128, ge=1)
    """Requests that vLLM decodes together."""
    threads: int = Field(1, ge=1)
    """CPU build: OpenMP threads of the engine."""
    enforce_eager: bool = True
    """Skip compilation: starts sooner, decodes somewhat slower."""
    start_timeout_s: float = Field(900.0, gt=0)
    request_timeout_s: float = Field(120.0, gt=0)
    max_restarts: int = Field(2, ge=0)
    """How often a vLLM that died is started again."""
    tool_parser: str | None = "hermes"
    """vLLM's tool-call parser; None switches tool calls off."""
    reasoning_parser: str | None = None
    sampling: SamplingConfig = SamplingConfig()


class GatewayConfig(Part):
    """The HTTP server in front of vLLM."""

    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535)
    """0 takes a free one."""
    key: str | None = None
    """API key; None makes a random one. Required when `host` is not loopback."""
    max_body_mb: float = Field(16.0, gt=0)
    max_waiting: int = Field(4096, ge=1)
    """Requests inside at once; more are answered 503 with Retry-After."""


class RolloutConfig(Part):
    """How episodes are collected."""

    mode: Literal["async", "sync"] = "async"
    """`sync` collects and learns in turns (for comparison only)."""
    groups: int = Field(16, ge=1)
    """Groups in one batch of the learner."""
    group_size: int = Field(8, ge=2)
    """Episodes of one task."""
    workers: int = Field(1, ge=1)
    """Ray actors that hold environments."""
    envs_per_worker: int = Field(64, ge=1)
    """Episodes that one worker runs at a time."""
    max_staleness: int = Field(2, ge=0)
    """A group whose oldest token is more versions old than this is dropped."""
    episode_timeout_s: float = Field(120.0, gt=0)
    max_retries: int = Field(3, ge=0)
    """How often an episode that infrastructure ended is run again."""
    min_group: int = Field(2, ge=2)
    """A group with fewer rewarded episodes is dropped."""


class TrainerConfig(Part):
    """The algorithm and its loss."""

    algorithm: Literal["grpo"] = "grpo"
    steps: int = Field(60, ge=1)
    """Updates of the run."""
    normalize_std: bool = True
    """Divide group advantages by their standard deviation (GRPO); False is Dr. GRPO's choice."""
    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.28, ge=0)
    tis_cap: float = Field(2.0, gt=0)
    """Cap of the truncated importance weight between learner and engine."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL term against the first weights; 0 keeps no reference model."""
    minibatches: int = Field(1, ge=1)
    """Optimizer steps that one batch is split into."""
    max_tokens_per_pack: int = Field(8192, ge=128)
    """Tokens of one packed forward pass."""


class LearnerConfig(Part):
    """The optimizer and its process."""

    backend: Literal["torch", "simulated"] = "torch"
    """`simulated` sleeps instead of learning: rehearses the loops without a model."""
    lr: float = Field(1e-3, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.0, ge=0)
    warmup_steps: int = Field(2, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Decay over `trainer.steps` after the warm-up, down to `min_lr_ratio`."""
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    max_grad_norm: float = Field(1.0, gt=0)
    threads: int = Field(1, ge=1)
    """Torch threads of the learner on a CPU."""
    checkpoint_every: int = Field(1, ge=1)
    keep_checkpoints: int = Field(2, ge=1)
    simulated_step_s: float = Field(1.0, ge=0)


class EvalConfig(Part):
    """Held-out evaluation: before the first update, in between, after the last."""

    tasks: int = Field(120, ge=0)
    """Held-out tasks, the same ones each time; 0 switches evaluation off."""
    every: int = Field(0, ge=0)
    """Updates between evaluations in between; 0 for none."""
    between_tasks: int = Field(48, ge=1)
    """Held-out tasks of an evaluation in between (the first of the same list)."""


class RunConfig(Part):
    """One training run, whole."""

    seed: int = Field(0, ge=0)
    run: RunFolderConfig = RunFolderConfig()
    resume: str | None = None
    """Folder of a run to go on with."""
    dry_run: bool = False
    """Print the resolved configuration and end."""
    logger: Literal["none", "tensorboard", "wandb"] = "none"
    """A metrics sink in addition to metrics.jsonl."""
    ui: Literal["auto", "live", "line"] = "auto"
    """`auto`: the live view on a terminal, one line a step elsewhere."""
    env: EnvConfig = TerminalEnvConfig()
    agent: AgentConfig = AgentConfig()
    policy: PolicyConfig = PolicyConfig()
    gateway: GatewayConfig = GatewayConfig()
    rollout: RolloutConfig = RolloutConfig()
    trainer: TrainerConfig = TrainerConfig()
    learner: LearnerConfig = LearnerConfig()
    eval: EvalConfig = EvalConfig()

    @model_validator(mode="after")
    def _trainable_sampling(self) -> Self:
        sampling = self.policy.sampling
        if sampling.top_p < 1 or sampling.temperature == 0:
            raise ValueError(
                f"got policy.sampling with temperature {sampling.temperature:g} and top_p "
                f"{sampling.top_p:g}, expected a temperature above 0 and top_p 1: log-probs of "
                "cut distributions cannot be compared with the learner's"
            )
        return self
