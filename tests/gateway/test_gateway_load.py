"""What one client's large bodies and many requests cost the others: nothing that can be helped."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import GatewayConfig, ImagesConfig, KindRule, LiveConfig
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import Message
from clawrl_gym.dialogue.graph import plain_text, request_digest
from clawrl_gym.dialogue.prompts import HistoryRule
from clawrl_gym.gateway.admission.shares import Shares
from clawrl_gym.gateway.bodies.bodies import LARGE_BODY_BYTES, BodyLimit, BodyReader
from clawrl_gym.gateway.bodies.reading import BYTES_PER_TOKEN, RequestReader, Sender
from clawrl_gym.gateway.wire.identify import WINDOW, RequestRules, searched
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store.users import Users
from tests.support.gateway_rig import Bench, user
from tests.support.waiting import until

ANNA = Sender("anna")
LONG = "word " * (LARGE_BODY_BYTES // 5)
CONTEXT = 2048
PICTURES = ImagesConfig(max_count=2, max_mb=3.0)


# Limits.


@pytest.mark.parametrize(
    ("config", "context", "images", "most_bytes", "of_context"),
    [
        (GatewayConfig(), None, None, 16 * 2**20, False),
        (GatewayConfig(), CONTEXT, None, 2**20 + 32 * CONTEXT, True),
        (GatewayConfig(), 10_240, None, 2**20 + 32 * 10_240, True),
        (GatewayConfig(), CONTEXT, PICTURES, 9 * 2**20 + 32 * CONTEXT, True),
        (GatewayConfig(), 2**20, None, 16 * 2**20, False),
        (GatewayConfig(max_body_mb=0.5), CONTEXT, None, 2**19, False),
    ],
)
def test_the_limit_of_a_body_is_derived_from_the_context(
    config: GatewayConfig,
    context: int | None,
    images: ImagesConfig | None,
    most_bytes: int,
    of_context: bool,
) -> None:
    limit = BodyLimit.of(config, context, images)
    assert limit.most_bytes == most_bytes
    refusal = limit.refusal()
    assert refusal.status == 413
    assert refusal.code == ("context_length_exceeded" if of_context else "body_too_large")
    assert ("policy.max_model_len" in str(refusal)) == of_context


async def refused_unread(bench: Bench, raw: bytes, chunked: bool) -> dict[str, Any]:
    async def pieces() -> Any:
        for start in range(0, len(raw), 2**16):
            yield raw[start : start + 2**16]

    body = pieces() if chunked else io.BytesIO(raw)
    async with bench.http.post("/v1/chat/completions", data=body) as answer:
        assert answer.status == 413
        error: dict[str, Any] = (await answer.json())["error"]
        return error


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_before_it_is_parsed(
    tmp_path: Path, chunked: bool
) -> None:
    """It is no JSON, which nobody notices."""
    bench = Bench(tmp_path)
    bench.history = HistoryRule(context=CONTEXT)
    await bench.start()
    error = await refused_unread(bench, b"{" * (2**20 + 32 * CONTEXT + 1), chunked)
    assert error["code"] == "context_length_exceeded"
    assert "2048 tokens (policy.max_model_len)" in error["message"]
    await bench.stop()


@pytest.mark.parametrize(
    "message",
    [
        user("x" * (BYTES_PER_TOKEN * CONTEXT + 1)),
        user("\u4e2d" * (BYTES_PER_TOKEN * CONTEXT + 1)),
        {"role": "user", "content": [{"type": "text", "text": "a b " * 20_000}]},
        {"role": "system", "content": " " * 70_000},
        {"role": "tool", "tool_call_id": "c", "content": "line\n" * 20_000},
    ],
)
async def test_a_text_that_can_never_fit_asks_no_policy(tmp_path: Path, message: Any) -> None:
    bench = Bench(tmp_path)
    bench.history = HistoryRule(context=CONTEXT)
    await bench.start()
    status, answer, _ = await bench.chat([message])
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert bench.policy.bodies == []
    assert await bench.store.session("s1") is None, "nothing of it is recorded"
    await bench.stop()


async def test_a_long_text_that_may_fit_reaches_the_policy(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.history = HistoryRule(context=CONTEXT)
    await bench.start()
    assert (await bench.chat([user("x" * (BYTES_PER_TOKEN * CONTEXT - 10))]))[0] == 200
    await bench.stop()


# Where bodies are read.


CHATS: list[dict[str, Any]] = [
    {"messages": [user(LONG)]},
    {"messages": [user(LONG), {"role": "assistant", "content": "ok"}, user("go on")]},
    {"messages": [{"role": "system", "content": LONG}, user("hi")], "stream": True},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "part"}] * 4000}]},
    {"messages": [user("hi")], "tools": [
        {"type": "function", "function": {"name": f"f{n}", "parameters": {"a": LONG[:200]}}}
        for n in range(400)]},
    {"messages": [user("hi")], "metadata": {"session_id": "m1", "rest": [1] * 60_000}},
    {"messages": [user(LONG)], "session_id": "b1", "user": "otto", "session_done": True},
    {"messages": [user(LONG)], "turn_type": "side"},
    {"messages": [user(LONG)], "temperature": 0.1, "max_tokens": 7, "stop": ["x"]},
]  # fmt: skip


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    rig = Bench(tmp_path)
    await rig.start()
    yield rig
    await rig.stop()


@pytest.fixture
async def large_reader() -> AsyncIterator[BodyReader]:
    reader = BodyReader(LiveConfig(), None)
    yield reader
    await reader.close()


async def test_a_large_body_says_the_same_read_in_another_process(large_reader: BodyReader) -> None:
    for chat in CHATS:
        raw = json.dumps(chat).encode()
        assert len(raw) > LARGE_BODY_BYTES
        there = await large_reader.request("chat", raw, ANNA)
        assert has_process(large_reader), "it was read elsewhere"
        assert there == RequestReader(LiveConfig()).request("chat", raw, ANNA)


async def test_a_large_completion_says_the_same_read_in_another_process(
    large_reader: BodyReader,
) -> None:
    for prompt in (LONG, [7] * 40_000):
        raw = json.dumps({"prompt": prompt}).encode()
        there = await large_reader.request("completions", raw, ANNA)
        assert there == RequestReader(LiveConfig()).request("completions", raw, ANNA)
        assert there.reading is not None
        assert (there.reading.kind, there.reading.rule) == ("side", "completion")


def has_process(reader: BodyReader) -> bool:
    return reader._process._process is not None


async def test_a_small_body_is_read_here(large_reader: BodyReader) -> None:
    await large_reader.request("chat", json.dumps({"messages": [user("hi")]}).encode(), ANNA)
    assert not has_process(large_reader)


WRONG = [
    b"{" * LARGE_BODY_BYTES,
    b"[" * LARGE_BODY_BYTES,
    b"\xff" * LARGE_BODY_BYTES,
    b" " * LARGE_BODY_BYTES,
    json.dumps({"messages": [{"role": "user", "content": 3}] * 9000}).encode(),
    json.dumps({"messages": [{"role": "nobody"}] * 9000}).encode(),
    json.dumps({"messages": [user(LONG)], "n": 2}).encode(),
    json.dumps({"messages": LONG}).encode(),
    json.dumps([LONG]).encode(),
]


async def test_a_large_wrong_body_is_refused_alike_in_another_process(
    large_reader: BodyReader,
) -> None:
    for raw in WRONG:
        with pytest.raises(Refusal) as here:
            RequestReader(LiveConfig()).request("chat", raw, ANNA)
        with pytest.raises(Refusal) as there:
            await large_reader.request("chat", raw, ANNA)
        for name in ("status", "code", "param"):
            assert getattr(there.value, name) == getattr(here.value, name)
        assert str(there.value) == str(here.value)


async def test_a_client_that_leaves_does_not_give_its_answer_to_the_next(
    large_reader: BodyReader,
) -> None:
    first = asyncio.create_task(large_reader.request("chat", json.dumps(CHATS[0]).encode(), ANNA))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    raw = json.dumps(CHATS[1]).encode()
    assert await large_reader.request("chat", raw, ANNA) == RequestReader(LiveConfig()).request(
        "chat", raw, ANNA
    )


async def test_a_process_that_died_is_replaced(large_reader: BodyReader) -> None:
    raw = json.dumps(CHATS[0]).encode()
    await large_reader.request("chat", raw, ANNA)
    process = large_reader._process._process
    assert process is not None
    process.kill()
    await process.wait()
    assert (await large_reader.request("chat", raw, ANNA)).messages == CHATS[0]["messages"]


async def test_the_process_ends_with_its_gateway(bench: Bench) -> None:
    assert (await bench.chat([user(LONG)]))[0] == 200
    process = bench.gateway._admission.bodies._process._process
    assert process is not None
    await bench.gateway.stop()
    assert process.returncode == 0


async def test_one_users_large_bodies_leave_turns_to_others(large_reader: BodyReader) -> None:
    raw = json.dumps(CHATS[0]).encode()
    await large_reader.request("chat", raw, ANNA)
    order: list[str] = []

    async def read(name: str) -> None:
        await large_reader.request("chat", raw, Sender(name))
        order.append(name)

    await asyncio.gather(*(read(name) for name in ["anna"] * 6 + ["ben"]))
    assert order.index("ben") <= 1


# What is searched.


def test_nothing_is_looked_for_between_the_ends_of_a_long_text() -> None:
    middle = "secret " * 100_000
    text = f"head{middle}tail"
    looked_in = searched(text)
    assert len(looked_in) <= 2 * WINDOW + 8
    assert looked_in.startswith("head")
    assert looked_in.endswith("tail")
    assert searched("short") == "short"


@pytest.mark.parametrize("length", [0, 10, WINDOW - 1, WINDOW, 2 * WINDOW, 2 * WINDOW + 1, 10**6])
def test_kinds_are_told_at_both_ends_of_a_text_of_any_length(length: int) -> None:
    rules = [
        KindRule(name="begins", last_user=r"\AStart of it"),
        KindRule(name="ends", last_user=r"End of it\Z"),
    ]
    known = RequestRules(LiveConfig(kinds=rules))
    said = {
        "begins": f"Start of it{'x' * length}",
        "ends": f"{'x' * length}End of it",
        "": f"x{'x' * length}Start of it, End of it{'x' * length}x",
    }
    for rule, text in said.items():
        assert known.read([user(text)], {}, "", {}).rule == rule


@pytest.mark.parametrize("length", [0, 10, WINDOW, 2 * WINDOW, 10**6])
def test_blocks_that_begin_at_either_end_are_left_out_whatever_their_length(length: int) -> None:
    known = RequestRules(LiveConfig(transient=["<<A>>.*?<<B>>"])).transient
    words, block, last = "w" * length, f"<<A>>{'x' * length}<<B>>", "<<A>>x<<B>>"
    for text in (f"{block}{words}", f"{words}{last}", f"{block}{words}{last}"):
        (message,) = known.removed_from([user(f"{text}said")])
        assert message["content"] == f"{words}said"


@pytest.mark.parametrize("size", [1, 2**16 - 1, 2**16, 2**16 + 1, 200_000])
@pytest.mark.parametrize("unit", ["a", "a ", " a", "  ", "\u2003x\n\n", "word\t", "\x1c"])
def test_white_space_is_one_space_in_texts_of_any_length(size: int, unit: str) -> None:
    text = (unit * (size // len(unit) + 1))[:size]
    assert plain_text(user(text)) == " ".join(text.split())


def test_the_digest_of_a_request_is_that_of_its_json() -> None:
    messages: list[Message] = [user("hi"), {"role": "assistant", "content": None}]
    fields = {"tools": [{"b": 1, "a": 2.5}], "model": "é"}
    whole = json.dumps(["main", messages, fields], sort_keys=True).encode()
    assert request_digest("main", messages, fields) == blake2b(whole, digest_size=16).digest()
    assert request_digest("main", [], {}) == blake2b(b'["main", [], {}]', digest_size=16).digest()


# Shares.


async def test_a_user_has_no_more_than_their_share_at_the_policy_and_others_go_on() -> None:
    shares, order = Shares(2), []
    gates = {name: asyncio.Event() for name in ("anna", "ben")}

    async def ask(name: str, number: int) -> None:
        async with shares.running(name):
            order.append((name, number))
            await gates[name].wait()

    asking = [asyncio.create_task(ask("anna", number)) for number in range(64)]
    await asyncio.sleep(0)
    asking.append(asyncio.create_task(ask("ben", 0)))
    await asyncio.sleep(0)
    assert order == [("anna", 0), ("anna", 1), ("ben", 0)]
    gates["ben"].set()
    gates["anna"].set()
    await asyncio.gather(*asking)
    assert [number for name, number in order if name == "anna"] == list(range(64))
    assert not shares._shares


async def test_a_request_that_leaves_gives_its_place_away() -> None:
    shares = Shares(1)
    entered: list[int] = []

    async def ask(number: int) -> None:
        async with shares.running("anna"):
            entered.append(number)
            await asyncio.sleep(60)

    asking = [asyncio.create_task(ask(number)) for number in range(3)]
    await asyncio.sleep(0)
    for leaving in (1, 0):
        asking[leaving].cancel()
        await asyncio.wait([asking[leaving]])
    await asyncio.sleep(0)
    assert entered == [0, 2]
    asking[2].cancel()
    await asyncio.wait([asking[2]])
    assert not shares._shares


async def test_the_owner_waits_for_no_share() -> None:
    """Rollouts are the owner's."""
    shares, inside = Shares(1), 0
    async with AsyncExitStack() as stack:
        for _ in range(64):
            await stack.enter_async_context(shares.running(OWNER))
            inside += 1
    assert inside == 64


async def test_another_users_request_overtakes_those_that_wait(bench: Bench) -> None:
    bench.config = bench.config.model_copy(update={"max_running_per_user": 2})
    bench.users = Users(bench.folder)
    keys = {name: bench.users.add(name) for name in ("anna", "ben")}
    await bench.restart()
    bench.policy.delay_s = 0.2

    async def ask(name: str, number: int) -> str:
        headers = {"Authorization": f"Bearer {keys[name]}", "X-Session-Id": f"s{number}"}
        body = {"messages": [user(f"{name} {number}")]}
        path = "/v1/chat/completions"
        async with bench.http.post(path, json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        return name

    asking = [asyncio.create_task(ask("anna", number)) for number in range(8)]
    await until(lambda: len(bench.policy.bodies) == 2)
    asking.append(asyncio.create_task(ask("ben", 0)))
    await asyncio.gather(*asking)
    asked = [str(body["messages"][0]["content"]).split()[0] for body in bench.policy.bodies]
    assert asked.index("ben") == 2
