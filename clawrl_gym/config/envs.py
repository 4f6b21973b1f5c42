"""Shared configuration of all environments, their sandboxes, and the agents that act in them.

A kind of environments is one class that extends `EnvConfig`, in a folder of its own
(`envs/<kind>/config.py`) or in another package. It holds the kind's keys and says how it is made,
which tasks it has, and which agent it usually has. `core/plugins.py` finds it by the value of
`env.type`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from clawrl_gym.config.part import Part
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import AGENTS, ENVIRONMENTS, SANDBOXES, load
from clawrl_gym.core.types import Comparison, Split, TaskTraits

if TYPE_CHECKING:
    import gymnasium

Films = Literal["none", "measured", "all"]
"""Episodes whose pictures are kept; `measured`: those that are not trained on."""


class SandboxConfig(Part):
    """The sandbox that isolates an environment, and its limits."""

    type: str = "auto"
    """`auto` takes bubblewrap, and for swe docker where an engine answers; else
    bubblewrap, docker, or a class of your own: package.module:Name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of a class of your own, as its `Options` say."""
    memory_mb: int = Field(512, ge=32)
    """Memory of all its processes together."""
    disk_mb: int = Field(64, ge=1)
    """Limit of its written files in MB (kept in memory, charged in addition to `memory_mb`)."""
    cpus: float = Field(1.0, gt=0)
    """CPU seconds per wall second."""
    pids: int = Field(64, ge=8)
    """Most processes and threads."""
    output_bytes: int = Field(16_384, ge=256)
    """Output bytes kept of one command; the rest is drained and counted."""
    ready: int = Field(8, ge=0, le=256)
    """Fresh sandboxes that a worker keeps ready for the next resets, of each kind that it opens
    repeatedly; 0: none. A class of your own has some where it declares the capability `pooled`."""
    rootfs: str | None = None
    """Folder of a root file system; None: the host's own /usr, read-only, and a minimal /etc."""
    unsafe_no_limits: bool = False
    """Accept that cgroup limits are missing on this host and run with rlimits only."""
    image: str | None = None
    """Docker: image of tasks without one; None takes the one of docker/ that fits."""
    network: bool = False
    """Docker: let the sandbox reach the network."""
    ttl_s: float = Field(7200.0, gt=0)
    """Docker: seconds after which a container is removed, whatever became of its owner."""

    @model_validator(mode="before")
    @classmethod
    def _fits_its_class(cls, values: object) -> object:
        return SANDBOXES.with_options(values, "type", "auto")


