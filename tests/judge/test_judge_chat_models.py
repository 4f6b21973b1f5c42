"""Who lends a judge its words: another server over HTTP, or the policy itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clawrl_gym.core.errors import (
    ConfigError,
    ContextError,
    PolicyError,
    PolicyUnavailable,
    RequestError,
)
from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.generation import Generation
from clawrl_gym.judge.models.chat_models import Completion, HttpChatModel, PolicyChatModel
from clawrl_gym.judge.models.endpoint import MAX_ANSWER_BYTES, JudgeEndpoint
from clawrl_gym.judge.models.votes import parse_vote
from tests.support.fakes import FakePolicy
from tests.support.fakes_judge import completion, judge_server, user
from tests.support.waiting import until

ASKED: list[Message] = [{"role": "system", "content": "judge"}, user("the case")]


async def test_a_server_is_asked_in_the_words_of_the_openai_api() -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: completion("fine", reasoning_content="long thoughts")
        said = await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 99)
    assert said == Completion("fine", finished=True)
    assert server.requests == [
        (
            "/v1/chat/completions",
            {"model": "m", "messages": ASKED, "temperature": 0.6, "max_completion_tokens": 99},
            "Bearer the-key",
        )
    ]


async def test_without_a_name_the_first_model_of_the_server_is_asked() -> None:
    async with judge_server() as (server, endpoint):
        speaker = HttpChatModel(endpoint, None)
        await asyncio.gather(*(speaker.complete(ASKED, 0.6, 9) for _ in range(3)))
    assert [body["model"] for _, body, _ in server.requests] == ["first"] * 3


async def test_an_answer_that_was_cut_off_says_so() -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: completion("so", reason="length")
        assert await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9) == Completion(
            "so", finished=False
        )
        server.answer = lambda at: completion(None)
        assert (await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)).text == ""


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "the maximum context length is 9"}}, ContextError),
        (400, {"error": {"message": "no such model"}}, RequestError),
        (401, {"error": {"message": "wrong key"}}, PolicyError),
        (429, b"slow down", PolicyUnavailable),
        *((status, b"later", PolicyUnavailable) for status in (408, 409, 425, 500, 502, 504, 529)),
        (501, b"never", PolicyError),
        (500, b"prompt is longer than the context window", ContextError),
        (200, {"error": {"code": 503, "message": "behind a proxy"}}, PolicyUnavailable),
        (503, b"\xff\xfe", PolicyUnavailable),
        (200, b"not json", PolicyError),
        (200, b"[" * 100_000, PolicyError),
        (200, {"choices": None}, PolicyError),
        (200, {"choices": [{"message": "x"}]}, PolicyError),
        (200, completion({"text": "x"}), PolicyError),
        (200, completion([7]), PolicyError),
        (200, b" " * (MAX_ANSWER_BYTES + 1), PolicyError),
    ],
)
async def test_what_is_no_answer_is_an_error_that_tells_it(
    status: int, body: Any, kind: type[PolicyError]
) -> None:
    async with judge_server(timeout_s=0.3) as (server, endpoint):
        server.status, server.answer = status, lambda at: body
        with pytest.raises(PolicyError, match="judge") as raised:
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
    assert type(raised.value) is kind
    assert len(str(raised.value)) < 600
    assert "the-key" not in str(raised.value)


async def test_an_answer_that_is_no_unicode_is_still_text() -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: completion("half \ud83d pair")
        assert (
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
        ).text == "half \ufffd pair"


async def test_a_server_that_is_down_or_silent_is_unavailable() -> None:
    async with judge_server(timeout_s=0.1) as (server, endpoint):
        server.silent = True
        with pytest.raises(PolicyUnavailable, match=r"within 0\.1 s"):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
        url = server.base_url
    down = JudgeEndpoint(url, None, 0.2, 1, first_wait_s=0.01)
    with pytest.raises(PolicyUnavailable, match="cannot be reached"):
        await HttpChatModel(down, "m").complete(ASKED, 0.6, 9)
    await down.close()


async def test_a_key_does_not_follow_a_redirect() -> None:
    async with judge_server() as (server, endpoint):
        server.status = 307
        with pytest.raises(PolicyError, match="307"):
            await HttpChatModel(endpoint, "m").complete(ASKED, 0.6, 9)
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["", "host:8000", "ftp://host", "http://", "http://host:x/v1"])
def test_a_url_that_is_none_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.base_url"):
        JudgeEndpoint(url, None, 1.0, 1)


# -- the policy itself -----------------------------------------------------------------------------


async def test_the_policy_speaks_for_the_judge_with_its_newest_weights() -> None:
    policy = FakePolicy("good")
    version = 3
    speaker = PolicyChatModel(Fleet([policy]), lambda: version)
    assert await speaker.complete(ASKED, 0.6, 99) == Completion("good", finished=True)
    version = 4
    await speaker.complete(ASKED, 0.0, 9)
    assert policy.versions == [3, 4]
    sampling = policy.samplings[0]
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.6, 1.0, 99)
    assert policy.bodies[0]["messages"] == ASKED


class Thinker(FakePolicy):
    """Its parser finds nothing but reasoning in every reply."""

    async def parse(self, body: ChatBody, generation: Generation) -> Message:
        reply = await super().parse(body, generation)
        return {"role": "assistant", "content": None, "reasoning_content": str(reply["content"])}


async def test_reasoning_that_began_in_the_prompt_and_never_ended_is_no_vote() -> None:
    said = await PolicyChatModel(Fleet([Thinker(r"\boxed{1}")]), lambda: 0).complete(ASKED, 0.6, 9)
    assert said == Completion("", finished=True)
    assert parse_vote(said) is None


async def test_a_policy_that_is_cut_off_says_so() -> None:
    policy = FakePolicy("good")
    policy.cut = True
    assert not (await PolicyChatModel(Fleet([policy]), lambda: 0).complete(ASKED, 0.6, 9)).finished


async def test_a_policy_that_is_away_is_left_out_and_another_one_speaks() -> None:
    down, up = FakePolicy("down"), FakePolicy("up")
    down.down = 1
    fleet = Fleet([down, up])
    speaker = PolicyChatModel(fleet, lambda: 0)
    with pytest.raises(PolicyUnavailable):
        await speaker.complete(ASKED, 0.6, 9)
    assert fleet.alive == 1
    assert (await speaker.complete(ASKED, 0.6, 9)).text == "up"


async def test_the_judge_leaves_room_for_replies() -> None:
    policy = FakePolicy("ok")
    policy.delay_s = 3600
    speaker = PolicyChatModel(Fleet([policy]), lambda: 0, max_requests=2)
    asking = [asyncio.create_task(speaker.complete(ASKED, 0.6, 9)) for _ in range(6)]
    await until(lambda: len(policy.bodies) == 2)
    await asyncio.sleep(0.02)
    assert len(policy.bodies) == 2
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert policy.cancelled == 2
