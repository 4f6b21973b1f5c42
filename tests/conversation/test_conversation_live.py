"""Live sessions as episodes: an environment that answers in the policy's place."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.types import Message, Tool
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.gateway.responders import MOST_CLAIMS, Responders, add_routes
from clawrl_gym.gateway.wire.refusals import Refusal
from tests.support.gateway_rig import Bench, text_of, user
from tests.support.waiting import until

TOOLS: list[Tool] = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


async def ask(
    responders: Responders, messages: list[Message], first: bool = True
) -> Message | None:
    """What the gateway does with a main turn of session s."""
    responder = responders.of("s", first)
    return None if responder is None else await responder.reply(messages, TOOLS)


@pytest.fixture
async def responders() -> Responders:
    return Responders()


@pytest.fixture
async def url(responders: Responders) -> AsyncIterator[str]:
    @web.middleware
    async def border(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refusal as refusal:
            return web.json_response({"error": str(refusal)}, status=refusal.status)

    app = web.Application(middlewares=[border])
    add_routes(app.router, responders)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def live(url: str, **options: Any) -> ConversationEnv:
    return ConversationEnv(source="live", gateway_url=url, **{"live_timeout_s": 5.0} | options)


async def started(responders: Responders, env: ConversationEnv) -> tuple[Any, asyncio.Task[Any]]:
    """reset() of an environment, and the client's first request that it got."""
    reset = asyncio.create_task(asyncio.to_thread(env.reset))
    await until(lambda: responders._claims)
    asked = asyncio.create_task(ask(responders, [user("hi")]))
    return await reset, asked


async def test_a_session_is_an_episode(responders: Responders, url: str) -> None:
    env = live(url)
    (observation, info), asked = await started(responders, env)
    assert observation == "hi"
    assert info["tools"] == TOOLS
    assert info["task"] == "s"
    assert info["messages"] == [user("hi")]
    step = asyncio.create_task(asyncio.to_thread(env.step, "hello"))
    assert await asked == assistant("hello")
    again = asyncio.create_task(
        ask(responders, [user("hi"), assistant("hello"), user("more")], False)
    )
    observation, reward, terminated, truncated, info = await step
    assert (observation, reward, terminated, truncated) == ("more", 0.0, False, False)
    assert info["messages"] == [user("more")]
    step = asyncio.create_task(asyncio.to_thread(env.step, "bye"))
    assert await again == assistant("bye")
    responders.end("s")
    observation, reward, terminated, truncated, _ = await step
    assert (observation, reward, terminated, truncated) == ("", 0.0, True, False)
    assert responders.of("s", False) is None
    with pytest.raises(EnvError, match="expected reset"):
        env.step("anybody?")


async def test_tool_calls_go_out_and_results_come_back(responders: Responders, url: str) -> None:
    env = live(url)
    _, asked = await started(responders, env)
    calls = Reply("", (Call("c1", "ls", "{}"), Call("c2", "ls", '{"a": 1}')))
    step = asyncio.create_task(asyncio.to_thread(env.step, encode(calls)))
    reply = await asked
    assert reply is not None
    assert [c["function"]["name"] for c in reply["tool_calls"]] == ["ls", "ls"]
    results: list[Message] = [
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
    ]
    last = asyncio.create_task(ask(responders, [user("hi"), reply, *results], False))
    observation, _, _, _, info = await step
    assert info["next_state_role"] == "tool"
    assert json.loads(observation) == [
        {"tool_call_id": "c1", "content": "a.txt"},
        {"tool_call_id": "c2", "content": ""},
    ]
    await asyncio.to_thread(env.close)
    assert await last is None


async def test_sessions_that_nobody_waits_for_and_side_turns_are_the_policys(
    responders: Responders,
) -> None:
    assert responders.of("s", True) is None
    claim = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    assert responders.of("t", False) is None
    responder = responders.of("s", True)
    assert await claim is responder
    assert responders.of("u", True) is None


async def test_a_seat_that_is_given_up_goes_back_to_the_policy_in_mid_turn(
    responders: Responders, url: str
) -> None:
    env = live(url)
    _, asked = await started(responders, env)
    await asyncio.to_thread(env.close)
    assert await asked is None
    assert responders.of("s", False) is None
    await asyncio.to_thread(env.close)


