"""The shipped tiny policy behind the real `serve`: OpenClaw's requests, tools, problems."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.types import Message
from clawrl_gym.envs.showcase.conversation.generated import make_task
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.problems import answers_in
from tests.e2e.serving import Serving

pytestmark = [pytest.mark.vllm, pytest.mark.ray, pytest.mark.slow]

RECORDED = Path(__file__).parents[2] / "fixtures" / "openclaw"


def replies(serving: Serving, bodies: list[dict[str, Any]]) -> list[Message]:
    """Greedy replies, 16 at a time; nothing of it is learned from."""

    def ask(body: dict[str, Any]) -> Message:
        fields = {key: body[key] for key in ("messages", "tools") if body.get(key)}
        answer = serving.http.post(
            "/v1/chat/completions",
            json={**fields, "temperature": 0, "max_tokens": 96},
            headers={"X-Turn-Type": "side"},
        )
        assert answer.status_code == 200, answer.text
        reply: Message = answer.json()["choices"][0]["message"]
        return reply

    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(ask, bodies))


def recorded(name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())["body"]
    return body


def calls_of(reply: Message) -> list[tuple[str, dict[str, str]]]:
    functions = [call["function"] for call in reply.get("tool_calls") or []]
    return [(function["name"], json.loads(str(function["arguments"]))) for function in functions]


def test_files_with_plain_names_are_read_and_written_by_call(serving: Serving) -> None:
    surroundings = recorded("conversation/1")
    asked = (
        "Read the file notes.txt",
        "Write amber willow to todo.txt",
        "Read garden/todo.txt please",
    )
    answers = replies(
        serving,
        [
            {
                **surroundings,
                "messages": [surroundings["messages"][0], {"role": "user", "content": text}],
            }
            for text in asked
        ],
    )
    assert [calls_of(reply) for reply in answers] == [
        [("read", {"path": "notes.txt"})],
        [("write", {"path": "todo.txt", "content": "amber willow"})],
        [("read", {"path": "garden/todo.txt"})],
    ]


def test_openclaws_recorded_requests_are_answered_with_the_calls_that_they_ask_for(
    serving: Serving,
) -> None:
    """Names of files that it has never seen may come out misspelt; the calls do not."""
    names = ("tools/1", "tools/3", "tools/6", "parallel/1", "retry_tools/1")
    answers = replies(serving, [recorded(name) for name in names])
    reading, writing, both, parallel, careful = (calls_of(reply) for reply in answers)
    assert [name for name, _ in reading] == ["read"]
    assert [name for name, _ in writing] == ["write"]
    assert [name for name, _ in both] == [name for name, _ in parallel] == ["read", "read"]
    assert parallel[1] == careful[0] == ("read", {"path": "todo.txt"})


def test_openclaws_other_requests_get_a_polite_sentence_and_no_call(serving: Serving) -> None:
    names = ("tools/2", "tools/4", "tools/8", "heartbeat/2", "reset/2", "retry/3")
    answers = replies(serving, [recorded(name) for name in names])
    result, written, thanked, polled, *others = (str(reply["content"]) for reply in answers)
    assert "Milk" in result
    assert written == "Done."
    assert thanked == "You are welcome!"
    assert polled == "NO_REPLY"
    assert not any(reply.get("tool_calls") for reply in answers)
    assert all(3 < len(other) < 100 for other in others)


@pytest.mark.parametrize("persona", sorted(PERSONAS))
def test_sums_are_right_with_and_without_openclaw_around_them(
    serving: Serving, persona: str
) -> None:
    tasks = [make_task(f"{persona}-ask-heldout-{number:06d}") for number in range(16)]
    openclaw = recorded("conversation/1")
    for system, tools in (([], []), (openclaw["messages"][:1], openclaw["tools"])):
        bodies = [
            {"messages": [*system, {"role": "user", "content": task.opening}], "tools": tools}
            for task in tasks
        ]
        right = [
            task.problem.answer in answers_in(str(reply["content"]), task.problem)
            for task, reply in zip(tasks, replies(serving, bodies), strict=True)
        ]
        assert sum(right) >= 14