class EnvConfig(Part):
    """Base of all kinds of environments: a kind's keys, and what follows from them."""

    usual_agent: ClassVar[str] = "text"
    """The agent that `agent.type=auto` takes: a built-in name or an import path."""
    has_people: ClassVar[bool] = False
    """Whether user messages are a person's words, real or simulated. Otherwise they are an
    environment's output, and no judge reads them as praise or complaint."""
    marks_failures: ClassVar[bool] = False
    """Whether each failed action is shown as a failure, by an exit code or an error. Then a judge
    by rule takes unmarked results for a success; elsewhere it abstains of them."""

    tool_use: ClassVar[Literal["none", "some", "all"]] = "none"
    """The tasks in which the policy is offered tools to call."""
    starts_here: ClassVar[bool] = False
    """Whether an episode needs something of this machine, such as sandboxes: one is started before
    the run, to find what is missing."""
    task_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that may name a file or folder of tasks: on a cluster it travels to each node."""
    shipped_tasks: ClassVar[frozenset[str]] = frozenset()
    """Names of shipped tasks that these keys take as well."""
    hosts_agents: ClassVar[bool] = False
    """Whether an agent can work inside its sandbox (`agent=cli`): it has a `workplace()`."""

    type: str
    """A built-in name, a name that an installed package gives, or package.module:Name."""
    max_turns: int = Field(8, ge=1)
    """Turns after which an episode is truncated."""

    @abstractmethod
    def make(self) -> gymnasium.Env[str, str]:
        """The environment. Raises ConfigError when it cannot be found."""

    def task_ids(self, split: Split) -> Sequence[str] | None:
        """The ids that `reset(options={"task": id})` takes; starts nothing.

        None: there are no named tasks, only seeds. Raises ConfigError when there is nothing that a
        run could draw.
        """
        return None

    def traits(self) -> Callable[[str], TaskTraits]:
        """The traits of a task by its id, for `curriculum=`. Quick, and starts nothing."""
        return lambda _: TaskTraits()

    def left_out(self) -> Sequence[str]:
        """Sentences: how many tasks are used and why others are not; empty when all are."""
        return ()

    def broken_tasks(self) -> Mapping[str, str]:
        """Tasks whose verifiers never give a verdict, each with the reason: a run draws none of
        them."""
        return {}

    def settled(self, say: Callable[[str], None]) -> Self:
        """This configuration with this machine's choices filled in; `say` reports each choice.

        Called before tasks are drawn; quick, and creates nothing that stays. Raises ConfigError or
        EnvError where no choice works here, with the cure.
        """
        return self

    def check_sandbox(self) -> None:
        """Raise ConfigError where the kind of sandbox lacks a capability that the tasks need.

        Called once its tasks are known to be there, before anything starts; quick.
        """
        return

    def prepare(self, say: Callable[[str], None]) -> None:
        """Make what all episodes share, such as images; `say` reports slow work.

        Raises ConfigError or EnvError for what is missing, with the cure.
        """
        return

    def long_preparation(self) -> str | None:
        """Work of `prepare` that would take minutes, such as an image; None: nothing.

        Only looks. Raises ConfigError or EnvError where it could not be made.
        """
        return None

    @property
    def import_paths(self) -> Sequence[str]:
        """Import paths of functions of one's own that its environments call: a worker with other
        versions of them is refused."""
        return ()

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """Criteria by which the judge's model compares the replies of a training group."""
        return ()

    @property
    def has_own_thread(self) -> bool:
        """Whether all calls of one environment must come from the same thread, which no other one
        has. Else they come from any, one after another, and an environment that waits for the
        policy holds none."""
        return True

    @property
    def node_resource(self) -> str | None:
        """Ray's name of the resource that a node needs for an episode; None: nothing."""
        sandbox = getattr(self, "sandbox", None)
        if not isinstance(sandbox, SandboxConfig):
            return None
        if sandbox.type in SANDBOXES.words:
            return "sandbox"
        resource: str | None = SANDBOXES.capabilities_of(sandbox.type).node_resource
        return resource

    @property
    def shows_pictures(self) -> bool:
        """Whether only a policy that sees pictures can act here."""
        return False

    @classmethod
    def dotted_keys(cls, prefix: str = "") -> list[str]:
        """The base's own keys: those of all built-in kinds."""
        if cls is not EnvConfig:
            return super().dotted_keys(prefix)
        kinds = map(_model_of, ENVIRONMENTS.builtin)
        return sorted({key for kind in kinds for key in kind.dotted_keys(prefix)})

    def options(self) -> dict[str, Any]:
        """The keyword arguments of the environment that `make` makes."""
        return self.model_dump(exclude={"type", "id", "films"})


def read_env_config(values: object) -> object:
    """The configuration of the kind that `type` names."""
    if not isinstance(values, Mapping):
        return values
    kind = values.get("type", "terminal")
    if not isinstance(kind, str):
        raise ConfigError(f"got env.type={kind!r}, expected a name or package.module:Name")
    if kind not in ENVIRONMENTS.builtin and _is_gymnasium(ENVIRONMENTS.path(kind)):
        values, kind = {**values, "target": ENVIRONMENTS.path(kind)}, "gym"
    model = _model_of(kind)
    for name in set(values) - set(model.model_fields):
        owners = [kind for kind in ENVIRONMENTS.builtin if name in _model_of(kind).model_fields]
        if owners:
            raise ConfigError(
                f"unknown configuration key 'env.{name}' of env={kind}; it is one of env="
                + " and env=".join(owners)
            )
    return model.of({**values, "type": kind}, "env.")