async def test_an_environment_that_is_gone_keeps_nobody_waiting() -> None:
    responders = Responders(absent_s=0.05)
    claim = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    async with asyncio.timeout(60):
        assert await ask(responders, [user("hi")]) is None
    await claim
    assert responders.of("s", False) is None


async def test_a_claim_that_is_cancelled_gives_its_session_back(responders: Responders) -> None:
    claim = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    responder = responders.of("s", True)
    assert responder is not None
    claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert responder.over
    other = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    other.cancel()
    await asyncio.wait([other])
    assert responders.of("t", True) is None


async def test_a_client_that_asks_again_gets_the_same_reply(responders: Responders) -> None:
    claim = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    first = asyncio.create_task(ask(responders, [user("hi")]))
    responder = await claim
    assert responder is not None
    await until(lambda: responder._pending)
    first.cancel()
    await asyncio.wait([first])
    responder.put(assistant("hello"))
    assert await ask(responders, [user("hi")], False) == assistant("hello")
    with pytest.raises(Refusal, match="nothing waits"):
        responder.put(assistant("once more"))


async def test_transient_context_is_not_shown_to_the_environment() -> None:
    responders = Responders(
        stable=lambda messages: [m for m in messages if m["content"] != "context"]
    )
    claim = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    asked = asyncio.create_task(ask(responders, [user("hi"), user("context")]))
    responder = await claim
    assert responder is not None
    step = await responder.next(5.0)
    assert step["ready"]
    assert step["messages"] == [user("hi")]
    responders.end("s")
    assert await asked is None


async def test_nobody_coming_is_an_error_and_never_an_episode(url: str) -> None:
    with pytest.raises(EnvError, match=r"no session started within 0\.05 s"):
        await asyncio.to_thread(live(url, live_timeout_s=0.05).reset)


async def test_a_client_that_says_nothing_more_is_an_error(
    responders: Responders, url: str
) -> None:
    env = live(url, live_timeout_s=0.2)
    _, asked = await started(responders, env)
    with pytest.raises(EnvError, match="nothing came back within"):
        await asyncio.to_thread(env.step, "hello")
    assert await asked == assistant("hello")


async def test_the_turn_budget_truncates_and_the_policy_goes_on(
    responders: Responders, url: str
) -> None:
    env = live(url, max_turns=1)
    _, asked = await started(responders, env)
    step = asyncio.create_task(asyncio.to_thread(env.step, "hello"))
    assert await asked == assistant("hello")
    more = [user("hi"), assistant("hello"), user("more")]
    again = asyncio.create_task(ask(responders, more, False))
    assert (await step)[2:4] == (False, True)
    assert await again is None


async def test_a_later_request_takes_a_seats_place_and_the_reply_is_its_own(
    responders: Responders,
) -> None:
    claim = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    seat = responders.of("s", True)
    assert seat is not None
    await claim
    first = asyncio.create_task(seat.reply([user("hi")], []))
    await asyncio.sleep(0)
    second = asyncio.create_task(seat.reply([user("other")], []))
    await asyncio.sleep(0)
    seat.put(assistant("to other"))
    assert await second == assistant("to other")
    with pytest.raises(Refusal, match="took its place") as refused:
        await first
    assert refused.value.status == 409
    assert await seat.reply([user("other")], []) == assistant("to other"), "sent again"


async def test_a_gateway_that_is_not_there_is_an_error() -> None:
    with pytest.raises(EnvError, match="gave no answer"):
        await asyncio.to_thread(live("http://127.0.0.1:9").reset)


async def test_too_many_waiting_environments_are_refused(responders: Responders) -> None:
    waiting = [asyncio.create_task(responders.claim(5.0)) for _ in range(MOST_CLAIMS)]
    await until(lambda: len(responders._claims) == MOST_CLAIMS)
    with pytest.raises(Refusal, match="wait already"):
        await responders.claim(0.0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert await responders.claim(0.0) is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/seats?timeout_s=soon", None, 400),
        ("POST", "/v1/seats?timeout_s=-1", None, 400),
        ("POST", "/v1/seats?timeout_s=nan", None, 400),
        ("POST", "/v1/seats?timeout_s=inf", None, 400),
        ("POST", "/v1/seats", None, 200),
        ("GET", "/v1/seats/nothing/next", None, 404),
        ("POST", "/v1/seats/nothing/reply", {}, 404),
        ("DELETE", "/v1/seats/nothing", None, 404),
        ("POST", "/v1/seats/SEAT/reply", {}, 400),
        ("POST", "/v1/seats/SEAT/reply", {"message": {"role": "user", "content": "x"}}, 400),
        ("POST", "/v1/seats/SEAT/reply", {"message": {"role": "assistant", "content": "x"}}, 409),
        ("GET", "/v1/seats/SEAT/next", None, 200),
        ("DELETE", "/v1/seats/SEAT", None, 200),
    ],
)
async def test_wrong_requests_are_refused(
    responders: Responders, url: str, method: str, path: str, body: Any, status: int
) -> None:
    from aiohttp import ClientSession

    claim = asyncio.create_task(responders.claim(5.0))
    await until(lambda: responders._claims)
    responder = responders.of("s", True)
    assert await claim is responder
    assert responder is not None
    async with (
        ClientSession() as http,
        http.request(method, url + path.replace("SEAT", responder.id), json=body) as answer,
    ):
        assert answer.status == status, await answer.text()


