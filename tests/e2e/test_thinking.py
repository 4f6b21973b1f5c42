"""A policy that thinks, end to end: its thoughts are streamed, stored, matched and trained on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.store import StoreReader
from tests.e2e import runs
from tests.e2e.serving import Serving
from tests.support.tiny_models import ANSWERS, THOUGHT, make_thinking_model

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.ray, pytest.mark.timeout(900)]

WRONG = "No, that is wrong. Please do it again."


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """How a run gets the model."""
    folder = make_thinking_model(tmp_path_factory.mktemp("thinking") / "model")
    return (
        f"policy.model={folder}", "policy.reasoning_parser=qwen3", "policy.max_model_len=1024",
        "policy.kv_cache_gb=0.125", "policy.sampling.max_tokens=40", "learner.lr=1e-6",
    )  # fmt: skip


@pytest.fixture(scope="module")
def serving(
    thinking: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("serve") / "run"
    one = Serving(folder, *thinking, "judge=rule", "live.batch_turns=2")
    try:
        one.wait_for("ready: talk to")
        one.wait_for("learner: ready")
        yield one
    finally:
        one.stop()


def streamed(serving: Serving, session_id: str | None, messages: list[Any]) -> dict[str, str]:
    """What a client adds up: reasoning and content."""
    body = {"model": "policy", "messages": messages, "stream": True, "max_tokens": 40}
    headers = {"X-Session-Id": session_id} if session_id else {}
    said = {"reasoning_content": "", "content": ""}
    with serving.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    for kind in said:
                        said[kind] += choice["delta"].get(kind) or ""
    return said


def test_thoughts_are_streamed_stored_matched_and_trained_on(serving: Serving) -> None:
    asked = {"role": "user", "content": "Copy a.txt to b.txt."}
    for name in ("think-0", "think-1"):
        first = streamed(serving, name, [asked])
        assert first["reasoning_content"].strip() == THOUGHT
        answer = {"role": "assistant", "content": first["content"]}
        second = streamed(serving, name, [asked, answer, {"role": "user", "content": WRONG}])
        turns = serving.wait_until(
            lambda name=name: (turns := serving.session(name)["turns"])[0]["verdicts"] and turns,  # type: ignore[misc]
            "a verdict",
        )
        for turn, said in zip(turns, (first, second), strict=True):
            assert turn["reply"]["content"] == said["content"]
            assert turn["reply"].get("reasoning_content", "") == said["reasoning_content"]
        assert turns[0]["next_state"] == [{"role": "user", "content": WRONG}]
        assert turns[0]["verdicts"][0]["value"] == -1
    serving.wait_for("update 1:")


def test_a_stock_client_without_a_session_stays_in_its_own(serving: Serving) -> None:
    asked = {"role": "user", "content": "Say red."}
    first = streamed(serving, None, [asked])
    answer = {"role": "assistant", "content": first["content"]}
    whole = serving.http.post(
        "/v1/chat/completions",
        json={"model": "policy", "messages": [asked, answer, {"role": "user", "content": "Hello"}]},
    ).json()
    turns = serving.session(whole["session_id"])["turns"]
    assert [turn["reply"]["content"] for turn in turns] == [
        first["content"], whole["choices"][0]["message"]["content"],
    ]  # fmt: skip
    assert turns[0]["next_state"] == [{"role": "user", "content": "Hello"}]


def test_thoughts_are_sampled_and_trained_on_in_episodes(
    thinking: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    done = subprocess.run(
        runs.command(
            folder, *thinking, "env=gym", "env.target=tests.e2e.guess_env:SayEnv",
            "env.max_turns=1", "trainer.steps=1", "rollout.groups=4", "rollout.group_size=4",
            "eval.every=0",
        ),
        cwd=runs.ROOT,
        env={**os.environ, "PYTHONPATH": str(runs.ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    store = StoreReader(folder)
    try:
        samples = store.samples_of_update(1)
        turns = [turn for row in store.sessions() for turn in store.turns_of(row.id)]
    finally:
        store.close()
    thoughts = [
        turn for turn in turns if turn.reply.get("reasoning_content", "").strip() == THOUGHT
    ]
    assert len(thoughts) > len(turns) / 2
    assert any(str(turn.reply["content"]).strip(" .").split()[-1] in ANSWERS for turn in thoughts)
    assert samples
    for sample in samples:
        trained = sum(map(bool, sample.mask_T))
        assert trained > 10, "the thought is a part of what is trained on"
