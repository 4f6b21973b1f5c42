"""Libraries that people call models with, unchanged from their packages, before a scripted policy.

Each is played once by its script in `sdks/`, which prints what the library made of five scenarios.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Json, JsonObject, Message, Turn
from clawrl_gym.gateway.dialects.table import dialect_of
from clawrl_gym.inference.structured import Structured
from tests.e2e.npm_packages import node
from tests.support.gateway_rig import Bench
from tests.support.locked import node_modules_of, python_of

SCRIPTS = Path(__file__).parent / "sdks"
PYTHON, JAVASCRIPT = SCRIPTS / "python", SCRIPTS / "javascript"
PYTHON_LOCK, JAVASCRIPT_LOCK = PYTHON / "requirements.txt", JAVASCRIPT / "package-lock.json"
SCENARIOS = ("chat", "stream", "tools", "streamed_tools", "structured")
PLACE = {"name": "Bern", "people": 134000, "languages": ["German", "French"]}
_TIMEOUT_S = 90


@dataclass(frozen=True, slots=True)
class Library:
    """A package in one of the dialects that it speaks."""

    package: str
    """Its name where it is published."""
    script: str
    dialect: str
    """Name of the dialect."""
    note: str = ""
    """How it is told to speak this one, where it is not its default."""
    base_path: str = ""
    """What it wants behind the address of Messages."""
    core: str = ""
    """The package that it is a provider of."""

    @property
    def is_python(self) -> bool:
        return self.script.endswith(".py")

    @property
    def name(self) -> str:
        return f"{self.package} {self.dialect}"

    @property
    def version(self) -> str:
        """As locked."""
        if self.is_python:
            lock = PYTHON_LOCK.read_text()
            found = re.search(rf"^{re.escape(self.package)}==(\S+)", lock, re.MULTILINE)
            assert found, f"{self.package} is not in the lock"
            return found[1]
        packages = json.loads(JAVASCRIPT_LOCK.read_text())["packages"]
        version = str(packages[f"node_modules/{self.package}"]["version"])
        if self.core:
            version += f", `{self.core}` {packages[f'node_modules/{self.core}']['version']}"
        return version


LIBRARIES = (
    Library("openai", "openai_sdk.py", "chat", "`chat.completions`"),
    Library("openai", "openai_sdk.py", "responses", "`responses`"),
    Library("anthropic", "anthropic_sdk.py", "messages"),
    Library("openai-agents", "agents_sdk.py", "responses"),
    Library("langchain-openai", "langchain_sdk.py", "chat"),
    Library("langchain-anthropic", "langchain_sdk.py", "messages"),
    Library("litellm", "litellm_sdk.py", "chat", "`openai/MODEL`"),
    Library("litellm", "litellm_sdk.py", "messages", "`anthropic/MODEL`"),
    Library("pydantic-ai-slim", "pydantic_ai_sdk.py", "responses", "`openai:MODEL`"),
    Library("pydantic-ai-slim", "pydantic_ai_sdk.py", "chat", "`openai-chat:MODEL`"),
    Library("pydantic-ai-slim", "pydantic_ai_sdk.py", "messages", "`anthropic:MODEL`"),
    Library("smolagents", "smolagents_sdk.py", "chat"),
    Library("openai", "openai_sdk.mjs", "chat", "`chat.completions`"),
    Library("openai", "openai_sdk.mjs", "responses", "`responses`"),
    Library("@anthropic-ai/sdk", "anthropic_sdk.mjs", "messages"),
    Library("@openai/agents", "agents_sdk.mjs", "responses"),
    Library("@ai-sdk/openai", "ai_sdk.mjs", "responses", core="ai"),
    Library("@ai-sdk/anthropic", "ai_sdk.mjs", "messages", base_path="/v1", core="ai"),
    Library("@ai-sdk/openai-compatible", "ai_sdk.mjs", "chat", core="ai"),
)
CODE_AGENT = Library("smolagents", "smolagents_code.py", "chat", "`CodeAgent`")
"""Its steps are no calls."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the gateway recorded of one session."""

    turns: list[Turn]
    next_states: list[list[Message] | None]


@dataclass(frozen=True, slots=True)
class Played:
    """What a library made of the scenarios, and what the gateway saw of it."""

    results: Mapping[str, JsonObject]
    """By scenario, as the script printed them."""
    conversations: list[Conversation]
    dialects: set[str]
    unread: set[str]
    """Names of what it sends without effect."""
    strangers: list[str]
    """What it asked of anybody but the gateway."""
    form: Structured | None
    """The form that the last reply was sampled in."""

    def works(self, scenario: str) -> bool:
        """Whether the library made of it what it should."""
        result = self.results[scenario]
        if scenario == "stream":  # in pieces, of whatever length
            pieces = cast(list[str], result.get("pieces") or [])
            return len(pieces) > 1 and "".join(pieces) == EXPECTED["stream"]["text"]
        if "calls" in result:  # made at the same time, in whatever order
            calls = cast(list[dict[str, int]], result["calls"])
            result = {**result, "calls": sorted(calls, key=lambda call: call["a"])}
        return result == EXPECTED[scenario]

    def untrainable(self) -> Iterator[tuple[str, str]]:
        """Scenarios with turns that nothing is learned from, and the field that is why."""
        for scenario, talk in zip(SCENARIOS, self.conversations, strict=True):
            for field in sorted({turn.untrainable for turn in talk.turns} - {""}):
                yield scenario, field


