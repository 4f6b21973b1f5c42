"""The words of the project as data: what the four loops hand to one another.

Lists carry a shape letter: `_T` tokens of one sequence or turn, `_G` episodes of a group.
Every record is frozen; a change is a new record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypedDict

Split = Literal["train", "heldout"]
TurnKind = Literal["main", "side"]
VerdictKind = Literal["rule", "model", "feedback"]
INTERRUPTED = "interrupted"
"""Finish reason of a turn whose client left before its end; it is kept and never trained on."""


class Message(TypedDict, total=False):
    """A chat message in the OpenAI wire form."""

    role: str
    content: Any
    """Text, None, or a list of parts: texts, and pictures by their hash (see `pictures.py`)."""
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    reasoning_content: str


class StopReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"
    """The environment said that the task is over."""
    TRUNCATED = "truncated"
    """A budget of the environment (turns) ended it; it is graded all the same."""
    CONTEXT = "context"
    """The next prompt would not fit the model's context; graded all the same."""
    DEADLINE = "deadline"
    """The episode's wall-clock deadline passed: infrastructure, no reward."""
    ENV_ERROR = "env_error"
    """The environment failed: infrastructure, no reward."""
    POLICY_ERROR = "policy_error"
    """The policy server failed: infrastructure, no reward."""
    IDLE = "idle"
    """A live session was quiet for long; a later request opens it again."""
    CANCELLED = "cancelled"
    """The run stopped or the group was dropped: no reward."""

    @property
    def is_infrastructure(self) -> bool:
        """True when the end says nothing about the policy: retried, never rewarded."""
        return self in _INFRASTRUCTURE


_INFRASTRUCTURE = frozenset(
    {StopReason.DEADLINE, StopReason.ENV_ERROR, StopReason.POLICY_ERROR, StopReason.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class TaskRef:
    """What names one task to an environment: `reset(seed=seed, options={"task": id})`."""

    id: str | None
    """None for an environment without named tasks: the seed alone chooses."""
    seed: int
    split: Split


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy generation, exactly as vLLM made it."""

    session_id: str
    index: int
    """0 for the session's first turn."""
    kind: TurnKind
    prompt_ids_T: list[int]
    sampled_ids_T: list[int]
    logprobs_T: list[float | None]
    """Of the sampled ids under the sampling distribution; None masks the token."""
    versions_T: list[int]
    """The weight version that sampled each token."""
    finish_reason: str
    messages: list[Message]
    """The request's messages."""
    reply: Message
    created_s: float
    """Unix time at which generation ended."""
    rule: str = ""
    """What told its kind: a header, or the name of a rule."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """The tools that the request offered, in OpenAI's form."""
    template: dict[str, Any] = field(default_factory=dict)
    """What else of the request the chat template read, such as `chat_template_kwargs`."""
    id: int | None = None
    """Store position; None before it is stored."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement of one turn by what came after it."""

    turn_id: int
    kind: VerdictKind
    value: Literal[-1, 0, 1] | None
    """None: the judge abstained; that is never 0 and never trained."""
    reward: float | None
    """What training uses: the value, or a finer score that a person gave, in [-1, 1]."""
    detail: dict[str, Any]
    """Why, in words and votes; a person's correction under `text`, accepted hints under `hints`."""
    created_s: float
    id: int | None = None
    """Store position; None before it is stored."""

    @property
    def hints(self) -> tuple[str, ...]:
        """What the next state teaches about the turn, in words; the preferred hint first."""
        return tuple(self.detail.get("hints", ()))


@dataclass(frozen=True, slots=True)
class Episode:
    """One run of a task by the policy, as its worker reports it."""

    session_id: str
    group_id: int | None
    """None for an episode that is measured, not trained on."""
    task: TaskRef
    stop_reason: StopReason
    reward: float | None
    """Sum of the environment's rewards; None after an infrastructure failure."""
    turns: int
    error: str | None = None
    """What failed, when something did."""
    family: str | None = None
    """The task's family, for curves by family."""
    duration_s: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    """What else the environment measured, by name; averaged in the run's metrics."""

    @property
    def success(self) -> bool:
        """Solved completely: the environment's reward reached 1."""
        return self.reward is not None and self.reward >= 1.0


@dataclass(frozen=True, slots=True)
class Group:
    """The episodes of one task that are compared with each other."""

    id: int
    task: TaskRef
    episodes_G: list[Episode]
    version: int
    """Weight version when the group was dispatched: the oldest that any of its tokens can have."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One turn of a sample, and the prompts under which a teacher is asked about its tokens."""

    start: int
    """Where the turn's sampled tokens begin in `Sample.ids_T`."""
    length: int
    """Sampled tokens of the turn."""
    prompts: tuple[list[int], ...]
    """Ids of the turn's prompt with a hint in it, one for each candidate hint."""
    pictures: int = 0
    """How many of the sample's first pictures each prompt shows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the learner eats: one sequence of ids with per-token streams, all of length T."""

    session_id: str
    group_id: int
    ids_T: list[int]
    mask_T: list[bool]
    """True where the policy sampled the token and its log-prob is known."""
    logprobs_T: list[float]
    """Behaviour log-probs; 0.0 where the mask is False (never read there)."""
    versions_T: list[int]
    """Weight version of each sampled token; -1 elsewhere."""
    advantages_T: list[float]
    """0.0 where the mask is False."""
    reward: float
    turn_id: int | None = None
    """The one turn that a sample of a live session is made of."""
    distill_T: list[float] = field(default_factory=list)
    """Weight of the distillation term on each token; empty when no token has any."""
    lessons: tuple[Lesson, ...] = ()
    """Where `distill_T` is not 0: what the teacher reads instead of the prompt."""
    pictures: tuple[str, ...] = ()
    """Hashes of the pictures whose places are in the ids, in their order."""
    id: int | None = None
    """Store position; None before it is stored."""

    def __post_init__(self) -> None:
        lengths = {
            len(self.ids_T), len(self.mask_T), len(self.logprobs_T),
            len(self.versions_T), len(self.advantages_T), len(self.distill_T) or len(self.ids_T),
        }  # fmt: skip
        if len(lengths) != 1:
            raise ValueError(f"a sample's streams differ in length: {sorted(lengths)}")

    @property
    def oldest_version(self) -> int:
        """The oldest weight version among the sampled tokens."""
        return min((v for v, m in zip(self.versions_T, self.mask_T, strict=True) if m), default=-1)


@dataclass(frozen=True, slots=True)
class Taught:
    """What the teacher thought of one turn, for people to look at."""

    sample_id: int
    turn_id: int | None
    prompt: int
    """Which of the lesson's prompts it read."""
    ids_T: list[int]
    """The turn's sampled ids."""
    gaps_T: list[float]
    """Teacher's log-prob less the policy's, of each of them; not clipped."""


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one learner step reports."""

    metrics: dict[str, float]
    tokens: int
    """Tokens that went through the model."""
    duration_s: float
    taught: list[Taught] = field(default_factory=list)
    """A few of the turns that were distilled."""
