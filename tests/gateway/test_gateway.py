from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clawrl_gym.config import GatewayConfig
from clawrl_gym.core.errors import ConfigError, PolicyUnavailable, RequestError
from clawrl_gym.core.types import Tool
from clawrl_gym.gateway.server import Gateway
from tests.support.fakes import END, FakePolicy, encode, sampled
from tests.support.gateway_rig import HELLO, SAMPLING, Bench, user
from tests.support.waiting import until


async def test_a_request_is_answered_in_the_openai_form(bench: Bench) -> None:
    bench.gateway.version = 4
    status, answer, headers = await bench.chat(HELLO)
    assert status == 200
    assert answer["object"] == "chat.completion"
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "ok"}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 3
    assert headers["X-Session-Id"] == "s1"
    assert headers["X-Weight-Version"] == "4"
    assert headers["X-Turn-Id"] == "1"


async def test_the_official_client_works_unchanged(bench: Bench) -> None:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{bench.url}/sessions/o1/v1", api_key=bench.gateway.key)
    async with client:
        models = await client.models.list()
        answer = await client.chat.completions.create(
            model=models.data[0].id, messages=[{"role": "user", "content": "hi"}], user="me"
        )
    assert answer.choices[0].message.content == "ok"
    assert len(await bench.store.turns_of("o1")) == 1


async def test_a_turn_holds_exactly_what_the_policy_reported(bench: Bench) -> None:
    bench.gateway.version = 2
    await bench.say(HELLO)
    (turn,) = await bench.store.turns_of("s1")
    assert turn.prompt_ids_T == bench.policy.prompts[0]
    assert turn.sampled_ids_T == sampled("ok")
    assert turn.logprobs_T == [-0.5] * 3
    assert turn.versions_T == [2] * 3
    assert (turn.messages, turn.reply) == (HELLO, {"role": "assistant", "content": "ok"})


async def test_sampling_comes_from_the_request_else_from_the_configuration(bench: Bench) -> None:
    await bench.say(HELLO, "a")
    wishes = {"temperature": 0, "top_p": 0.5, "max_tokens": 9, "seed": 3, "stop": "x"}
    await bench.say(HELLO, "b", **wishes)
    await bench.say(HELLO, "c", max_completion_tokens=5, max_tokens=9, stop=["x", "y"])
    default, own, newer = bench.policy.samplings
    assert (default.temperature, default.top_p, default.max_tokens) == (0.7, 1.0, 33)
    assert (default.seed, default.stop) == (None, ())
    assert (own.temperature, own.top_p, own.max_tokens, own.seed) == (0.0, 0.5, 9, 3)
    assert own.stop == ("x",)
    assert (newer.max_tokens, newer.stop) == (5, ("x", "y"))


async def test_the_session_comes_from_the_path_then_from_the_header_then_is_new(
    bench: Bench,
) -> None:
    body = {"messages": HELLO}
    _, _, by_header = await bench.post("/v1/chat/completions", body, X_Session_Id="mine")
    _, _, fresh = await bench.post("/v1/chat/completions", body)
    _, _, other = await bench.post("/v1/chat/completions", body)
    path = "/sessions/path/v1/chat/completions"
    _, _, by_path = await bench.post(path, body, X_Session_Id="mine")
    assert by_header["X-Session-Id"] == "mine"
    assert by_path["X-Session-Id"] == "path"
    assert fresh["X-Session-Id"] != other["X-Session-Id"]


async def test_headers_label_the_session(bench: Bench) -> None:
    labels = {"X_Task_Id": "t7", "X_Group_Id": "12", "X_Split": "heldout"}
    path = "/sessions/r/v1/chat/completions"
    assert (await bench.post(path, {"messages": HELLO}, **labels))[0] == 200
    assert (await bench.post(path, {"messages": HELLO}, X_Turn_Type="side"))[0] == 200
    row = await bench.store.session("r")
    assert row is not None
    assert (row.task_id, row.group_id, row.split, row.source) == ("t7", 12, "heldout", "rollout")
    assert [turn.kind for turn in await bench.store.turns_of("r")] == ["main", "side"]


