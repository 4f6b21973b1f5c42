"""The project's records: the data that the four loops pass to one another.

Lists carry a shape letter: `_T` tokens of one sequence or turn, `_G` episodes of a group. Every
record is frozen; a change is a new record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Required, TypedDict

Split = Literal["train", "heldout"]
TurnKind = Literal["main", "side"]
VerdictKind = Literal["rule", "model", "feedback"]
Json = Mapping[str, object]
"""A JSON object whose fields are checked as they are read. Every TypedDict is one."""
JsonObject = dict[str, object]
"""A JSON object that is being made, or was just parsed."""
INTERRUPTED = "interrupted"
"""Finish reason of a turn whose client left before its end; it is kept and never trained on."""
UNKNOWN_ID = -1
"""Stands for each token whose id the engine does not report; such turns are never trained on."""
UNKNOWN_IDS = "unknown_ids"
"""Value of `Turn.untrainable` when its engine reported no ids."""


class FunctionCall(TypedDict, total=False):
    """The function call that a model asks for."""

    name: str
    arguments: str | dict[str, object]
    """JSON text, or the model's version of it; some clients send the object itself."""


class ToolCall(TypedDict, total=False):
    """One call of a tool, in a reply."""

    id: str
    type: str
    """Always `function`."""
    function: FunctionCall


class FunctionSchema(TypedDict, total=False):
    """A tool's description for a model."""

    name: Required[str]
    description: str
    parameters: dict[str, Any]
    """A JSON schema."""


class Tool(TypedDict, total=False):
    """A tool that a request offers."""

    type: Literal["function"]
    function: Required[FunctionSchema]


class ImageUrl(TypedDict):
    """Address of a picture: a data URL, or its hash."""

    url: str


class TextPart(TypedDict):
    """Words among the parts of a message."""

    type: Literal["text"]
    text: str


class ImagePart(TypedDict):
    """A picture among the parts of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


ContentPart = TextPart | ImagePart
Content = str | list[ContentPart] | None


class Message(TypedDict, total=False):
    """A chat message in the OpenAI wire form."""

    role: str
    content: Content
    """Text, None, or a list of parts: texts, and pictures by their hash (see `pictures.py`)."""
    tool_calls: list[ToolCall]
    tool_call_id: str
    reasoning_content: str
    unread_calls: list[str]
    """Calls that could not be parsed, and why; they stand in the content. In our replies only."""
    reading_notes: list[str]
    """Notes on calls that were parsed in spite of an error, or by one of two parsers only."""


class TemplateOptions(TypedDict, total=False):
    """Inputs of a chat template beside messages and tools."""

    tool_choice: str | JsonObject
    parallel_tool_calls: bool
    chat_template_kwargs: dict[str, object]
    reasoning_effort: str
    documents: list[dict[str, str]]


class ChatBody(TemplateOptions, total=False):
    """The fields of a request that the policy's chat template and parsers read."""

    messages: Required[list[Message]]
    tools: list[Tool]


class Usage(TypedDict):
    """Token counts of one turn."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class RefusedHint(TypedDict):
    """A hint that was not accepted."""

    hint: str
    """The hint's text, perhaps cut."""
    why: str


class VerdictDetail(TypedDict, total=False):
    """Why a verdict is what it is. Each kind of judge writes the fields it has."""

    reason: str
    """Reason of an abstention."""
    rule: str | int | None
    """The rule that decided; beside a model's verdict, the value that the rules would give."""
    said: str
    """The words that a rule matched."""
    language: str
    """Language of these words, if not English: ISO 639-1."""
    lasting: bool
    """True: the person also wants something for the future."""
    tool: str
    """The tool whose result a rule matched."""
    hints: list[str]
    """Accepted hints, the preferred first."""
    refused: list[RefusedHint]
    hints_asked: int
    """Number of answers with a hint that were requested."""
    votes: list[int | None]
    """Votes; None for an answer that is not a vote."""
    retried: int
    """Votes that were requested a second time."""
    why: str
    """The end of one answer of the majority."""
    unread: list[str]
    """The ends of answers that are not votes."""
    probability: float
    """Probability by a reward model that the reply was good."""
    thumb: str
    score: float
    text: str
    """A person's correction."""
    outcome: float
    """The reward that a live session ended with."""


class StopReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"
    """The environment said that the task is over."""
    TRUNCATED = "truncated"
    """A budget of the environment (turns) ended it; it is still graded."""
    CONTEXT = "context"
    """The next prompt would not fit the model's context; still graded."""
    DEADLINE = "deadline"
    """The agent's time was over, infrastructure's own delays not counted: a failure, which never
    earns more than playing on."""
    AGENT_FAULT = "agent_fault"
    """The agent spoilt its episode or its grade (`AgentFault`): a failure, which never earns more
    than playing on."""
    ENV_ERROR = "env_error"
    """The environment failed: infrastructure, no reward."""
    NO_VERDICT = "no_verdict"
    """The task's verifier gives no verdict at all (`NoVerdict`): no reward, never run again."""
    POLICY_ERROR = "policy_error"
    """The policy server failed: infrastructure, no reward."""
    IDLE = "idle"
    """A live session was idle for long; a later request opens it again."""
    CANCELLED = "cancelled"
    """The run stopped or the group was dropped: no reward."""

    @property
    def is_infrastructure(self) -> bool:
        """True when the end says nothing about the policy: retried, never rewarded."""
        return self in _INFRASTRUCTURE

    @property
    def is_failure(self) -> bool:
        """True when the agent itself kept the environment from grading what it did."""
        return self in _FAILURES


_INFRASTRUCTURE = frozenset(
    {StopReason.ENV_ERROR, StopReason.NO_VERDICT, StopReason.POLICY_ERROR, StopReason.CANCELLED}
)
_FAILURES = frozenset({StopReason.DEADLINE, StopReason.AGENT_FAULT})


@dataclass(frozen=True, slots=True)
class TaskRef:
    """The task's name for an environment: `reset(seed=seed, options={"task": id})`."""

    id: str | None
    """The task's name; None for an environment without named tasks: the seed alone chooses."""
    seed: int
    split: Split
    env: str = ""
    """Name of its environment in a mixture; empty in a run of one environment."""


@dataclass(frozen=True, slots=True)
class TaskTraits:
    """Facts about a task that are known before it is played."""

    family: str | None = None
    """Tasks of one family are alike; None: nothing is known."""
    difficulty: int | None = None
    """Relative difficulty within its environment, higher is harder; None: unknown."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy generation, exactly as the engine made it."""

    session_id: str
    index: int
    """0 for the session's first turn."""
    kind: TurnKind
    prompt_ids_T: list[int]
    sampled_ids_T: list[int]
    logprobs_T: list[float | None]
    """Log-probs of the sampled ids under the sampling distribution; None masks the token."""
    versions_T: list[int]
    """The weight version that sampled each token."""
    finish_reason: str
    messages: list[Message]
    """The request's messages."""
    reply: Message
    created_s: float
    """Unix time at which generation ended."""
    rule: str = ""
    """The source of its kind: a header, or the name of a rule."""
    tools: list[Tool] = field(default_factory=list)
    """The tools that the request offered, in OpenAI's form."""
    template: TemplateOptions = field(default_factory=TemplateOptions)
    """Other fields of the request that the chat template read, such as `chat_template_kwargs`."""
    temperature: float | None = None
    """Sampling temperature; None: not known, the run's own."""
    untrainable: str = ""
    """Why it is never trained on: sampling settings that no learner reproduces, or `unknown_ids`.
    Empty: it can be."""
    stop_text: str | None = None
    """The request's stop text that ended the reply."""
    answer_id: str = ""
    """Id by which a later request may name its answer; empty: none does."""
    id: int | None = None
    """Store position; None before it is stored."""

    @property
    def has_ids(self) -> bool:
        """Whether its engine reported the ids of its prompt and of its sampled tokens."""
        return UNKNOWN_ID not in self.prompt_ids_T[:1] + self.sampled_ids_T[:1]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement of one turn by what came after it."""

    turn_id: int
    kind: VerdictKind
    value: Literal[-1, 0, 1] | None
    """The verdict; None: the judge abstained, which is never 0 and never trained."""
    reward: float | None
    """Training uses it: the value, or a finer score that a person gave, in [-1, 1]."""
    detail: VerdictDetail
    """The reasons, in words and votes."""
    created_s: float
    id: int | None = None
    """Store position; None before it is stored."""
    weight: float = 1.0
    """Strength of the evidence, in (0, 1]: a tool without an error is weaker than a person who
    comments. It scales the advantage, and how far an update goes."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Lessons of the next state about the turn, in words; the preferred hint first."""
        return tuple(self.detail.get("hints", ()))


class Compared(NamedTuple):
    """A reward that entered the running mean of its source."""

    source: str
    reward: float
    weight: float = 1.0
    """Strength of the evidence, see `Verdict.weight`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply of the policy in an episode, and its cost."""

    message: Message
    action: str | None
    """The action that the environment got; None for a reply in which the agent found no action."""
    prompt_tokens: int | None = None
    """Tokens of the prompt; None where the server does not say."""
    completion_tokens: int | None = None
    duration_s: float = 0.0
    finish_reason: str | None = None
    version: int | None = None
    """The weight version that answered; None where the server does not say."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """Everything said in an episode, once."""

    opening: list[Message]
    """The first request."""
    tools: list[Tool]
    """The tools that it offered."""
    answers: list[Answer]
    observations: list[str]
    """The first is part of the opening; each other one came after the answer before it."""
    report: str | None = None
    """Report of the environment's checks, which no request held."""


