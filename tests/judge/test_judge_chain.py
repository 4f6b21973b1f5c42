"""Several judges: the first clear verdict is the verdict."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clawrl_gym.config import RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.types import Verdict
from clawrl_gym.judge.chain import ChainJudge
from clawrl_gym.judge.interface import Case, Judge
from clawrl_gym.judge.model import ModelJudge
from tests.support.fakes_judge import HINTS, VOTES, ScriptedChatModel, a_case


class Says:
    """A judge that always says the same, or fails."""

    def __init__(self, value: Any, kind: Any = "rule", **detail: Any) -> None:
        self._value, self.kind = value, kind
        self._detail: Any = detail
        self.asked = 0

    async def judge(self, case: Case) -> Verdict:
        self.asked += 1
        if isinstance(self._value, Exception):
            raise self._value
        if self._value == "slow":
            await asyncio.sleep(3600)
        reward = None if self._value is None else float(self._value)
        return Verdict(case.turn_id, self.kind, self._value, reward, self._detail, 0.0)


async def chained(*judges: Judge, timeout_s: float = 20.0) -> Verdict:
    return await ChainJudge(judges, timeout_s).judge(a_case())


@pytest.mark.parametrize("first", [0, None, RuntimeError("broken"), "slow"])
async def test_whoever_is_not_clear_hands_on(first: Any) -> None:
    verdict = await chained(Says(first), Says(-1, "model"), timeout_s=0.2)
    assert (verdict.turn_id, verdict.value, verdict.kind) == (7, -1, "model")


async def test_after_a_clear_verdict_nobody_else_is_asked() -> None:
    last = Says(-1, "model")
    verdict = await chained(Says(1, rule="thanks"), last)
    assert (verdict.value, verdict.kind, last.asked) == (1, "rule", 0)
    assert verdict.detail == {"rule": "thanks"}


async def test_a_neutral_verdict_goes_before_abstentions() -> None:
    late = Says("slow", "model")
    for judges in ([Says(0), Says(None)], [Says(None), Says(0)], [Says(0), late]):
        assert (await chained(*judges, timeout_s=0.2)).value == 0


async def test_when_all_fail_the_chain_abstains_with_a_reason() -> None:
    verdict = await chained(Says(RuntimeError("one")), Says(ValueError("two"), "model"))
    assert (verdict.value, verdict.reward) == (None, None)
    assert "one" in verdict.detail["reason"]


async def test_hints_and_votes_of_all_that_were_asked_are_kept() -> None:
    model = Says(None, "model", hints=["b", "a"], votes=[None], reason="no votes", hints_asked=2)
    verdict = await chained(Says(0, rule="none", hints=["a"]), model)
    assert (verdict.value, verdict.hints) == (0, ("a", "b"))
    assert verdict.detail["votes"] == [None]
    assert (verdict.detail["rule"], verdict.detail["hints_asked"]) == ("none", 2)
    assert "reason" not in verdict.detail


def test_a_chain_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ChainJudge([], 1.0)


@pytest.mark.parametrize("name", ["model", "reward_model", "chain", "feedback"])
def test_the_shipped_judges_compose(name: str) -> None:
    config = compose("train", [f"judge={name}"], RunConfig).judge
    assert config.type == name
    assert config.quorum <= config.votes
    if name in ("model", "chain"):
        assert config.instructions.splitlines()[0] == VOTES
        assert config.hint_instructions.splitlines()[0] == HINTS
        assert config.replies, "the rules are asked beside a model"
        ModelJudge(ScriptedChatModel(r"\boxed{1}"), config, hints=True)