async def test_what_follows_the_reply_is_the_turns_next_state(bench: Bench) -> None:
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("and?"), user("well?")])
    one, two = await bench.store.turns_of("s1")
    states = await bench.store.next_states_of("s1")
    assert states == {one.id: [user("and?"), user("well?")]}
    assert two.index == 1


async def test_a_next_state_is_found_when_the_client_dropped_old_messages(bench: Bench) -> None:
    bench.policy = FakePolicy(lambda messages: f"reply {len(messages)}")
    await bench.restart()
    first = await bench.say([user("a"), user("b")])
    await bench.say([user("a shorter past"), first, user("next")])
    one, _ = await bench.store.turns_of("s1")
    assert (await bench.store.next_states_of("s1"))[one.id or 0] == [user("next")]


async def test_a_side_turn_takes_no_next_state_and_gets_none(bench: Bench) -> None:
    first = await bench.say(HELLO)
    path = "/sessions/s1/v1/chat/completions"
    side = {"messages": [*HELLO, first, user("make a title")]}
    assert (await bench.post(path, side, X_Turn_Type="side"))[0] == 200
    assert await bench.store.next_states_of("s1") == {}
    await bench.say([*HELLO, first, user("go on")])
    assert list((await bench.store.next_states_of("s1")).values()) == [[user("go on")]]


async def test_a_retry_gets_the_stored_reply(bench: Bench) -> None:
    replies = iter(["one", "two", "three"])
    bench.policy = FakePolicy(lambda _: next(replies))
    await bench.restart()
    first = await bench.say(HELLO)
    assert await bench.say(HELLO) == first
    assert len(await bench.store.turns_of("s1")) == 1
    await bench.restart()
    assert await bench.say(HELLO) == first, "after a restart too"
    second = await bench.say([*HELLO, first, user("more")])
    assert second["content"] == "two"
    assert (await bench.say(HELLO))["content"] == "three", "its turn has a next state already"


async def test_equal_requests_at_once_make_one_turn(bench: Bench) -> None:
    bench.policy.delay_s = 0.05
    replies = await asyncio.gather(*(bench.say(HELLO) for _ in range(5)))
    assert len(await bench.store.turns_of("s1")) == 1
    assert all(reply == replies[0] for reply in replies)
    assert bench.gateway.stats.replayed == 4


async def test_different_requests_of_one_session_run_side_by_side(bench: Bench) -> None:
    bench.policy.delay_s = 0.3
    async with asyncio.timeout(1.0):
        await asyncio.gather(*(bench.say([user(str(n))]) for n in range(10)))
    assert sorted(turn.index for turn in await bench.store.turns_of("s1")) == list(range(10))


async def test_a_reply_that_tokenises_otherwise_keeps_the_sampled_ids(bench: Bench) -> None:
    bench.policy = FakePolicy("cab")
    await bench.restart()
    messages = list(HELLO)
    for _ in range(4):
        messages += [await bench.say(messages), user("again")]
    turns = await bench.store.turns_of("s1")
    for before, after in itertools.pairwise(turns):
        used = before.prompt_ids_T + before.sampled_ids_T
        assert after.prompt_ids_T[: len(used)] == used
        tail = [*encode("\n"), 1, *encode("user:again"), END, *encode("\n"), 1]
        assert after.prompt_ids_T[len(used) :] == [*tail, *encode("assistant:")]
    assert bench.gateway.stats.fits == {"first": 1, "spliced": 3}


async def test_a_reply_that_was_cut_off_is_closed_before_the_tail(bench: Bench) -> None:
    bench.policy = FakePolicy("cab")
    bench.policy.cut = True
    await bench.restart()
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("go on")])
    one, two = await bench.store.turns_of("s1")
    used = one.prompt_ids_T + one.sampled_ids_T
    assert two.prompt_ids_T[: len(used) + 1] == [*used, END]
    assert bench.gateway.stats.fits["spliced"] == 1


async def test_ids_that_extend_by_themselves_are_left_alone(bench: Bench) -> None:
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("go on")])
    assert bench.gateway.stats.fits == {"first": 1, "exact": 1}