def _model_of(kind: str) -> type[EnvConfig]:
    model: type[EnvConfig] = ENVIRONMENTS.resolve(kind).target
    return model


def _is_gymnasium(path: str) -> bool:
    """Whether the path is a Gymnasium environment without its own configuration (`env=gym`)."""
    import gymnasium

    target = load(path, f"env.type={path}")
    return isinstance(target, type) and issubclass(target, gymnasium.Env)


AnyEnvConfig = Annotated[SerializeAsAny[EnvConfig], BeforeValidator(read_env_config)]
"""Configuration of any kind of environment; `type` says which."""


def usual_env_config() -> EnvConfig:
    """The environment of a run without `env=`."""
    return _model_of("terminal").model_validate({})


AgentName = Literal["claude-code", "codex", "mini-swe-agent", "openclaw", "opencode", "pi"]


class AgentConfig(Part):
    """The agent: turns observations into messages and replies into actions."""

    type: str = "auto"
    """`auto`: the agent of the environment; text for any other; `cli`: an agent (`name`, or any
    `command`) that works inside the episode's sandbox; `harness`: a program of your own (`command`)
    beside the worker that calls the gateway itself; or a class of your own: package.module:Name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of a class of your own, as its `Options` say."""
    name: AgentName | None = None
    """type=cli: an agent that is installed once, at its locked version; None takes `command`."""
    command: list[str] = Field(default_factory=list)
    """type=harness: the program and its arguments; {base_url}, {model}, {task}, {socket}, {folder}
    and {agents} are replaced as rollout/harness.py describes. type=cli: a program that the sandbox
    has; {instruction}, {base_url}, {model}, {agent} and others as agents/cli/recipe.py describes.
    """
    folder: str | None = None
    """type=cli with `command`: folder of this machine that sandboxes show read-only as {agent}."""
    env: dict[str, str] = Field(default_factory=dict)
    """type=cli: further variables of the agent's process. The policy can read them: no secrets."""
    timeout_s: float | None = Field(None, gt=0)
    """type=cli: seconds after which the agent is ended and what it left is graded; None: nine
    tenths of the episode's time (rollout.episode_timeout_s), which is the most."""
    system: str | None = None
    """System prompt; None takes the agent's own."""
    show_form: bool = False
    """terminal: the system message shows a reply in the expected form. The shipped policies know it
    by heart; with any other policy it is true unless it is set."""
    protocol: Literal["native", "text"] = "native"
    """How tools are called: by the policy server's native tool calls, or in the reply's text."""
    images: int = Field(3, ge=0)
    """gui: newest pictures that stay in the messages; older ones become a short text."""
    context: Literal["stop", "head_tail"] = "stop"
    """Treatment of a history that does not fit the context: the episode ends, or the middle is left
    out (`max_context_chars`)."""
    max_context_chars: int | None = Field(None, ge=256)
    """context=head_tail: longest history in characters; None: cut only what the policy refuses."""
    max_reply_tokens: int | None = Field(None, ge=1)
    """Tokens that the policy may sample in one episode; None for no bound but the turns."""

    @model_validator(mode="after")
    def _has_a_program(self) -> Self:
        given = [name for name in ("name", "command") if getattr(self, name)]
        fits = {"cli": len(given) == 1, "harness": given == ["command"]}.get(self.type, not given)
        if not fits or (self.folder and not self.command):
            raise ValueError(
                f"got agent.type={self.type}, agent.name={self.name}, agent.command="
                f"{self.command} and agent.folder={self.folder}, expected a program (command) with "
                "type=harness, a program (command, folder) or a name with type=cli, else none"
            )
        return self

    @property
    def is_program(self) -> bool:
        """Whether a program acts, and no class of this process."""
        return self.type in ("cli", "harness")

    @model_validator(mode="before")
    @classmethod
    def _fits_its_class(cls, values: object) -> object:
        return AGENTS.with_options(values, "type", "auto")
