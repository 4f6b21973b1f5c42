"""A worker's one connection to the gateway: many requests on it, and what becomes of each."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from clawrl_gym.core.errors import PolicyError, ReplyTimeout, RequestError
from clawrl_gym.core.link import LARGEST_BODY_BYTES, PATH, AnswerHead, Outbox, messages_of
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from tests.support.gateway_rig import HELLO, Bench, user
from tests.support.waiting import until

CHAT = "/sessions/{id}/v1/chat/completions"


def spec_of(name: str) -> EpisodeSpec:
    return EpisodeSpec(name, 0, TaskRef("t", 0, "train"), max_turns=3, timeout_s=5.0)


@asynccontextmanager
async def linked(bench: Bench, timeout_s: float = 20.0) -> AsyncIterator[GatewayChat]:
    await bench.start()
    chat = GatewayChat(PolicyAddress(bench.url, bench.gateway.key, "tiny"), timeout_s, limit=4)
    try:
        yield chat
    finally:
        await chat.close()
        await bench.stop()


async def test_all_episodes_of_a_worker_share_one_connection(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with linked(bench) as chat:

        async def play(name: str) -> None:
            spec = spec_of(name)
            reply = (await chat.reply(spec, HELLO, [])).message
            messages = [*HELLO, reply, user("again")]
            await chat.reply(spec, messages, [])
            episode = Episode(name, 0, spec.task, StopReason.TERMINATED, 1.0, 2)
            await chat.end(spec, episode, [user("done")])

        await asyncio.gather(*(play(f"e{n}") for n in range(50)))
        await chat.close()
        answers = bench.gateway.stats.answers
        assert answers[CHAT, 200] == 100
        assert answers["/sessions/{id}/end", 200] == 50
        await until(lambda: answers[PATH, 101] == 1 and bench.gateway.stats.inside == 0)
        rows = await bench.store.sessions()
        assert {row.reward for row in rows} == {1.0}
        assert {(row.task_id, row.group_id, row.source) for row in rows} == {("t", 0, "rollout")}
        turns = await bench.store.turns_of("e7")
        states = await bench.store.next_states_of("e7")
        assert [states[turn.id or 0] for turn in turns] == [[user("again")], [user("done")]]


async def test_a_request_that_nobody_waits_for_is_cancelled_in_the_gateway(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.policy.delay_s = 60
    async with linked(bench, timeout_s=-29.9) as chat:  # the margin leaves a tenth of a second
        with pytest.raises(ReplyTimeout, match=r"had not ended its reply after 0\.1 s"):
            await chat.reply(spec_of("slow"), HELLO, [])
        async with asyncio.timeout(60):
            await bench.policy.left.wait()
        bench.policy.delay_s = 0
        assert bench.policy.cancelled == 1
        assert bench.gateway.stats.answers[CHAT, 499] == 1
        assert bench.gateway.stats.inside == 0


async def test_a_lost_link_fails_what_is_under_way_and_the_next_request_opens_another(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.policy.delay_s = 60
    async with linked(bench) as chat:
        asking = [asyncio.create_task(chat.reply(spec_of(f"l{n}"), HELLO, [])) for n in range(3)]
        await until(lambda: bench.gateway.stats.inside == 3)
        await bench.gateway.stop()
        for task in asking:
            with pytest.raises(PolicyError, match="closed the connection"):
                await task
        with pytest.raises(PolicyError, match="did not answer"):
            await chat.reply(spec_of("nobody"), HELLO, [])
        bench.policy.delay_s = 0
        bench.config = bench.config.model_copy(
            update={"port": bench.port, "key": bench.gateway.key}
        )
        await bench.restart()
        assert (await chat.reply(spec_of("back"), HELLO, [])).message["role"] == "assistant"


async def test_a_large_request_goes_by_itself_and_a_bad_one_harms_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with linked(bench) as chat:
        large = [user("x" * (LARGEST_BODY_BYTES + 1))]
        bad = [{"role": "user", "content": "hello", "weight": math.nan}]
        lone = [user("\ud800")]
        answers = await asyncio.gather(
            chat.reply(spec_of("large"), large, []),
            chat.reply(spec_of("bad"), bad, []),  # type: ignore[arg-type]
            chat.reply(spec_of("lone"), lone, []),
            chat.reply(spec_of("good"), HELLO, []),
            return_exceptions=True,
        )
        kinds = [type(answer).__name__ for answer in answers]
        assert kinds == ["PolicyReply", "RequestError", "PolicyReply", "PolicyReply"]
        with pytest.raises(RequestError, match="got session id"):
            await chat.reply(spec_of("a/b"), HELLO, [])


async def test_a_gateway_that_is_full_says_so_to_each_request(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_waiting=2)
    bench.policy.delay_s = 0.3
    async with linked(bench) as chat:
        asked = (chat.reply(spec_of(f"f{n}"), HELLO, []) for n in range(5))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        full = [answer for answer in answers if isinstance(answer, PolicyError)]
        assert len(full) == 3
        assert "answered 503" in str(full[0])
        assert "2 requests are in progress already" in str(full[0])
        assert bench.gateway.stats.answers[CHAT, 503] == 3


async def test_a_stranger_and_nonsense_get_no_link(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    try:
        async with aiohttp.ClientSession() as stranger:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await stranger.ws_connect(bench.url + PATH)
        assert refused.value.status == 401
        for frame in (b"nonsense", b'{"number": 1}\n{}', b'{"number": 1, "route": "swap"}\n{}'):
            async with bench.http.ws_connect(PATH) as websocket:
                await websocket.send_bytes(frame)
                message = await websocket.receive(timeout=60)
                assert message.type is aiohttp.WSMsgType.CLOSE
                assert message.data == aiohttp.WSCloseCode.PROTOCOL_ERROR
                assert "expected what core/link.py says" in str(message.extra)
    finally:
        await bench.stop()


async def test_what_is_ready_together_travels_in_one_frame() -> None:
    frames: list[bytes] = []

    async def send(frame: bytes) -> None:
        frames.append(frame)

    outbox = Outbox(send)
    for number in range(3):
        outbox.put(AnswerHead(number=number, status=200), b'{"a": 1}')
    outbox.put(AnswerHead(number=3, status=200), b'"%b"' % (b"x" * (1 << 20)))
    outbox.put(AnswerHead(number=4, status=404), b"{}")
    await outbox.flush()
    heads = [[head["number"] for head, _ in messages_of(frame)] for frame in frames]
    assert heads == [[0, 1, 2, 3], [4]]
    assert messages_of(frames[1]) == [({"number": 4, "status": 404}, b"{}")]