async def test_a_template_that_rewrites_the_past_is_left_alone(bench: Bench) -> None:
    bench.policy = FakePolicy("cab")
    bench.policy.forgets_replies = True
    await bench.restart()
    first = await bench.say(HELLO)
    body = [*HELLO, first, user("go on")]
    await bench.say(body)
    assert bench.policy.prompts[1] == await bench.policy.render({"messages": body})
    assert bench.gateway.stats.fits == {"first": 1, "template": 1}


async def test_other_tools_are_another_prompt(bench: Bench) -> None:
    bench.policy = FakePolicy("cab")
    await bench.restart()
    first = await bench.say(HELLO)
    tools: list[Tool] = [{"type": "function", "function": {"name": "f"}}]
    body = [*HELLO, first, user("go on")]
    await bench.say(body, tools=tools)
    expected = await bench.policy.render({"messages": body, "tools": tools})
    assert bench.policy.prompts[1] == expected
    assert bench.gateway.stats.fits == {"first": 1, "template": 1}


async def test_a_turn_keeps_all_that_its_prompt_was_rendered_from(bench: Bench) -> None:
    bench.policy = FakePolicy("cab")
    await bench.restart()
    tools: list[Tool] = [{"type": "function", "function": {"name": "f"}}]
    read: dict[str, Any] = {
        "tool_choice": "auto",
        "chat_template_kwargs": {"enable_thinking": False},
    }
    await bench.say(HELLO, tools=tools, user="x", **read)
    await bench.say([user("nothing else")])
    first, second = await bench.store.turns_of("s1")
    assert (first.tools, first.template) == (tools, read)
    assert (second.tools, second.template) == ([], {})
    body = {"messages": first.messages, "tools": first.tools, **first.template}
    assert body == bench.policy.bodies[0]


async def test_a_conversation_that_was_edited_is_rendered_afresh(bench: Bench) -> None:
    bench.policy = FakePolicy("cab")
    await bench.restart()
    first = await bench.say(HELLO)
    await bench.say([user("other words"), first, user("go on")])
    assert bench.gateway.stats.fits == {"first": 1, "edited": 1}


async def test_new_requests_wait_in_the_gateway_while_weights_are_swapped(bench: Bench) -> None:
    with bench.gateway.hold_requests():
        asking = asyncio.create_task(bench.say(HELLO))
        await until(lambda: bench.gateway.stats.inside == 1)
        await asyncio.sleep(0.05)
        assert bench.policy.prompts == []
    assert (await asking)["content"]
    assert len(bench.policy.prompts) == 1


async def test_requests_wait_while_the_policy_is_down(bench: Bench) -> None:
    bench.policy.down = 2
    assert (await bench.say(HELLO))["content"] == "ok"
    assert bench.gateway.stats.waited == 2
    assert len(await bench.store.turns_of("s1")) == 1