def is_success(reward: float | None, solved: bool | None = None) -> bool:
    """Whether an episode solved its task: its environment says so (`solved`), or says nothing and
    the reward reached 1. One without a reward did not."""
    if reward is None or solved is None:
        return reward is not None and reward >= 1.0
    return solved


@dataclass(frozen=True, slots=True)
class Episode:
    """One run of a task by the policy, as its worker reports it."""

    session_id: str
    group_id: int | None
    """Id of its group; None for an episode that is measured, not trained on."""
    task: TaskRef
    stop_reason: StopReason
    reward: float | None
    """Sum of the environment's rewards, 0 at most after a failure of the agent's; None after an
    infrastructure failure. Steps that were left unplayed are charged by `RewardFloors`."""
    turns: int
    error: str | None = None
    """The error, when something failed."""
    family: str | None = None
    """The task's family, for curves by family."""
    replaced: int = 0
    """Number of replaced characters in its environment's texts, which were not valid Unicode."""
    duration_s: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    """Other scores of the environment, by name; averaged in the run's metrics."""
    notice: str | None = None
    """A notice of its worker for people, such as a leak or environments that wait for room."""
    is_reported: bool = False
    """True when its error was reported already: all episodes of a worker that ended share one."""
    transcript: Transcript | None = None
    """The transcript, where its spec wants one."""
    solved: bool | None = None
    """The environment's last `info["success"]`; None: it says nothing."""
    unplayed: int = 0
    """Steps that were left where the environment neither ended nor graded it; their cost is not in
    `reward` yet."""
    lowest_step: float = 0.0
    """The lowest reward of one of its steps, 0 at most."""
    declared_floor: float | None = None
    """The lower end of the environment's `reward_range`; None: it declares none."""

    @property
    def success(self) -> bool:
        """Whether the environment says so; where it says nothing, whether its reward reached 1."""
        return is_success(self.reward, self.solved)

    @property
    def may_be_run_again(self) -> bool:
        """Whether infrastructure ended it, so that another attempt may end otherwise."""
        return self.stop_reason.is_infrastructure and self.stop_reason is not StopReason.NO_VERDICT

    @property
    def kind(self) -> str | None:
        """Name under which its success is counted: its family, in a mixture `ENV/FAMILY`."""
        if not self.task.env:
            return self.family
        return f"{self.task.env}/{self.family or 'task'}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A criterion by which a model compares the replies of a group."""

    name: str
    """Name in metrics."""
    criterion: str
    """What is better, in words."""
    weight: float
    """Factor of its score, from 0 for the worst reply to 1 for the best, in the reward."""


@dataclass(frozen=True, slots=True)
class Group:
    """The episodes of one task that are compared with each other."""

    id: int
    task: TaskRef
    episodes_G: list[Episode]
    version: int
    """Weight version when the group was dispatched: the oldest that any of its tokens can have."""


@dataclass(frozen=True, slots=True)
class DistillTarget:
    """One turn of a sample, and the prompts under which a teacher scores its tokens."""

    start: int
    """Index in `Sample.ids_T` of the turn's first sampled token."""
    length: int
    """Sampled tokens of the turn."""
    prompts: tuple[list[int], ...]
    """Ids of the turn's prompt with a hint in it, one for each candidate hint."""
    pictures: int = 0
    """How many of the sample's first pictures each prompt shows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The learner's input: one sequence of ids with per-token streams, all of length T."""

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
    """Advantage of each token; 0.0 where the mask is False."""
    reward: float
    turn_id: int | None = None
    """The one turn that a sample of a live session is made of."""
    distill_T: list[float] = field(default_factory=list)
    """Weight of the distillation term on each token; empty when no token has any."""
    distill_targets: tuple[DistillTarget, ...] = ()
    """Prompts that the teacher reads instead, where `distill_T` is not 0."""
    pictures: tuple[str, ...] = ()
    """Hashes of the pictures whose places are in the ids, in their order."""
    strength: float = 1.0
    """Evidence, in (0, 1]: the mean over its tokens, each by the size of what it adds."""
    temperature: float | None = None
    """Temperature its tokens were sampled at; None: the run's own."""
    signal: str = ""
    """The kind of verdict behind a sample of a live turn; `weak` for the weak reward."""
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
class DistilledTurn:
    """The teacher's gaps on one turn, shown to people."""

    sample_id: int
    turn_id: int | None
    prompt: int
    """Index of the distillation target's prompt that it read."""
    ids_T: list[int]
    """The turn's sampled ids."""
    gaps_T: list[float]
    """The teacher's log-prob less the policy's, for each of them; not clipped."""


@dataclass(frozen=True, slots=True)
class StepStats:
    """Results of one learner step."""

    metrics: dict[str, float]
    tokens: int
    """Tokens that went through the model."""
    duration_s: float
    distilled_turns: list[DistilledTurn] = field(default_factory=list)
    """A few of the turns that were distilled."""
