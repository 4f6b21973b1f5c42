"""The configuration of `ClawRL/ToolCall-v0`, and what follows from it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from clawrl_gym.config.envs import SandboxConfig
from clawrl_gym.config.part import Part
from clawrl_gym.envs.kind import RegisteredEnvConfig
from clawrl_gym.envs.toolcall import GYM_CLASS, GYM_ID


class McpServerConfig(Part):
    """One MCP server whose tools are offered; give `command` (stdio) or `url` (HTTP)."""

    name: str
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    """All that the server's process gets beside PATH and HOME."""
    url: str | None = None
    """URL of a streamable HTTP server."""
    headers: dict[str, str] = Field(default_factory=dict)


class ToolCallEnvConfig(RegisteredEnvConfig):
    """`ClawRL/ToolCall-v0`: a request, and tools to meet it with."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "toolcall"
    tool_use: ClassVar[Literal["none", "some", "all"]] = "all"
    starts_here: ClassVar[bool] = True
    marks_failures: ClassVar[bool] = True
    task_keys: ClassVar[tuple[str, ...]] = ("tasks",)
    shipped_tasks: ClassVar[frozenset[str]] = frozenset({"generated", "shop", "composed", "plain"})

    type: Literal["toolcall"] = "toolcall"
    id: str = GYM_ID
    tasks: str = "generated"
    """`generated`: the shipped seeded families; `shop`: the shop with its simulated customers;
    `composed`: several things to do with one request, in an office; `plain`: one to three of them,
    said plainly; else a JSON or JSONL file of
    tasks, or a folder or file of BFCL, tau-bench or tau2-bench."""
    families: list[str] | None = None
    """Only these generated families; None takes all."""
    example: bool = False
    """The system message shows another training task of the same family with the replies that
    solve it, as `agent.protocol=text` writes them."""
    mcp: list[McpServerConfig] = Field(default_factory=list)
    """MCP servers that every task's tools are completed with."""
    user: Literal["scripted", "model"] = "scripted"
    """`model`: a simulated customer's sentences come from an OpenAI-compatible model."""
    user_base_url: str | None = None
    user_key: str | None = None
    user_model: str = "policy"
    user_timeout_s: float = Field(60.0, gt=0)
    judge_base_url: str | None = None
    """Base URL of the OpenAI-compatible server whose model says whether a conversation meets what
    tau2-bench asserts of it in words. None: tasks with such assertions are left out."""
    judge_key: str | None = None
    judge_model: str | None = None
    judge_timeout_s: float = Field(120.0, gt=0)
    max_turns: int = Field(8, ge=1)
    """Replies after which an episode is truncated; 20 unless given where tasks are not generated.
    """
    call_timeout_s: float = Field(20.0, gt=0)
    """Seconds that one tool call may take."""
    sandbox: SandboxConfig = SandboxConfig(memory_mb=256, disk_mb=32, pids=32)
    """Limits of the Python interpreter and of programs that grade."""

    @model_validator(mode="before")
    @classmethod
    def _longer_conversations(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("tasks", "generated") != "generated":
            return {"max_turns": 20, **values}
        return values

    def long_preparation(self) -> str | None:
        missing: str | None = self.env_class().long_preparation(self)
        return missing
