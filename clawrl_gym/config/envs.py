"""Configuration of environments, of what isolates them, and of the agents that act in them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from clawrl_gym.config.part import Part


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


class ConversationEnvConfig(Part):
    """`ClawRL/Conversation-v0`: a user with a wish that is not said, a problem, and tools."""

    type: Literal["conversation"] = "conversation"
    id: str = "ClawRL/Conversation-v0"
    source: Literal["simulated", "live"] = "simulated"
    """`simulated`: personas; `live`: the sessions of a running gateway, as episodes."""
    persona: str = "student"
    """Who talks: student, teacher, or one of the others (see envs/conversation/personas.py)."""
    families: list[str] | None = None
    """Only these kinds of tasks (ask, homework, read, save); None takes all."""
    user: Literal["scripted", "model"] = "scripted"
    """`model`: the persona's sentences come from an OpenAI-compatible model."""
    user_base_url: str | None = None
    """Of that model; required with user=model."""
    user_key: str | None = None
    user_model: str = "policy"
    user_timeout_s: float = Field(60.0, gt=0)
    gateway_url: str | None = None
    """source=live: base URL of the gateway whose sessions are the episodes."""
    gateway_key: str | None = None
    live_timeout_s: float = Field(600.0, gt=0)
    """source=live: how long reset and step wait for a user."""
    max_turns: int = Field(6, ge=1)
    """Replies after which an episode is truncated."""


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


EnvConfig = Annotated[
    TerminalEnvConfig | ConversationEnvConfig | GymEnvConfig, Field(discriminator="type")
]


class AgentConfig(Part):
    """How observations become messages and replies become actions."""

    type: Literal["auto", "terminal", "conversation", "text"] = "auto"
    """`auto`: the agent of the environment; text for any other."""
    system: str | None = None
    """System prompt; None takes the agent's own."""
