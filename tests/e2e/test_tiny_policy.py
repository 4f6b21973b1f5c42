"""The shipped tiny policy in a real vLLM: OpenClaw's recorded requests, tools, problems."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import PolicyConfig
from clawrl_gym.envs.conversation.tasks import make_task
from clawrl_gym.policy.client import PolicyClient, Sampling
from clawrl_gym.policy.server import PolicyServer
from clawrl_gym.policy.tiny import model_dir
from clawrl_gym.types import Message

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

RECORDED = Path(__file__).parents[1] / "fixtures" / "openclaw"
GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=96)


class Policy:
    """The served policy, asked from synchronous tests."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        config = PolicyConfig(max_model_len=2048, kv_cache_gb=0.125, start_timeout_s=240)
        self.server = PolicyServer(
            config, model_dir(), folder / "serving", folder / "vllm.log", lambda _: None
        )
        self.loop.run_until_complete(self.server.start())

    def replies(self, bodies: list[dict[str, Any]]) -> list[Message]:
        async def one(client: PolicyClient, body: dict[str, Any]) -> Message:
            asked = {key: body[key] for key in ("messages", "tools") if body.get(key)}
            ids = await client.render(asked)
            return await client.parse(asked, await client.generate(ids, GREEDY, version=0))

        async def go() -> list[Message]:
            server = self.server
            client = PolicyClient(server.base_url, server.key, server.model_name, 60.0, 16)
            try:
                return await asyncio.gather(*(one(client, body) for body in bodies))
            finally:
                await client.close()

        return self.loop.run_until_complete(go())

    def stop(self) -> None:
        self.loop.run_until_complete(self.server.stop())
        self.loop.close()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Policy]:
    policy = Policy(tmp_path_factory.mktemp("policy"))
    yield policy
    policy.stop()


def recorded(name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())["body"]
    return body


def calls_of(reply: Message) -> list[tuple[str, dict[str, str]]]:
    functions = [call["function"] for call in reply.get("tool_calls") or []]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def test_openclaws_recorded_requests_are_answered_with_the_calls_that_they_ask_for(
    policy: Policy,
) -> None:
    names = ("tools/1", "tools/3", "tools/6", "parallel/1", "retry_tools/1")
    reading, writing, both, parallel, careful = policy.replies([recorded(name) for name in names])
    assert calls_of(reading) == [("read", {"path": "shopping.txt"})]
    assert calls_of(writing) == [("write", {"path": "eggs.txt", "content": "Eggs"})]
    assert calls_of(both) == [("read", {"path": "shopping.txt"}), ("read", {"path": "eggs.txt"})]
    assert calls_of(parallel) == [
        ("read", {"path": "shopping.txt"}),
        ("read", {"path": "todo.txt"}),
    ]
    assert calls_of(careful) == [("read", {"path": "todo.txt"})]


def test_openclaws_other_requests_get_a_polite_sentence_and_no_call(policy: Policy) -> None:
    names = ("tools/2", "tools/4", "tools/8", "heartbeat/2", "reset/2", "retry/3", "side/title")
    replies = policy.replies([recorded(name) for name in names])
    result, written, thanked, polled, *others = (str(reply["content"]) for reply in replies)
    assert "Milk" in result
    assert written == "Done."
    assert thanked == "You are welcome!"
    assert polled == "NO_REPLY"
    assert not any(reply.get("tool_calls") for reply in replies)
    assert all(3 < len(other) < 100 for other in others)


@pytest.mark.parametrize("persona", ["student", "teacher", "engineer", "child", "clerk"])
def test_problems_are_solved_with_and_without_openclaw_around_them(
    policy: Policy, persona: str
) -> None:
    tasks = [make_task(f"{persona}-ask-heldout-{number:06d}") for number in range(16)]
    openclaw = recorded("conversation/1")
    for system, tools in (([], []), (openclaw["messages"][:1], openclaw["tools"])):
        replies = policy.replies(
            [
                {
                    "messages": [*system, {"role": "user", "content": task.opening}],
                    "tools": tools,
                }
                for task in tasks
            ]
        )
        right = [
            task.persona.right(str(reply["content"]), task.problem)
            for task, reply in zip(tasks, replies, strict=True)
        ]
        assert sum(right) >= 12
