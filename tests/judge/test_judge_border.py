"""The judge's border: what a judge of anybody's gives, checked value by value, and counted."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.types import INTERRUPTED, Verdict
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.verdicts import VerdictMaker
from tests.support.fakes_judge import a_turn, user


class Giving:
    """A judge that gives one thing, or raises it."""

    kind: Any = "rule"

    def __init__(self, given: Any) -> None:
        self._given = given
        self.cases: list[Case] = []

    async def judge(self, case: Case) -> Verdict:
        self.cases.append(case)
        if isinstance(self._given, Exception):
            raise self._given
        verdict: Verdict = self._given
        return verdict


def made(**changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "turn_id": 1,
        "kind": "model",
        "value": 1,
        "reward": 1.0,
        "detail": {},
    }
    return Verdict(**fields | {"created_s": 0.0} | changes)


async def verdict_on(given: Any, maker: VerdictMaker | None = None, **turn: Any) -> Verdict:
    maker = maker or VerdictMaker(Giving(given), JudgeConfig())
    return await maker.verdict(a_turn(**{"id": 1, **turn}), [user("no")])


@pytest.mark.parametrize(
    "changes",
    [
        {"value": -1, "reward": -1.0}, {"value": 0, "reward": 0.0}, {"value": 1, "reward": 0.001},
        {"value": 1, "reward": 1}, {"value": None, "reward": None}, {"weight": 0.001},
        {"weight": 1}, {"kind": "rule"},
        {"detail": {"hints": ["do this"]}}, {"detail": {"hints": []}},
        {"detail": {"votes": [1, None], "anything": {"deep": [1.5]}}},
    ],
)  # fmt: skip
async def test_what_is_sound_is_taken_as_it_is(changes: dict[str, Any]) -> None:
    given = made(**changes)
    assert await verdict_on(given) is given


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"value": 2}, "value 2, reward 1.0 and weight 1.0 on 1"),
        ({"value": 0.5}, "value 0.5"),
        ({"value": None}, "value None, reward 1.0"),
        ({"reward": None}, "value 1, reward None"),
        ({"reward": 1.001}, "reward 1.001"),
        ({"reward": -1.001}, "reward -1.001"),
        ({"reward": "much"}, "reward 'much'"),
        ({"weight": 0}, "weight 0 on 1"),
        ({"weight": -0.1}, "weight -0.1"),
        ({"weight": 1.001}, "weight 1.001"),
        ({"weight": "full"}, "weight 'full'"),
        ({"turn_id": 2}, "on 2, expected -1 to 1 on 1, hints in words, a weight in (0, 1]"),
        ({"detail": "good"}, "expected -1 to 1 on 1"),
        ({"detail": {"hints": "do this"}}, "hints in words"),
        ({"detail": {"hints": [""]}}, "hints in words"),
        ({"detail": {"hints": [1]}}, "hints in words"),
        ({"kind": "feedback"}, "the kind 'feedback' and the detail {}, expected one of"),
        ({"kind": "mine"}, "the kind 'mine'"),
        ({"detail": {"x": {1, 2}}}, "and JSON"),
    ],
)
async def test_what_is_not_sound_is_an_abstention_that_says_why(
    changes: dict[str, Any], says: str
) -> None:
    verdict = await verdict_on(made(**changes))
    assert (verdict.turn_id, verdict.kind) == (1, "rule")
    assert (verdict.value, verdict.reward) == (None, None)
    assert says in str(verdict.detail["reason"])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "the judge gave a NoneType, expected a Verdict"),
        (3, "the judge gave a int, expected a Verdict"),
        (ValueError("no luck"), "ValueError: no luck"),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (ValueError("x" * 400), f"ValueError: {'x' * 288}"),
    ],
)
async def test_a_judge_that_fails_abstains(given: Any, reason: str) -> None:
    assert (await verdict_on(given)).detail == {"reason": reason}


async def test_a_reply_that_broke_off_is_not_judged() -> None:
    judge = Giving(made())
    maker = VerdictMaker(judge, JudgeConfig())
    verdict = await verdict_on(None, maker, finish_reason=INTERRUPTED)
    assert verdict.detail == {"reason": "the reply was interrupted"}
    ignoring = VerdictMaker(judge, JudgeConfig(ignore=("no",)))
    verdict = await verdict_on(None, ignoring)
    assert verdict.detail == {"reason": "the next state is empty"}
    assert judge.cases == []
    assert ignoring.counters == {"abstained": 1}


async def test_verdicts_are_counted_by_what_they_say() -> None:
    counted: list[dict[str, int]] = []
    for changes in (
        {"detail": {"hints": ["a", "b"], "hints_asked": 3, "refused": ["x", "y"]}},
        {"value": 0, "reward": 0.0, "detail": {"votes": [1, None, 0, None], "retried": 2}},
        {"value": -1, "reward": -1.0, "detail": {"rule": -1}},
        {"value": -1, "reward": -1.0, "detail": {"rule": 1}},
        {"value": 1, "reward": 1.0, "detail": {"rule": "says_no", "retried": "often"}},
        {"value": 0, "reward": 0.0, "detail": {"rule": 1}},
        {"value": 1, "reward": 1.0, "detail": {"rule": 0, "votes": "many", "refused": 2}},
    ):
        maker = VerdictMaker(Giving(made(**changes)), JudgeConfig())
        await verdict_on(None, maker)
        counted.append(dict(maker.counters))
    assert counted == [
        {"positive": 1, "hints": 1, "hints_asked": 3, "hints_refused": 2},
        {"neutral": 1, "votes": 4, "votes_invalid": 2, "votes_retried": 2},
        {"negative": 1, "agree": 1},
        {"negative": 1, "disagree": 1},
        {"positive": 1},
        {"neutral": 1},
        {"positive": 1},
    ]
    twice = VerdictMaker(Giving(made()), JudgeConfig())
    await verdict_on(None, twice)
    await verdict_on(None, twice)
    assert twice.counters == {"positive": 2}
