"""What an agent needs to work inside a sandbox: data, the same for every agent.

Texts of a recipe (arguments, variables, files) hold names in braces that each episode fills in:

    {instruction}  the task's text; without it in the command, the text comes on standard input
    {base_url}     address of the policy with /v1, for OpenAI's APIs
    {origin}       the same without /v1, for Anthropic's
    {model}        the policy's name
    {agent}        the agent's folder, read-only
    {home}         a folder of the episode for the agent's own files
    {workdir}      the task's folder
    {node}, {python}, {arch}   programs of the installation; x64 or arm64
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

AGENT_FOLDER = "/opt/clawrl/agent"
"""Where a sandbox has the agent."""
PYTHON_FOLDER = "/opt/clawrl/python"
HOME = "/tmp/clawrl-agent"
"""Where an agent keeps its own files; emptied before each start, and gone after the episode."""
KEY = "inside-a-sandbox"
"""Key that agents have: it opens nothing, the way out of the sandbox has the real one."""

_ARCH = {"x86_64": "x64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Room:
    """Least limits of a sandbox that an agent works in, named like those of `SandboxConfig`."""

    memory_mb: int = 0
    disk_mb: int = 0
    pids: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an agent is started, what it finds, and the room that it takes."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Contents of files below {home}."""
    packages: Literal["npm", "pypi"] | None = None
    """Registry of its packages; None: nothing is installed."""
    completed_by: tuple[str, ...] = ()
    """Command that completes an installation, run once in its folder; of its names only {agent} and
    {node} are filled in."""
    room: Room = Room()


@dataclass(frozen=True, slots=True)
class Guest:
    """An agent that is there: its recipe, and the folders that sandboxes show."""

    recipe: Recipe
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Folders of this machine, by their paths inside."""
    timeout_s: float | None = None
    """Seconds after which it is ended, and what it left is graded; None: nearly all that the
    episode has."""

    def with_env(self, env: Mapping[str, str]) -> Guest:
        """With further variables, which win."""
        return replace(self, recipe=replace(self.recipe, env={**self.recipe.env, **env}))


@dataclass(frozen=True, slots=True)
class Start:
    """One start of an agent, with all names filled in."""

    script: str
    """A bash script: runs the agent, and writes its exit code when it has ended."""
    files: Mapping[str, str]
    """Contents by path."""


def start_of(recipe: Recipe, *, port: int, model: str, instruction: str, workdir: str) -> Start:
    """The start of an agent in a sandbox whose policy answers on this port."""
    origin = f"http://127.0.0.1:{port}"
    names = {
        "base_url": f"{origin}/v1", "origin": origin, "model": model, "agent": AGENT_FOLDER,
        "home": HOME, "workdir": workdir, "arch": _ARCH.get(platform.machine(), "x64"),
        "node": f"{AGENT_FOLDER}/node_modules/.bin/node", "python": f"{PYTHON_FOLDER}/bin/python3",
    }  # fmt: skip
    env = _env_of(origin, model) | {name: filled(text, names) for name, text in recipe.env.items()}
    # Filled in last: what looks like a name in a task's text is the text's own.
    asks = any("{instruction}" in part for part in recipe.command)
    command = [filled(part, {**names, "instruction": instruction}) for part in recipe.command]
    variables = [f"{name}={value}" for name, value in env.items()]
    script = (
        f"cd {shlex.quote(workdir)} || exit 125\n"
        f"env {shlex.join([*variables, *command])} <{'/dev/null' if asks else f'{HOME}/task'}\n"
        f'echo "$?" >{HOME}/exit.part && mv {HOME}/exit.part {HOME}/exit\n'
    )
    files = {f"{HOME}/{name}": filled(text, names) for name, text in recipe.files.items()}
    return Start(script, {**files, f"{HOME}/task": instruction, f"{HOME}/start": script})


def filled(text: str, names: Mapping[str, str]) -> str:
    """The text with its names filled in; other braces are its own."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _env_of(origin: str, model: str) -> dict[str, str]:
    """Variables that any program finds the policy by."""
    return {
        "OPENAI_BASE_URL": f"{origin}/v1",
        "OPENAI_API_BASE": f"{origin}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": origin,
        "ANTHROPIC_API_KEY": KEY,
        "CLAWRL_MODEL": model,
        "CLAWRL_TASK": f"{HOME}/task",
    }
