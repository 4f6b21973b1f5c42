"""Pictures at the gateway's border: what is taken, what is refused, what stays on the disk."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clawrl_gym.config import ImagesConfig, LiveConfig
from clawrl_gym.core.errors import ContextError
from clawrl_gym.core.pictures import pictures_of, text_of
from clawrl_gym.core.types import ImagePart
from tests.support.gateway_rig import Bench
from tests.support.narrow import parts, url_of_part
from tests.support.tiny_vision import picture, said, shown

RED, BLUE = picture("red"), picture("blue", kind="PNG")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def look(text: str, *pictures: bytes) -> Any:
    kinds = {True: "image/png", False: "image/jpeg"}
    parts = [shown(data, kinds[data.startswith(b"\x89PNG")]) for data in pictures]
    return {"role": "user", "content": [said(text), *parts]}


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    bench.images = ImagesConfig(max_count=3, max_mb=0.05, max_pixels=20_000)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.stop()


def files(bench: Bench) -> set[str]:
    return {path.name for path in (bench.folder / "images").glob("*")}


async def test_a_picture_is_kept_once_as_a_file_and_named_by_its_hash(bench: Bench) -> None:
    messages = [look("what is this", RED)]
    messages.append(await bench.say(messages))
    messages.append(look("and this", BLUE, RED))
    await bench.say(messages)
    first, second = await bench.store.turns_of("s1")
    assert files(bench) == {f"{digest(RED)}.jpg", f"{digest(BLUE)}.png"}
    assert (bench.folder / "images" / f"{digest(RED)}.jpg").read_bytes() == RED
    assert pictures_of(first.messages) == (digest(RED),)
    assert pictures_of(second.messages) == (digest(RED), digest(BLUE), digest(RED))
    assert text_of(second.messages[2]) == "and this\n(picture)\n(picture)"
    assert (await bench.store.next_states_of("s1"))[first.id or 0] == [second.messages[2]]
    log = (bench.folder / "conversations.jsonl").read_text()
    assert f"sha256:{digest(BLUE)}" in log
    assert "base64" not in log


async def test_a_session_is_found_by_a_history_with_pictures(bench: Bench) -> None:
    path = "/v1/chat/completions"
    ids = []
    for data in (RED, BLUE):
        messages = [look("the same words", data)]
        _, answer, _ = await bench.post(path, {"model": "tiny", "messages": messages})
        messages += [answer["choices"][0]["message"], look("more")]
        _, again, _ = await bench.post(path, {"model": "tiny", "messages": messages})
        assert again["session_id"] == answer["session_id"]
        ids.append(answer["session_id"])
    assert ids[0] != ids[1]


async def test_pictures_in_tool_results_are_taken(bench: Bench) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = look("", RED) | {"role": "tool", "tool_call_id": "1"}
    messages: list[Any] = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        result,
    ]
    await bench.say(messages)
    (turn,) = await bench.store.turns_of("s1")
    assert pictures_of(turn.messages) == (digest(RED),)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://example.org/cat.png", "nothing is fetched"),
        ("file:///etc/passwd", "nothing is fetched"),
        ("sha256:" + "0" * 64, "got something else"),
        ("data:image/svg+xml;base64,PHN2Zy8+", "got 'image/svg\\+xml'"),
        ("data:image/png;base64,@@@@", "not base64"),
        ("data:image/png;base64,aGVsbG8=", "cannot be read"),
        (shown(RED[: len(RED) // 2])["image_url"]["url"], "cannot be read"),
        (shown(picture("red", (400, 400)))["image_url"]["url"], "400x400 pixels"),
        ("data:image/png;base64," + "A" * 80_000, "at most 0.05 MB"),
        (shown(picture("red", kind="GIF"), "image/png")["image_url"]["url"], "cannot be read"),
    ],
)
async def test_what_is_no_picture_is_refused_by_name(bench: Bench, url: str, says: str) -> None:
    part: ImagePart = {"type": "image_url", "image_url": {"url": url}}
    status, answer, _ = await bench.chat([{"role": "user", "content": [said("x"), part]}])
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert re.search(says, answer["error"]["message"]), answer
    assert answer["error"]["message"].startswith("messages.0.content.1: ")
    assert files(bench) == set()


async def test_too_many_pictures_and_pictures_of_others_are_refused(bench: Bench) -> None:
    status, answer, _ = await bench.chat([look("x", RED, RED, RED, RED)])
    assert status == 400
    assert "got 4 pictures, expected at most 3" in answer["error"]["message"]
    status, answer, _ = await bench.chat([look("x", RED) | {"role": "assistant"}, look("y")])
    assert status == 400
    assert "got a picture of 'assistant'" in answer["error"]["message"]
    assert files(bench) == set()


async def test_a_refused_request_leaves_no_picture_behind(bench: Bench) -> None:
    bench.policy.refusal = ContextError("9 tokens, the maximum context length is 4")
    status, answer, _ = await bench.chat([look("x", RED)])
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    bad: ImagePart = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    status, _, _ = await bench.chat([look("x", BLUE), {"role": "user", "content": [bad]}])
    assert status == 400
    assert files(bench) == set()


async def test_deleting_a_session_takes_the_pictures_that_no_other_shows(bench: Bench) -> None:
    await bench.say([look("x", RED, BLUE)], "one")
    await bench.say([look("y", RED)], "other")
    assert (await bench.ask("DELETE", "/v1/sessions/one"))[0] == 200
    assert files(bench) == {f"{digest(RED)}.jpg"}
    assert (await bench.ask("DELETE", "/v1/sessions/other"))[0] == 200
    assert files(bench) == set()


async def test_pictures_that_a_kill_left_are_gone_at_the_next_start(bench: Bench) -> None:
    await bench.say([look("x", RED)])
    bench.store.pictures.add(BLUE, "png")
    await bench.restart()
    assert files(bench) == {f"{digest(RED)}.jpg"}


async def test_the_last_state_of_an_episode_may_hold_pictures(bench: Bench) -> None:
    await bench.say([look("x")], "e")
    status, _, _ = await bench.post("/sessions/e/end", {"next_state": [look("done", RED)]})
    (turn,) = await bench.store.turns_of("e")
    state = await bench.store.next_state_of(turn.id or 0)
    assert status == 200
    assert state is not None
    assert pictures_of(state) == (digest(RED),)
    assert files(bench) == {f"{digest(RED)}.jpg"}


async def test_an_unrecorded_run_has_no_picture_on_its_disk(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.live, bench.images = LiveConfig(record=False), ImagesConfig()
    await bench.start()
    try:
        await bench.say([look("x", RED)])
        folder = bench.store.pictures.folder
        assert [path.read_bytes() for path in folder.iterdir()] == [RED]
        assert not list(tmp_path.rglob("*.jpg"))  # noqa: ASYNC240 (a test)
        assert not folder.is_relative_to(tmp_path)
    finally:
        await bench.stop()
    assert not folder.exists()


async def test_a_policy_that_reads_text_only_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    try:
        status, answer, _ = await bench.chat([look("x", RED)])
        assert status == 400
        assert "this policy reads text only" in answer["error"]["message"]
        assert (await bench.chat([look("only text")]))[0] == 200
    finally:
        await bench.stop()


async def test_the_policy_gets_the_bytes_that_the_client_sent(bench: Bench) -> None:
    await bench.say([look("x", RED, BLUE)])
    (body, *_) = bench.policy.bodies
    (message,) = bench.store.pictures.inline(body["messages"])
    urls = [url_of_part(part) for part in parts(message["content"])[1:]]
    assert urls == [shown(RED)["image_url"]["url"], shown(BLUE, "image/png")["image_url"]["url"]]
    assert base64.b64encode(RED).decode() not in json.dumps(body)