ADDING = "Thought: I add them.\n<code>\nprint(add(2, 3))\nprint(add(4, 5))\n"
"""A reply in code, as the policy's stop text `</code>` leaves it."""
SUMS: list[Json] = [{"a": 2, "b": 3}, {"a": 4, "b": 5}]
EXPECTED: Mapping[str, JsonObject] = {
    "chat": {"text": "Hello there."},
    "stream": {"text": "One, two, three."},
    "tools": {"calls": SUMS, "text": "They are 5 and 9."},
    "streamed_tools": {"calls": SUMS, "text": "They are 5 and 9."},
    "structured": {"object": PLACE},
}


def calling(name: str, *arguments: Json, content: str | None = None) -> Message:
    """A reply that calls a tool once with each."""
    functions = [{"name": name, "arguments": json.dumps(one)} for one in arguments]
    reply = {
        "role": "assistant",
        "content": content,
        "reasoning_content": "A tool does it.",
        "tool_calls": [{"type": "function", "function": function} for function in functions],
    }
    return cast(Message, reply)


def script(bench: Bench) -> None:
    """Have the policy of `bench` answer the questions; it calls a tool where one is offered
    for the answer."""

    def reply(messages: list[Message]) -> Message | str:
        asked = "\n".join(text_of(message) for message in messages if message["role"] == "user")
        offered = [tool["function"]["name"] for tool in bench.policy.bodies[-1].get("tools", [])]
        if "Say hello." in asked:
            return "<thought>A greeting.</thought>Hello there."
        if "Count to three." in asked:
            return "<thought>Three numbers.</thought>One, two, three."
        if "Bern" in asked:
            return calling(offered[0], PLACE) if offered else json.dumps(PLACE)
        if not any(message["role"] == "assistant" for message in messages):
            return calling("add", *SUMS, content="I add them.") if offered else ADDING
        said = "They are 5 and 9."
        if any("<code>" in text_of(message) for message in messages):
            return f"Thought: that is all.\n<code>\nfinal_answer({said!r})\n"
        return calling("final_answer", {"answer": said}) if len(offered) > 1 else said

    bench.policy._reply = reply
    bench.policy.is_one_by_one = True  # a stream has several pieces


def install() -> None:
    """What all scripts need. Raises what is wrong where that cannot be had."""
    python_of(PYTHON_LOCK)
    node_modules_of(JAVASCRIPT_LOCK)


async def play(library: Library, folder: Path) -> Played:
    """Run the library's script against a gateway of its own."""
    command = await asyncio.to_thread(_command, library, folder)
    strangers: list[str] = []
    bench = Bench(folder / "run")
    script(bench)
    await bench.start()
    try:
        async with _outside(strangers) as proxy:
            printed = await _run(command, _environment(library, bench, proxy, folder), folder)
        conversations = [await _conversation(bench, row.id) for row in await bench.store.sessions()]
        dialects = {dialect_of(route).name for route, _ in bench.gateway.stats.answers}
        unread = set(bench.gateway._replies._named)
    finally:
        await bench.stop()
    results = [json.loads(line) for line in printed.splitlines()]
    by_scenario = {result.pop("scenario"): result for result in results}
    form = bench.policy.samplings[-1].structured
    return Played(by_scenario, conversations, dialects, unread, strangers, form)


async def _conversation(bench: Bench, session: str) -> Conversation:
    turns = await bench.store.turns_of(session)
    states = await bench.store.next_states_of(session)
    return Conversation(turns, [states.get(turn.id or 0) for turn in turns])


def _command(library: Library, folder: Path) -> list[str]:
    """How the script is started; what it needs is installed first."""
    if library.is_python:
        return [str(python_of(PYTHON_LOCK)), str(PYTHON / library.script), library.dialect]
    scripts = folder / "scripts"  # node looks for packages beside the file that imports them
    shutil.copytree(JAVASCRIPT, scripts)
    (scripts / "node_modules").symlink_to(node_modules_of(JAVASCRIPT_LOCK))
    return [node(), str(scripts / library.script), library.dialect]


def _environment(library: Library, bench: Bench, proxy: str, folder: Path) -> dict[str, str]:
    """All that a script knows. What it would ask of anybody else goes to the proxy."""
    return {
        "PATH": os.defpath,
        "HOME": str(folder),
        "OPENAI_BASE_URL": f"{bench.url}/v1",
        "OPENAI_API_KEY": bench.gateway.key,
        "ANTHROPIC_BASE_URL": bench.url + library.base_path,
        "ANTHROPIC_API_KEY": bench.gateway.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a list of prices
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
        "NO_PROXY": "127.0.0.1",
        "NODE_USE_ENV_PROXY": "1",
    }


@asynccontextmanager
async def _outside(asked: list[str]) -> AsyncIterator[str]:
    """A proxy that carries nothing and notes what it was asked for."""

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode(errors="replace").strip())
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _run(command: list[str], env: dict[str, str], folder: Path) -> str:
    """What it printed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, env=env, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{command}:\n{err.decode(errors='replace')[-3000:]}"
    return out.decode()