async def test_a_policy_that_stays_down_is_a_clear_502(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.timeout_s = 0.4
    await bench.start()
    bench.policy.down = 1000
    status, answer, _ = await bench.chat(HELLO)
    assert status == 502
    assert answer["error"]["code"] == "policy_unavailable"
    assert (
        "within 0.4 s; the last attempt said: vLLM cannot be reached" in answer["error"]["message"]
    )
    assert bench.gateway.stats.failed == 1
    assert await bench.store.turns_of("s1") == []
    await bench.stop()


class Stopped(FakePolicy):
    """Its process is stopped: it takes requests and answers none."""

    async def metrics(self) -> dict[str, float]:
        raise PolicyUnavailable("vLLM did not answer /metrics")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_session_leaves_a_silent_policy_for_another(tmp_path: Path, stream: bool) -> None:
    bench = Bench(tmp_path)
    bench.policy, bench.others, bench.timeout_s = Stopped(), [FakePolicy()], 0.3
    bench.policy.delay_s = 60.0
    await bench.start()
    try:
        assert bench.fleet.of("s1") is bench.policy
        if stream:
            assert "it is silent" in str(await bench.events(HELLO))
        else:
            assert (await bench.chat(HELLO))[0] == 502
        await asyncio.sleep(0.6)
        assert bench.fleet.of("s1") is not bench.policy, "it does not come back to it either"
        assert (await bench.say(HELLO))["content"] == "ok"
    finally:
        await bench.stop()


async def test_a_prompt_that_does_not_fit_is_told_at_once(bench: Bench) -> None:
    bench.policy.max_prompt = 5
    status, answer, _ = await bench.chat(HELLO)
    assert status == 400
    assert answer["error"]["code"] == "context_length_exceeded"


async def test_a_request_that_vllm_refuses_is_not_asked_again(bench: Bench) -> None:
    bench.policy.refusal = RequestError("the template knows no such role")
    status, answer, _ = await bench.chat(HELLO)
    assert (status, answer["error"]["message"]) == (400, "the template knows no such role")
    assert bench.gateway.stats.waited == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": []}, "messages: got \\[\\]"),
        ({"messages": None}, "messages: got None"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role: got 'robot'"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content: got 3"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "image_url: got .*expected {'url'",
        ),
        ({"temperature": -1}, "temperature: got -1"),
        ({"max_tokens": 0}, "max_tokens: got 0"),
        ({"top_p": 2}, "top_p: got 2"),
        ({"n": 2}, "n=2, expected none: one reply a request"),
        (
            {"tool_choice": "required"},
            "tool_choice: got 'required' and no tools, expected tools to call",
        ),
        ({"logprobs": True}, "logprobs=True, expected none: log-probs are recorded"),
        ({"stop": ["x"] * 17}, "17 stop texts"),
    ],
)
async def test_a_bad_body_is_told_what_was_got(
    bench: Bench, fields: dict[str, Any], says: str
) -> None:
    status, answer, _ = await bench.chat(**{"messages": HELLO, **fields})
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert re.search(says, answer["error"]["message"]), answer
    assert bench.policy.bodies == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1]",
        b'"x"',
        b"\xff",
        b"[" * 100_000,
        b'{"messages": "\\ud800"}',
        b'{"messages": "\xed\xa0\x80"}',
        '{"messages": []}'.encode("utf-16"),
        b'{"seed": NaN}',
        b'{"seed": 1e999}',
    ],
)
async def test_a_body_that_is_not_clean_json_is_refused(bench: Bench, raw: bytes) -> None:
    async with bench.http.post("/v1/chat/completions", data=raw) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["message"]


@pytest.mark.parametrize(
    ("header", "value"),
    [("X-Group-Id", "x"), ("X-Split", "test"), ("X-Session-Id", "a b")],
)
async def test_a_bad_header_is_refused(bench: Bench, header: str, value: str) -> None:
    body = {"messages": HELLO}
    async with bench.http.post(
        "/v1/chat/completions", json=body, headers={header: value}
    ) as answer:
        assert answer.status == 400
        message = (await answer.json())["error"]["message"]
    assert value in message


