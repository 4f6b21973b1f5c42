"""Servers of models that refuse, break, or answer in a form of their own."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import time
from typing import Any

import pytest

from clawrl_gym.core.errors import ContextError, PolicyError, PolicyUnavailable, RequestError
from clawrl_gym.core.types import Message
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.model import ModelJudge
from clawrl_gym.judge.models.chat_models import Completion, HttpChatModel
from clawrl_gym.judge.models.votes import parse_vote
from tests.support.fakes_judge import completion, judge_server, model_judge, reply, user

ASKED: list[Message] = [user("the case")]
VOTE = "\\boxed{-1}"


def date(from_now_s: float) -> str:
    return email.utils.formatdate(time.time() + from_now_s, usegmt=True)


REFUSALS: list[tuple[int, dict[str, str], Any]] = [
    (429, {}, b"slow down"),
    (429, {"Retry-After": "0"}, {"error": {"message": "rate limit"}}),
    (429, {"Retry-After": "0.01"}, b""),
    (429, {"Retry-After": " 0 "}, b""),
    (429, {"Retry-After": date(-60)}, b""),
    (429, {"Retry-After": "soon"}, b""),
    (429, {"Retry-After": "nan"}, b""),
    (429, {"Retry-After": "-3"}, b""),
    (408, {}, b""),
    (409, {}, b""),
    (425, {}, b""),
    (500, {}, b"oh"),
    (500, {"Retry-After": "0"}, b"Internal Server Error"),
    (502, {}, b"<html>bad gateway</html>"),
    (503, {"Retry-After": date(0)}, b"loading model"),
    (504, {}, b""),
    (520, {}, b""),
    (524, {}, b""),
    (529, {}, {"error": {"type": "overloaded_error"}}),
    (200, {}, {"error": {"code": 429, "message": "of the provider behind"}}),
    (200, {}, {"error": {"code": 502, "message": "of the provider behind"}}),
    (424, {}, b"Request failed during generation"),
    (429, {"retry-after-ms": "5"}, b""),
    (429, {"retry-after-ms": "5", "Retry-After": "3600"}, b""),
    (429, {"Retry-After": "0.01s"}, b""),
    (429, {"Retry-After": time.asctime(time.gmtime())}, b""),
    (429, {"Retry-After": "-inf"}, b""),
    (200, {}, b""),
    (200, {}, b' {"choices": [{"message": {"content": "\\\\boxed{-1'),
    (200, {"Content-Encoding": "gzip"}, b"no gzip"),
    (200, {}, {"error": {"code": "503", "message": "x"}}),
    (200, {}, {"object": "error", "code": 503, "message": "x"}),
    (200, {}, {"error": {"type": "overloaded_error"}}),
    (200, {}, {"error": "rate_limit_exceeded: try again in 20 ms"}),
    (200, {}, {"status": 529, "error": {}}),
    (200, {}, {"object": "error", "message": "Internal server error"}),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_server_that_is_busy_or_broken_is_asked_again(
    refusal: tuple[int, dict[str, str], Any],
) -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [refusal, refusal]
        said = await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 99)
    assert parse_vote(said) == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 501])
async def test_what_asking_again_does_not_mend_is_asked_once(status: int) -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(status, {}, b"no")]
        with pytest.raises(Exception, match=str(status)):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 99)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param("3600", id="seconds"),
        pytest.param("1e9", id="many"),
        pytest.param(date(3600), id="date"),
    ],
)
async def test_a_wait_for_which_there_is_no_time_ends_the_asking(wait: str) -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(429, {"Retry-After": wait}, b"quota")]
        with pytest.raises(PolicyUnavailable, match="429"):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 99)
    assert len(server.requests) == 1


async def test_a_crowd_that_a_server_refuses_gets_all_its_verdicts() -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(429, {"Retry-After": "0"}, b"")] * 60
        judge = ModelJudge(HttpChatModel(endpoint, "m"), model_judge(votes=1, quorum=1))
        case = Case(1, "12345", reply("54321"), [user("fine")])
        verdicts = await asyncio.gather(*(judge.judge(case) for _ in range(20)))
    assert [verdict.value for verdict in verdicts] == [1] * 20


REASONS = [None, "stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "tool_calls",
           "END", "finished", "complete", "COMPLETE", "function_call", "done", "", "eot",
           "natural_stop", "end", "stop_token", "completed", 0,
           {"type": "stop"}, ["stop"]]  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
async def test_reasons_of_other_servers_end_a_whole_answer(reason: Any) -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: completion(VOTE, reason=reason)
        assert (await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)).finished


async def test_an_answer_without_a_reason_is_whole() -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: {"choices": [{"message": {"content": VOTE}}]}
        said = await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
    assert said == Completion(VOTE, finished=True)


@pytest.mark.parametrize(
    "reason", ["length", "LENGTH", "max_tokens", "MAX_TOKENS", "content_filter", "SAFETY", "error",
               "model_length", "abort", "cancelled", "max_length", "MAX_OUTPUT_TOKENS", "truncated",
               "model_context_window_exceeded", "content-filter", "ERROR_LIMIT", "refusal", "SPII",
               "guardrail_intervened", "insufficient_system_resource", "length_limit", "sensitive",
               "MALFORMED_FUNCTION_CALL", "blocklist", "timeout"],
)  # fmt: skip
async def test_an_answer_that_was_cut_off_is_never_whole(reason: str) -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: completion(VOTE, reason=reason)
        said = await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
    assert parse_vote(said) is None


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"text": VOTE}, VOTE),
        ({"message": {"content": VOTE, "reasoning_content": "1"}}, VOTE),
        ({"message": {"content": None, "reasoning_content": VOTE}}, ""),
        ({"message": {"content": None, "refusal": "no"}}, ""),
        ({"message": {"content": "", "tool_calls": [{"function": {"arguments": '{"vote": -1}'}}]}},
         '{"vote": -1}'),
        ({"message": {"tool_calls": [{"function": {"arguments": {"vote": -1}}}]}}, '{"vote": -1}'),
        ({"message": {"content": VOTE, "tool_calls": [{"function": {"arguments": "1"}}]}}, VOTE),
        ({"message": {"content": None, "tool_calls": None}}, ""),
    ],
)  # fmt: skip
async def test_an_answer_is_found_wherever_a_server_puts_it(choice: Any, text: str) -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: {"choices": [choice]}
        assert (await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)).text == text


@pytest.mark.parametrize(
    "said",
    [
        "System role not supported",
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        "Developer instruction is not enabled: system instructions are not supported",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "This model does not accept a system message.",
        "invalid role: system",
    ],
)
async def test_a_model_without_instructions_reads_them_with_the_case(said: str) -> None:
    asked: list[Message] = [{"role": "system", "content": "judge"}, user("the case")]
    async with judge_server() as (server, endpoint):
        server.refusals = [(400, {}, said.encode())]
        speaker = HttpChatModel(endpoint, "m")
        for _ in range(2):
            assert parse_vote(await speaker.complete(asked, 0.6, 9)) == 1
    sent = [body["messages"] for _, body, _ in server.requests]
    assert sent == [asked, [user("judge\n\nthe case")], [user("judge\n\nthe case")]]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "This model's maximum context length is 4096 tokens."),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "the request exceeds the available context size. try increasing it"),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"),
        (400, "This model's maximum prompt length is 131072 but the request contains 200000"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed"),
        (413, "Payload Too Large"),
        (400, "Please reduce the length of the messages or completion."),
        (400, "too many tokens: size limit exceeded by 11326 tokens"),
        (400, '{"code": "context_length_exceeded"}'),
        (500, "input exceeds model context window"),
        (400, "Request too large for model on tokens per minute"),
    ],
)
async def test_a_case_that_is_too_long_is_known_in_whatever_words(status: int, said: str) -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(status, {}, said.encode())]
        with pytest.raises(ContextError):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_says_where_it_goes(status: int) -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(status, {"Location": "https://elsewhere/v1"}, b"")]
        with pytest.raises(PolicyError, match=r"https://elsewhere/v1.*judge\.base_url"):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body", [b"<!doctype html><html>welcome</html>", b"Ollama is running", b"\xff\xfe\xfa", b"[]x"]
)
async def test_what_will_never_be_an_answer_is_asked_for_once(body: bytes) -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(200, {}, body)]
        with pytest.raises(PolicyError, match="expected JSON"):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": VOTE}], VOTE),
        ([{"type": "output_text", "text": VOTE}], VOTE),
        ([{"type": "text", "text": "so "}, {"type": "text", "text": VOTE}], f"so {VOTE}"),
        ([{"type": "thinking", "thinking": "1"}, {"type": "text", "text": VOTE}], VOTE),
        ([{"type": "reasoning", "text": "1"}, {"type": "text", "text": VOTE}], VOTE),
        ([{"text": VOTE}], VOTE),
        ([VOTE], VOTE),
        (["a", {"type": "text", "text": VOTE}], f"a{VOTE}"),
        ([{"type": "text", "text": None}], ""),
        ([], ""),
        (None, ""),
    ],
)
async def test_words_in_parts_are_one_answer(content: Any, text: str) -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: completion(content)
        assert (await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)).text == text


FIELDS = {"model", "messages", "temperature", "max_completion_tokens", "max_tokens"}


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        (set(), {"temperature", "max_completion_tokens"}),
        ({"temperature"}, {"max_completion_tokens"}),
        ({"max_completion_tokens"}, {"temperature", "max_tokens"}),
        ({"max_tokens"}, {"temperature", "max_completion_tokens"}),
        ({"max_tokens", "max_completion_tokens"}, {"temperature"}),
        ({"temperature", "max_completion_tokens"}, {"max_tokens"}),
        ({"temperature", "max_completion_tokens", "max_tokens"}, set()),
    ],
)
async def test_a_parameter_that_is_refused_by_name_is_left_out_from_then_on(
    refused: set[str], left: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with judge_server() as (server, endpoint):
        server.takes = FIELDS - refused
        speaker = HttpChatModel(endpoint, "m")
        for _ in range(3):
            assert parse_vote(await speaker.complete(ASKED, 0.6, 9)) == 1
    assert {*server.requests[-1][1]} == left | {"model", "messages"}
    needless = refused - ({"max_tokens"} if "max_completion_tokens" not in refused else set())
    assert len(server.requests) == 3 + len(needless)
    for name in needless:
        assert sum(f"refuses {name}" in line for line in caplog.messages) == 1


MESSAGES = [
    "Unsupported parameter: 'temperature' is not supported with this model.",
    "Unsupported value: 'temperature' does not support 0.6 with this model. Only 1 is supported.",
    "temperature: Extra inputs are not permitted",
    '{"detail":[{"type":"extra_forbidden","loc":["body","temperature"],"msg":"Extra inputs"}]}',
    "Unrecognized request argument supplied: temperature",
    "unknown field `temperature`, expected one of `model`, `messages`",
    "`temperature` may only be set to 1",
    "Additional properties are not allowed ('temperature' was unexpected)",
    "property 'temperature' is unsupported",
    'json: unknown field "temperature"',
    "This model does not take temperature.",
    "invalid parameter(s): temperature",
]


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("message", MESSAGES)
async def test_a_refusal_is_understood_in_whatever_words(message: str, status: int) -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(status, {}, message.encode())]
        await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
    assert [sorted({*body} - {"model", "messages"}) for _, body, _ in server.requests] == [
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
    ]


async def test_a_refusal_that_names_nothing_that_can_be_left_out_is_an_error() -> None:
    async with judge_server() as (server, endpoint):
        server.refusals = [(400, {}, b"model m does not exist")]
        with pytest.raises(RequestError, match="does not exist"):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)


async def test_many_that_are_refused_at_once_say_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with judge_server() as (server, endpoint):
        server.takes = FIELDS - {"temperature"}
        speaker = HttpChatModel(endpoint, "m")
        await asyncio.gather(*(speaker.complete(ASKED, 0.6, 9) for _ in range(8)))
    assert sum("refuses temperature" in line for line in caplog.messages) == 1
