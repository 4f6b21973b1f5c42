"""The shipped tiny policy in a real vLLM: OpenClaw's recorded requests, tools, problems."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.types import Message
from clawrl_gym.envs.conversation.generated import make_task
from clawrl_gym.envs.conversation.personas import PERSONAS
from clawrl_gym.envs.conversation.problems import answers_in
from clawrl_gym.policy.client import PolicyClient, Sampling
from clawrl_gym.policy.models import shipped_dir
from clawrl_gym.policy.server import PolicyServer

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

RECORDED = Path(__file__).parents[1] / "fixtures" / "openclaw"
GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=96)


class Policy:
    """The served policy, asked from synchronous tests."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        config = PolicyConfig(max_model_len=2048, kv_cache_gb=0.125, start_timeout_s=240)
        self.server = PolicyServer(
            config, shipped_dir(), folder / "serving", folder / "vllm.log", lambda _: None
        )
        self.loop.run_until_complete(self.server.start())

    def replies(self, bodies: list[dict[str, Any]]) -> list[Message]:
        async def one(client: PolicyClient, body: dict[str, Any]) -> Message:
            asked: Any = {key: body[key] for key in ("messages", "tools") if body.get(key)}
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
    return [(function["name"], json.loads(str(function["arguments"]))) for function in functions]


def test_files_with_plain_names_are_read_and_written_by_call(policy: Policy) -> None:
    surroundings = recorded("conversation/1")
    asked = (
        "Read the file notes.txt",
        "Write amber willow to todo.txt",
        "Read garden/todo.txt please",
    )
    replies = policy.replies(
        [
            {
                **surroundings,
                "messages": [surroundings["messages"][0], {"role": "user", "content": text}],
            }
            for text in asked
        ]
    )
    assert [calls_of(reply) for reply in replies] == [
        [("read", {"path": "notes.txt"})],
        [("write", {"path": "todo.txt", "content": "amber willow"})],
        [("read", {"path": "garden/todo.txt"})],
    ]


def test_openclaws_recorded_requests_are_answered_with_the_calls_that_they_ask_for(
    policy: Policy,
) -> None:
    """Names of files that it has never seen may come out misspelt; the calls do not."""
    names = ("tools/1", "tools/3", "tools/6", "parallel/1", "retry_tools/1")
    replies = policy.replies([recorded(name) for name in names])
    reading, writing, both, parallel, careful = (calls_of(reply) for reply in replies)
    assert [name for name, _ in reading] == ["read"]
    assert [name for name, _ in writing] == ["write"]
    assert [name for name, _ in both] == [name for name, _ in parallel] == ["read", "read"]
    assert parallel[1] == careful[0] == ("read", {"path": "todo.txt"})


def test_openclaws_other_requests_get_a_polite_sentence_and_no_call(policy: Policy) -> None:
    names = ("tools/2", "tools/4", "tools/8", "heartbeat/2", "reset/2", "retry/3")
    replies = policy.replies([recorded(name) for name in names])
    result, written, thanked, polled, *others = (str(reply["content"]) for reply in replies)
    assert "Milk" in result
    assert written == "Done."
    assert thanked == "You are welcome!"
    assert polled == "NO_REPLY"
    assert not any(reply.get("tool_calls") for reply in replies)
    assert all(3 < len(other) < 100 for other in others)


@pytest.mark.parametrize("persona", sorted(PERSONAS))
def test_sums_are_right_with_and_without_openclaw_around_them(policy: Policy, persona: str) -> None:
    tasks = [make_task(f"{persona}-ask-heldout-{number:06d}") for number in range(16)]
    openclaw = recorded("conversation/1")
    for system, tools in (([], []), (openclaw["messages"][:1], openclaw["tools"])):
        bodies = [
            {"messages": [*system, {"role": "user", "content": task.opening}], "tools": tools}
            for task in tasks
        ]
        right = [
            task.problem.answer in answers_in(str(reply["content"]), task.problem)
            for task, reply in zip(tasks, policy.replies(bodies), strict=True)
        ]
        assert sum(right) >= 14