async def test_headers_that_are_no_text_are_refused(bench: Bench) -> None:
    host, port = bench.url.removeprefix("http://").split(":")
    for name, value, status in (
        (b"Authorization", b"Bearer \xff", b"401"),
        (b"X-Task-Id", b"\xff", b"400"),
        (b"X-Session-Id", b"\xff", b"400"),
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        key = (
            b""
            if status == b"401"
            else b"Authorization: Bearer %b\r\n" % bench.gateway.key.encode()
        )
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n")
        writer.write(b'%b%b: %b\r\n\r\n{"messages": []}'[:-1] % (key, name, value))
        assert status in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_readiness_follows_the_policy(bench: Bench) -> None:
    async with bench.http.get("/readyz") as answer:
        assert (answer.status, (await answer.json())["ready"]) == (200, True)
    bench.policy.down = 1
    async with bench.http.get("/readyz") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (503, "not_ready")


async def test_a_probe_without_a_key_learns_whether_it_is_ready_and_nothing_else(
    bench: Bench,
) -> None:
    async with aiohttp.ClientSession(bench.url) as probe:
        async with probe.get("/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, {"ready": True})
        bench.policy.down = 1
        async with probe.get("/readyz") as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["message"] == "the policy is not ready"


async def test_text_parts_and_developer_messages_are_understood(bench: Bench) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body: Any = [{"role": "developer", "content": "rules"}, {"role": "user", "content": parts}]
    await bench.say(body)
    (turn,) = await bench.store.turns_of("s1")
    assert turn.messages == [{"role": "system", "content": "rules"}, user("a\nb")]


async def test_only_what_the_template_may_read_reaches_the_policy(bench: Bench) -> None:
    await bench.say(HELLO, priority=-1, tools=[], user="x")
    assert bench.policy.bodies == [{"messages": HELLO, "tools": []}]
    status, answer, _ = await bench.chat(HELLO, chat_template="{{ evil }}")
    assert (status, answer["error"]["param"]) == (400, "chat_template")
    assert len(bench.policy.bodies) == 1


async def test_without_the_key_nothing_but_health_is_answered(bench: Bench) -> None:
    async with aiohttp.ClientSession(bench.url) as stranger:
        for path in ("/metrics", "/v1/models", "/sessions/s1"):
            async with stranger.get(path) as answer:
                assert answer.status == 401
        wrong = {"Authorization": "Bearer wrong"}
        async with stranger.post("/v1/chat/completions", json={}, headers=wrong) as answer:
            assert answer.status == 401
            assert (await answer.json())["error"]["code"] == "invalid_key"
        async with stranger.get("/healthz") as answer:
            assert answer.status == 200


async def test_a_path_that_does_not_exist_is_an_openai_error(bench: Bench) -> None:
    status, answer, _ = await bench.post("/v1/embeddings", {})
    assert (status, answer["error"]["type"]) == (404, "invalid_request_error")


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.config = GatewayConfig(max_body_mb=0.01)
    await bench.start()
    status, answer, _ = await bench.chat([user("x" * 20_000)])
    assert status == 413
    assert answer["error"]["message"] == "the body is larger than 0.01 MB (gateway.max_body_mb)"
    await bench.stop()


async def test_more_requests_than_allowed_are_told_to_come_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.config = GatewayConfig(max_waiting=2)
    await bench.start()
    bench.policy.delay_s = 0.2
    answers = await asyncio.gather(*(bench.chat(HELLO, f"s{n}") for n in range(4)))
    statuses = sorted(status for status, _, _ in answers)
    assert statuses == [200, 200, 503, 503]
    assert all(headers["Retry-After"] for status, _, headers in answers if status == 503)
    assert bench.gateway.stats.inside == 0
    await bench.stop()


async def test_a_client_that_leaves_cancels_its_generation(bench: Bench) -> None:
    bench.policy.delay_s = 30
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bench.chat(HELLO), 0.2)
    async with asyncio.timeout(60):
        await bench.policy.left.wait()
    assert await bench.store.turns_of("s1") == []
    bench.policy.delay_s = 0
    assert (await bench.say(HELLO))["content"] == "ok", "the retry is served"


async def test_a_session_ends_once_with_its_last_next_state(bench: Bench) -> None:
    path = "/sessions/s1/v1/chat/completions"
    await bench.post(path, {"messages": HELLO}, X_Task_Id="t")
    end = {"reward": 1.0, "stop_reason": "terminated", "next_state": [user("bye")]}
    assert (await bench.post("/sessions/s1/end", end))[1]["ended_before"] is False
    assert (await bench.post("/sessions/s1/end", {**end, "reward": 0}))[1]["ended_before"] is True
    row = await bench.store.session("s1")
    assert row is not None
    assert (row.reward, row.stop_reason) == (1.0, "terminated")
    assert list((await bench.store.next_states_of("s1")).values()) == [[user("bye")]]
    status, answer, _ = await bench.chat([user("still there?")])
    assert (status, answer["error"]["code"]) == (409, "session_ended")
    await bench.restart()
    assert (await bench.chat([user("still there?")]))[0] == 409, "after a restart too"


async def test_a_live_session_that_ended_is_opened_again_by_a_request(bench: Bench) -> None:
    await bench.say(HELLO)
    await bench.post("/sessions/s1/end", {})
    assert bench.told.ended == ["s1"]
    await bench.say([user("still there?")])
    row = await bench.store.session("s1")
    assert row is not None
    assert row.ended_s is None
    assert [turn.index for turn in await bench.store.turns_of("s1")] == [0, 1]


async def test_an_episode_that_failed_before_its_first_turn_can_end(bench: Bench) -> None:
    end = {"reward": None, "stop_reason": "env_error", "error": "no sandbox", "split": "heldout"}
    assert (await bench.post("/sessions/never/end", end))[0] == 200
    row = await bench.store.session("never")
    assert row is not None
    assert (row.reward, row.error, row.split) == (None, "no sandbox", "heldout")


async def test_an_end_that_makes_no_sense_is_refused(bench: Bench) -> None:
    ends: list[dict[str, Any]] = [
        {"stop_reason": "bored"},
        {"reward": "much"},
        {"next_state": [{}]},
    ]
    for end in ends:
        assert (await bench.post("/sessions/s1/end", end))[0] == 400
    async with bench.http.post("/sessions/s1/end", data=b'{"reward": NaN}') as answer:
        assert answer.status == 400


async def test_a_reply_that_arrives_after_the_end_is_not_recorded(bench: Bench) -> None:
    bench.policy.delay_s = 0.2
    path, body = "/sessions/s1/v1/chat/completions", {"messages": HELLO}
    late = asyncio.create_task(bench.post(path, body, X_Group_Id="1"))
    await asyncio.sleep(0.1)
    await bench.post("/sessions/s1/end", {"stop_reason": "deadline"})
    assert (await late)[0] == 409
    assert await bench.store.turns_of("s1") == []


async def test_a_session_can_be_looked_at(bench: Bench) -> None:
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("and?")])
    async with bench.http.get("/sessions/s1") as answer:
        shown = await answer.json()
    assert shown["id"] == "s1"
    assert [turn["next_state"] for turn in shown["turns"]] == [[user("and?")], None]
    async with bench.http.get("/sessions/nobody") as answer:
        assert answer.status == 404