async def seated(bench: Bench, env: ConversationEnv, **asked: Any) -> asyncio.Task[Any]:
    """A client's first request, which the environment's reset got."""
    reset = asyncio.create_task(asyncio.to_thread(env.reset))
    await until(lambda: bench.gateway._responders._claims)
    reply = asyncio.create_task(bench.say([user("hi")], **asked))
    observation, _ = await reset
    assert observation == "hi"
    return reply


async def test_a_gateways_next_session_is_an_episode_and_the_one_after_is_the_policys(
    bench: Bench,
) -> None:
    env = live(bench.url, gateway_key=bench.gateway.key)
    reply = await seated(bench, env)
    assert (await bench.say([user("hi")], session="s2"))["content"] == "ok"
    step = asyncio.create_task(asyncio.to_thread(env.step, "hello"))
    said = await reply
    assert said["content"] == "hello"
    streamed = asyncio.create_task(bench.events([user("hi"), said, user("more")]))
    observation, *_ = await step
    assert observation == "more"
    step = asyncio.create_task(asyncio.to_thread(env.step, "bye"))
    assert text_of(await streamed) == "bye"
    await bench.post("/sessions/s1/end", {})
    assert (await step)[2]
    _, shown, _ = await bench.get("/sessions/s1")
    assert [(turn["kind"], turn["rule"], turn["sampled_tokens"]) for turn in shown["turns"]] == [
        ("side", "seat", 0),
        ("side", "seat", 0),
    ]


async def test_an_environments_own_policy_calls_are_never_claimed(bench: Bench) -> None:
    env = live(bench.url, gateway_key=bench.gateway.key, live_timeout_s=0.5)
    reset = asyncio.create_task(asyncio.to_thread(env.reset))
    await until(lambda: bench.gateway._responders._claims)
    body = {"messages": [user("hi")]}
    status, answer, _ = await bench.post(
        "/sessions/r1/v1/chat/completions", body, X_Task_Id="student-ask-train-000001"
    )
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "ok")
    with pytest.raises(EnvError, match="no session started"):
        await reset


async def test_the_policy_goes_on_where_a_seat_was_given_up(bench: Bench) -> None:
    env = live(bench.url, gateway_key=bench.gateway.key)
    reply = await seated(bench, env)
    await asyncio.to_thread(env.close)
    assert (await reply)["content"] == "ok"
    assert (await bench.say([user("hi"), await reply, user("more")]))["content"] == "ok"


async def test_a_wrong_key_gets_no_seat(bench: Bench) -> None:
    env = live(bench.url, gateway_key="wrong")
    with pytest.raises(EnvError, match="the gateway answered 401"):
        await asyncio.to_thread(env.reset)


async def test_a_client_that_names_no_session_is_found_again_by_its_history(bench: Bench) -> None:
    env = live(bench.url, gateway_key=bench.gateway.key)
    reset = asyncio.create_task(asyncio.to_thread(env.reset))
    await until(lambda: bench.gateway._responders._claims)
    path = "/v1/chat/completions"
    first = asyncio.create_task(bench.post(path, {"messages": [user("hi there")]}))
    await reset
    step = asyncio.create_task(asyncio.to_thread(env.step, "hello"))
    said = (await first)[1]["choices"][0]["message"]
    messages = [user("hi there"), said, user("more")]
    again = asyncio.create_task(bench.post(path, {"messages": messages}))
    assert (await step)[0] == "more"
    await asyncio.to_thread(env.close)
    assert (await again)[0] == 200
