"""The judge that is a classifier behind vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.judge.reward_model import RewardModelJudge
from clawrl_gym.judge.verdicts import VerdictMaker
from tests.support.fakes_judge import ScriptedJudge, a_case, a_turn, judge_server, user

CONFIG = JudgeConfig(type="reward_model", base_url="http://host:8000/v1")


def classified(*probs: Any) -> dict[str, Any]:
    """An answer of vLLM's /classify."""
    data = {"index": 0, "label": "x", "probs": list(probs), "num_classes": len(probs)}
    return {"id": "classify-1", "object": "list", "model": "m", "data": [data], "usage": {}}


@pytest.mark.parametrize(
    ("probability", "value"),
    [(1.0, 1), (1, 1), (0.66, 1), (0.65, 0), (0.33, 0), (0.32, -1), (0.0, -1), (0, -1)],
)
async def test_the_probability_of_the_last_class_makes_the_verdict(
    probability: float, value: int
) -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: classified(1 - probability, probability)
        verdict = await RewardModelJudge(endpoint, CONFIG).judge(a_case())
    assert (verdict.turn_id, verdict.kind) == (7, "model")
    assert (verdict.value, verdict.reward) == (value, float(value))
    assert verdict.detail == {"probability": probability}


async def test_a_classifier_with_one_class_is_read_too() -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: classified(0.9)
        assert (await RewardModelJudge(endpoint, CONFIG).judge(a_case())).value == 1


async def test_the_case_goes_to_the_route_beside_v1() -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: classified(0.5, 0.5)
        await RewardModelJudge(endpoint, CONFIG).judge(a_case())
        named = CONFIG.model_copy(update={"model": "m"})
        rule = ScriptedJudge(lambda text: -1)
        verdict = await RewardModelJudge(endpoint, named, rule=rule).judge(a_case())
    (path, body, key), (_, second, _) = server.requests
    assert (path, key) == ("/classify", "Bearer the-key")
    assert "<next_state" in body["input"]
    assert "shorter please" in body["input"]
    assert ("model" in body, second["model"]) == (False, "m")
    assert verdict.detail["rule"] == -1


@pytest.mark.parametrize(
    "lie",
    [
        classified(),
        classified(0.5, 1.5),
        classified(0.5, -0.1),
        classified(0.5, None),
        classified(0.5, True),
        classified(0.5, "0.9"),
        {"data": []},
        {"data": {"probs": [1]}},
        [0.9],
        b'{"data": [{"probs": [0.1, NaN]}]}',
        b"",
    ],
)
async def test_what_is_no_probability_abstains(lie: Any) -> None:
    async with judge_server() as (server, endpoint):
        server.answer = lambda at: lie
        asker = VerdictMaker(RewardModelJudge(endpoint, CONFIG), CONFIG)
        verdict = await asker.verdict(a_turn(id=3), [user("no")])
    assert (verdict.value, verdict.reward) == (None, None)
    assert verdict.detail["reason"].startswith(("PolicyError", "PolicyUnavailable"))


async def test_a_server_without_such_a_route_is_an_error_that_tells_it() -> None:
    async with judge_server() as (server, endpoint):
        server.status, server.answer = 404, lambda at: {"detail": "Not Found"}
        with pytest.raises(PolicyError, match="/classify with 404"):
            await RewardModelJudge(endpoint, CONFIG).judge(a_case())
