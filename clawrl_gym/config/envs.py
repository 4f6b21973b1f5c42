"""Configuration of environments, of what isolates them, and of the agents that act in them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part


class SandboxConfig(Part):
    """What isolates an environment, and the limits of one sandbox."""

    type: Literal["auto", "bubblewrap", "docker"] = "auto"
    """`auto` takes the environment's own: docker for swe, bubblewrap for all others."""
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
    image: str | None = None
    """Docker: image of tasks that bring none; None takes the one of docker/ that fits."""
    network: bool = False
    """Docker: let the sandbox reach the network."""
    ttl_s: float = Field(7200.0, gt=0)
    """Docker: a container older than this is removed, whatever became of its owner."""


class TerminalEnvConfig(Part):
    """`ClawRL/Terminal-v0`: a shell in a sandbox."""

    type: Literal["terminal"] = "terminal"
    id: str = "ClawRL/Terminal-v0"
    tasks: str = "generated"
    """`generated`: the shipped seeded families; or a folder of tasks in the Harbor or
    Terminal-Bench layout."""
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


class SweEnvConfig(Part):
    """`ClawRL/SWE-v0`: a repository with an issue, in the fields of SWE-bench."""

    type: Literal["swe"] = "swe"
    id: str = "ClawRL/SWE-v0"
    instances: str = "corpus"
    """`corpus`: the shipped made-up repositories, `easy`: those of them that the tiny policy can
    learn; else a JSON, JSONL or Parquet file, a folder of such files or of a task repository, or
    the id of a data set on the hub."""
    families: list[str] | None = None
    """Only these repositories of the corpus; None takes all."""
    heldout: str | None = None
    """Where held-out instances come from, like `instances`; None holds out about one in five."""
    hub_split: str = "test"
    """Split of a data set on the hub."""
    train_on_verified: bool = False
    """SWE-bench Verified is a benchmark: training on it has to be asked for."""
    log_parser: str | None = None
    """swebench's parser for instances that name none, such as parse_log_pytest."""
    test_command: str | None = None
    """How to run tests for instances without a script of their own; {files} stands for the test
    files that the instance's test patch touches."""
    max_turns: int = Field(30, ge=1)
    """Commands after which an episode is truncated; what was changed is graded all the same."""
    command_timeout_s: float = Field(60.0, gt=0)
    grader_timeout_s: float = Field(900.0, gt=0)
    sandbox: SandboxConfig = SandboxConfig(
        memory_mb=2048, disk_mb=2048, pids=256, output_bytes=65_536
    )


class McpServerConfig(Part):
    """One MCP server whose tools are offered; give `command` (stdio) or `url` (HTTP)."""

    name: str
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    """All that the server's process gets beside PATH and HOME."""
    url: str | None = None
    """Of a streamable HTTP server."""
    headers: dict[str, str] = Field(default_factory=dict)


