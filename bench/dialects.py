"""What each dialect costs the gateway, as a ratio to chat completions.

    python bench/dialects.py [--rounds 7] [--requests 60]

The same conversation with calls of tools, as an agent holds it, is sent in each dialect in turn,
whole and streamed, to a gateway whose policy takes no time. Printed is the CPU of the gateway's
process for a request (the client is a process of its own), the median over the rounds, and the
median ratio within a round. `nothing but chat` is chat against chat: the noise of the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.gateway import SleepingPolicy
from clawrl_gym.config import GatewayConfig, SamplingConfig
from clawrl_gym.core.processes.garbage import collected_by_the_clock
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.store import Store

LIMIT_S = 600
STEPS = 20
"""Calls of tools in the conversation."""
TOOLS = 12
REPLY_TOKENS = 48
OUTPUT = "total 24\n-rw-r--r-- 1 user user 512 notes.txt\n" * 8
SYSTEM = "You are a careful assistant that works in a shell. " * 40
SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "What to run."}},
    "required": ["command"],
}
NAMES = [f"tool_{number}" for number in range(TOOLS)]


def chat() -> tuple[str, Any]:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    for step in range(STEPS):
        function = {"name": NAMES[0], "arguments": json.dumps({"command": f"ls {step}"})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": f"Step {step}, please."},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{step}", "content": OUTPUT},
            {"role": "assistant", "content": "It is done."},
        ]
    messages.append({"role": "user", "content": "And now?"})
    tools = [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in NAMES]
    return "chat/completions", {"messages": messages, "tools": tools, "max_tokens": REPLY_TOKENS}


def messages() -> tuple[str, Any]:
    said: list[Any] = []
    for step in range(STEPS):
        use = {
            "type": "tool_use", "id": f"call_{step}", "name": NAMES[0],
            "input": {"command": f"ls {step}"},
        }  # fmt: skip
        result = {"type": "tool_result", "tool_use_id": f"call_{step}", "content": OUTPUT}
        said += [
            {"role": "user", "content": f"Step {step}, please."},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "It is done."},
        ]
    said.append({"role": "user", "content": "And now?"})
    tools = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
    body = {"system": SYSTEM, "messages": said, "tools": tools, "max_tokens": REPLY_TOKENS}
    return "messages", {"model": "policy", **body}


def responses() -> tuple[str, Any]:
    items: list[Any] = []
    for step in range(STEPS):
        arguments = json.dumps({"command": f"ls {step}"})
        items += [
            {"role": "user", "content": f"Step {step}, please."},
            {"type": "message", "role": "assistant",
             "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": f"call_{step}", "name": NAMES[0],
             "arguments": arguments},
            {"type": "function_call_output", "call_id": f"call_{step}", "output": OUTPUT},
            {"type": "message", "role": "assistant",
             "content": [{"type": "output_text", "text": "It is done."}]},
        ]  # fmt: skip
    items.append({"role": "user", "content": "And now?"})
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]
    body = {"instructions": SYSTEM, "input": items, "tools": tools}
    return "responses", {**body, "max_output_tokens": REPLY_TOKENS}


DIALECTS = {"nothing but chat": chat, "messages": messages, "responses": responses}


async def ask(url: str, key: str, dialect: str, requests: int, streamed: bool, tag: str) -> None:
    """The load: one request after another, each in a session of its own."""
    route, body = (chat if dialect == "chat" else DIALECTS[dialect])()
    body |= {"stream": streamed, "user": tag} if dialect != "messages" else {"stream": streamed}
    headers = {"Authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout) as http:
        for number in range(requests):
            path = f"/sessions/{tag}-{number}/v1/{route}"
            async with http.post(path, json=body) as answer:
                answer.raise_for_status()
                await answer.read()


async def cost_ms(
    url: str, key: str, dialect: str, requests: int, *, streamed: bool, tag: str
) -> float:
    """CPU of this process for a request."""
    command = [sys.executable, __file__, "--client", url, key, dialect, tag]
    command += ["--requests", str(requests), *(["--streamed"] if streamed else [])]
    began_s = time.process_time()
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    async with asyncio.timeout(LIMIT_S):
        if await child.wait():
            raise SystemExit("the client failed")
    return (time.process_time() - began_s) / requests * 1e3


async def measure(folder: Path, rounds: int, requests: int) -> None:
    store = Store.open(folder)
    fleet = Fleet([SleepingPolicy(0.0)])
    gateway = Gateway(GatewayConfig(), SamplingConfig(), store, fleet, "policy")
    url = await gateway.start()
    names = ["chat", *DIALECTS]
    costs: dict[tuple[str, bool], list[float]] = {
        (name, streamed): [] for name in names for streamed in (False, True)
    }
    async with collected_by_the_clock():  # as in every run
        for number in range(rounds + 1):
            for name, streamed in costs:
                tag = f"{number}{streamed}{name}".replace(" ", "-")
                spent_ms = await cost_ms(
                    url, gateway.key, name, requests, streamed=streamed, tag=tag
                )
                if number:  # the first round warms up
                    costs[name, streamed].append(spent_ms)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    await gateway.stop()
    await store.close()
    for streamed in (False, True):
        base = costs["chat", streamed]
        print(f"{'streamed' if streamed else 'whole':9s}chat              "
              f"{statistics.median(base):6.2f} ms a request")  # fmt: skip
        for name in DIALECTS:
            spent = costs[name, streamed]
            ratios = [mine / its for mine, its in zip(spent, base, strict=True)]
            print(f"         {name:17s} {statistics.median(spent):6.2f} ms, "
                  f"{statistics.median(ratios):.2f} times chat "
                  f"({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--streamed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        url, key, dialect, tag = options.client
        asyncio.run(ask(url, key, dialect, options.requests, options.streamed, tag))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), options.rounds, options.requests))


if __name__ == "__main__":
    main()