async def test_a_conversation_goes_on_after_a_restart(bench: Bench) -> None:
    bench.policy = FakePolicy("cab")
    await bench.restart()
    first = await bench.say(HELLO)
    await bench.restart()
    await bench.say([*HELLO, first, user("go on")])
    one, two = await bench.store.turns_of("s1")
    used = one.prompt_ids_T + one.sampled_ids_T
    assert two.prompt_ids_T[: len(used)] == used
    assert (await bench.store.next_states_of("s1"))[one.id or 0] == [user("go on")]


async def test_a_port_that_is_taken_is_named(bench: Bench, tmp_path: Path) -> None:
    port = int(bench.url.rpartition(":")[2])
    config = GatewayConfig(port=port)
    other = Gateway(config, SAMPLING, bench.store, bench.fleet, "tiny")
    with pytest.raises(ConfigError, match=f"port {port} is taken"):
        await other.start()
    await other.stop()


async def test_a_host_that_others_reach_needs_a_key(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.key=SECRET"):
        Gateway(GatewayConfig(host="0.0.0.0"), SAMPLING, bench.store, bench.fleet, "tiny")
    for config in (
        GatewayConfig(host="0.0.0.0", key="k"),
        GatewayConfig(host="::1"),
        GatewayConfig(host="localhost"),
    ):
        Gateway(config, SAMPLING, bench.store, bench.fleet, "tiny")


async def test_the_gateway_stops_at_once_with_requests_inside(bench: Bench) -> None:
    bench.policy.delay_s = 60
    inside = [asyncio.create_task(bench.chat(HELLO, f"s{n}")) for n in range(5)]
    await asyncio.sleep(0.2)
    async with asyncio.timeout(60):
        await bench.gateway.stop()
    results = await asyncio.gather(*inside, return_exceptions=True)
    assert all(isinstance(result, aiohttp.ClientError) for result in results)
    assert bench.policy.cancelled == 5