class ToolCallEnvConfig(Part):
    """`ClawRL/ToolCall-v0`: a request, and tools to meet it with."""

    type: Literal["toolcall"] = "toolcall"
    id: str = "ClawRL/ToolCall-v0"
    tasks: str = "generated"
    """`generated`: the shipped seeded families; `shop`: the shop with its simulated customers; else
    a JSON or JSONL file of tasks, or a folder or file of BFCL or tau-bench."""
    families: list[str] | None = None
    """Only these generated families; None takes all."""
    mcp: list[McpServerConfig] = Field(default_factory=list)
    """MCP servers that every task's tools are completed with."""
    user: Literal["scripted", "model"] = "scripted"
    """`model`: a simulated customer's sentences come from an OpenAI-compatible model."""
    user_base_url: str | None = None
    user_key: str | None = None
    user_model: str = "policy"
    user_timeout_s: float = Field(60.0, gt=0)
    max_turns: int = Field(8, ge=1)
    """Replies after which an episode is truncated; 20 unless given where tasks are not generated.
    """
    call_timeout_s: float = Field(20.0, gt=0)
    """Of one tool call."""
    sandbox: SandboxConfig = SandboxConfig(memory_mb=256, disk_mb=32, pids=32)
    """Of the Python interpreter and of programs that grade."""

    @model_validator(mode="before")
    @classmethod
    def _longer_conversations(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("tasks", "generated") != "generated":
            return {"max_turns": 20, **values}
        return values


class BrowserConfig(Part):
    """The browsers of an environment: shared by all its episodes, each in a fresh context."""

    executable: str | None = None
    """Path of Chromium, best chromium-headless-shell; None looks in the usual places."""
    contexts_per_browser: int = Field(100, ge=1)
    """Episodes at a time in one browser; more of them start another."""
    max_contexts: int = Field(1000, ge=1)
    """Episodes after which a browser is replaced by a new one."""
    memory_mb: int | None = Field(None, ge=64)
    """Of one browser with all its pages, held by cgroups. None: half of the memory that this
    process may have, and no limit where cgroups cannot be written (the doctor says whether)."""
    unsafe_no_isolation: bool = False
    """Accept that bubblewrap is missing on this host: the browser can reach files and network."""


class GuiEnvConfig(Part):
    """`ClawRL/Gui-v0`: a task on web pages in a real browser."""

    type: Literal["gui"] = "gui"
    id: str = "ClawRL/Gui-v0"
    tasks: str = "generated"
    """`generated`: the shipped seeded families on small web applications; `miniwob`: the pages of
    MiniWoB++; else a JSON file or folder of tasks in OSWorld's form."""
    families: list[str] | None = None
    """Only these families of generated tasks or of MiniWoB++; None takes all."""
    heldout: str | None = None
    """Where held-out tasks come from, like a path in `tasks`; None holds out a part of them."""
    observation: Literal["tree", "screenshot", "marked", "both"] = "tree"
    """What is seen of a page: its text with numbered elements, a picture, a picture with the
    elements' numbers drawn on it, or text and picture."""
    coordinates: Literal["pixels", "thousandths"] = "pixels"
    """What x and y mean: CSS pixels, or thousandths of the page's width and height."""
    width: int = Field(1024, ge=64, le=4096)
    """Of the page in CSS pixels, for tasks that do not say it themselves."""
    height: int = Field(640, ge=64, le=4096)
    max_turns: int = Field(15, ge=1)
    """Replies after which an episode is truncated (a task may end earlier by itself)."""
    max_tokens: int = Field(3000, ge=512)
    """Of a page's text, estimated on the safe side; what is out of sight is left out first."""
    action_timeout_s: float = Field(10.0, gt=0)
    page_timeout_s: float = Field(20.0, gt=0)
    """Of loading a page."""
    allow: list[str] = Field(default_factory=list)
    """Hosts of the internet that pages may reach: "host", "host:port", "*.host". Empty: the
    browser has no network at all."""
    films: Literal["none", "measured", "all"] = "measured"
    """Which episodes are kept as strips of screenshots; `measured`: those that are not trained on.
    """
    browser: BrowserConfig = BrowserConfig()


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
    films: Literal["none", "measured", "all"] = "measured"
    """Which episodes are kept as pictures, of an environment that has `filming` and `film()`."""


EnvConfig = Annotated[
    TerminalEnvConfig
    | ConversationEnvConfig
    | SweEnvConfig
    | ToolCallEnvConfig
    | GuiEnvConfig
    | GymEnvConfig,
    Field(discriminator="type"),
]


class AgentConfig(Part):
    """How observations become messages and replies become actions."""

    type: Literal[
        "auto", "terminal", "conversation", "swe", "toolcall", "gui", "text", "harness"
    ] = "auto"
    """`auto`: the agent of the environment; text for any other; `harness`: a program of your own
    (`command`) that asks the gateway by itself."""
    command: list[str] = Field(default_factory=list)
    """type=harness: the program and its arguments; {base_url}, {model}, {task}, {socket}, {folder}
    and {agents} stand for what rollout/harness.py says."""
    system: str | None = None
    """System prompt; None takes the agent's own."""
    protocol: Literal["native", "text"] = "native"
    """How tools are called: by the policy server's own tool calls, or in the reply's text."""
    images: int = Field(3, ge=0)
    """gui: newest pictures that stay in the messages; older ones become a short text."""
    context: Literal["stop", "head_tail"] = "stop"
    """What becomes of a history that does not fit the context: the episode ends, or its middle is
    left out (`max_context_chars`)."""
    max_context_chars: int | None = Field(None, ge=256)
    """context=head_tail: longest history; None: only what the policy refuses is cut."""
    max_reply_tokens: int | None = Field(None, ge=1)
    """Tokens that the policy may say in one episode; None for no bound but the turns."""

    @model_validator(mode="after")
    def _has_a_program(self) -> Self:
        if (self.type == "harness") != bool(self.command):
            raise ValueError(
                f"got agent.type={self.type} and agent.command={self.command}, expected a program "
                "and its arguments with type=harness, and with that alone"
            )
        return self
