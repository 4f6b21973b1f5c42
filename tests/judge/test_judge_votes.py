"""What counts as a vote, and what votes decide."""

from __future__ import annotations

import asyncio

import pytest

from clawrl_gym.judge.models.chat_models import Completion
from clawrl_gym.judge.models.votes import gather_until, is_certain, majority, parse_vote
from tests.support.fakes_judge import whole


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        (r"\boxed{1}", 1),
        (r"\boxed{0}", 0),
        (r"\boxed{-1}", -1),
        (r"\boxed{+1}", 1),
        (r"\boxed{ 1 }", 1),
        ("\\boxed{\n-1\n}", -1),
        (r"\boxed{1.0}", 1),
        (r"\boxed{-1.0}", -1),
        (r"\boxed{0.0}", 0),
        (r"\boxed{\text{1}}", 1),
        (r"\boxed{ \text{ -1 } }", -1),
        (r"$\boxed{1}$.", 1),
        (r"first \boxed{1}, no: \boxed{-1}", -1),
        (r"\boxed{maybe}, so \boxed{0}", 0),
        (r"<think>\boxed{1}</think> \boxed{-1}", -1),
        (r"reasoning that began in the prompt \boxed{1}</think>\boxed{-1}", -1),
        (r"<think>a</think><think>b</think>\boxed{1}", 1),
        (r"\boxed{\mathbf{-1}}", -1),
        (r"\boxed{\textbf{ 1 }}", 1),
        (r"\boxed{\text{\bf{-1}}}", -1),
        (r"\boxed {1}", 1),
        (r"\boxed{$-1$}", -1),
        (r"\boxed{(-1)}", -1),
        (r"\boxed{\,-1\ }", -1),
        (r"\boxed{\{0\}}", 0),
        (r"\boxed{-1}<|im_end|>", -1),
        ("\u201c1\u201d", 1),
        ("\u2018-1\u2019", -1),
        ("\ufeff-1", -1),
        ("\u200b-1\u200b", -1),
        ("-1<|eot_id|>", -1),
        ("-1</s>", -1),
        ("-1<end_of_turn><eos>\n", -1),
        ("Score: -1, because it failed", -1),
        ("verdict -> -1", -1),
        ("verdict \u2192 1", 1),
        (r"Vote = \(-1\)", -1),
        ('{"verdict": -1,}', -1),
        ("{verdict: -1}", -1),
        ('[{"score": -1}]', -1),
        ("<answer>-1</answer>", -1),
        ("<answer>\n0\n</answer>", 0),
        ("<score>1</score><reason>It said 3.</reason>", 1),
        ("<verdict>**-1**</verdict>", -1),
        ("<VOTE>+1</VOTE>", 1),
        ("<score>-1", -1),
        ("It failed.\n\nAnswer: **-1**", -1),
        ("[[-1]]", -1),
        ("Rating: [[1]]", 1),
        ("\\boxed{\uff11}", 1),
        ("\\boxed{\u22121}", -1),
        ("1", 1),
        ("-1", -1),
        ("**-1**", -1),
        ("__0__", 0),
        ("`-1`", -1),
        ("\u22121", -1),
        ("\uff0d1", -1),
        ("\u20131.", -1),
        ("+1", 1),
        ("[-1]", -1),
        ("$-1$", -1),
        ('{"verdict": -1}', -1),
        ('{"verdict": "-1"}', -1),
        ('{"vote": +1}', 1),
        ('{"score": 1.0, "confidence": 0.4}', 1),
        ('{"reason": "the user said 1 is wrong", "verdict": 0}', 0),
        ('{"result": {"verdict": -1}}', -1),
        ("{'verdict': -1}", -1),
        ('```json\n{"verdict": -1}\n```', -1),
        ("```\n-1\n```", -1),
        ('Here it is:\n```json\n{\n  "vote": 1\n}\n```\nI hope this helps.', 1),
        ("Score: -1", -1),
        ("verdict = +1", 1),
        ("**Verdict:** -1", -1),
        ("**Verdict: -1**", -1),
        ("Verdict: **1**", 1),
        ("Final answer: 0", 0),
        ("## Verdict\n-1", -1),
        ("my vote is -1.", -1),
        ("I vote -1", -1),
        ("Rating\uff1a\uff0d1", -1),
        ("Score (-1, 0 or 1): -1", -1),
        ("The user corrected the reply, which said 42.\n\n-1", -1),
        ("The user is content.\nVerdict: 1", 1),
        ("Verdict: 1\n\nScore: 1", 1),
        ("<think>Score: 1</think>\n**-1**", -1),
        ("<thinking>vote 1</thinking>Score: -1", -1),
        ("[THINK]1[/THINK]-1", -1),
        ("<|channel|>analysis<|message|>1?<|end|><|channel|>final<|message|>-1", -1),
    ],
)
def test_a_vote_is_read(text: str, vote: int) -> None:
    """The reference reads only \\boxed{1} and \\boxed{+1}."""
    assert parse_vote(whole(text)) == vote


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "10",
        "-1.5",
        "boxed{1}",
        "Score: 1 or -1",
        "Score: 0/1",
        "Score: 1 / 10",
        "Score: 1 out of 5",
        "Score: 10",
        "Score: 0.5",
        "Score: -1.5",
        "Verdict: 1\nVerdict: -1",
        "Score: 1\n\n-1",
        "Score: 1? No. Score: -1",
        "verdict: 1, 0",
        "1: good\n0: unclear\n-1: bad",
        "Verdict: good",
        "the answer is 1",
        "1 apple",
        '{"verdict": 1, "score": -1}',
        '{"verdict": true}',
        '{"verdict": null}',
        '{"verdict": [1, -1]}',
        '{"verdict": 2}',
        '{"verdict": "good"}',
        '{"reason": "Score: 1"}',
        "<thinking>Score: 1",
        "[THINK]Score: 1",
        r"\boxed{2} Score: 1",
        r"\boxed",
        r"\boxed{}",
        r"\boxed{1",
        r"\boxed{\text{1}",
        r"\boxed{1}}".replace("1", "11"),
        r"\boxed{2}",
        r"\boxed{-2}",
        r"\boxed{0.5}",
        r"\boxed{1.5}",
        r"\boxed{--1}",
        r"\boxed{- 1}",
        r"\boxed{1, 0}",
        r"\boxed{one}",
        r"\boxed{1e0}",
        r"\boxed{\frac{1}{1}}",
        r"\boxed{\text{good}}",
        "<score>0.5</score>",
        "<score>1</score><vote>-1</vote>",
        "<answer>the reply says 1</answer>",
        "Score: 1, -1",
        "Answer: 1\nBut it may be otherwise.",
        '{"score": 1}\n{"score": -1}',
        '{"votes": [1, 1]}',
        "-1/1",
        "\\boxed{\u0661}",
        r"\boxed{1} or \boxed{nothing}",
        r"<think>so it is \boxed{1}",
        r"<think>a</think>\boxed{1} <think>or not",
        r"<think>\boxed{1}</think>",
        r"<think>\boxed{1}</think> the reply was good",
    ],
)
def test_nothing_else_is_a_vote(text: str) -> None:
    assert parse_vote(whole(text)) is None


def test_a_judge_that_is_cut_off_while_it_repeats_the_rubric_has_not_voted() -> None:
    """In the reference it votes 0."""
    rubric = r"I end with \boxed{1}, \boxed{-1}, or \boxed{0}"
    assert parse_vote(Completion(rubric, finished=False)) is None


@pytest.mark.parametrize(
    ("votes", "quorum", "value"),
    [
        ([1, 1, -1], 2, 1),
        ([-1, -1, None], 2, -1),
        ([0, 0, 1], 2, 0),
        ([1, -1], 2, 0),
        ([1, -1, 0], 2, 0),
        ([1, 1, -1, -1, 0], 2, 0),
        ([1, None, None], 1, 1),
        ([1, None, None], 2, None),
        ([None, None, None], 1, None),
        ([], 1, None),
    ],
)
def test_the_majority_of_a_quorum_decides_and_a_tie_is_neutral(
    votes: list[int | None], quorum: int, value: int | None
) -> None:
    """In the reference one valid vote of three decides, and none at all counts as 0."""
    assert majority(votes, quorum) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("quorum", [1, 2, 3, 4])
def test_a_certain_majority_is_never_changed_by_the_votes_that_are_left_out(quorum: int) -> None:
    some = (1, 0, -1, None)
    sure = 0
    for first in ([a, b] for a in some for b in some):
        ends = {majority([*first, c, d], quorum) for c in some for d in some}  # type: ignore[list-item]
        if is_certain(first, 2, quorum):  # type: ignore[arg-type]
            sure += 1
            assert len(ends) == 1
    for first in ([a, b, c] for a in some for b in some for c in some):
        ends = {majority([*first, d], quorum) for d in some}  # type: ignore[list-item]
        if is_certain(first, 1, quorum):  # type: ignore[arg-type]
            sure += 1
            assert len(ends) == 1
    assert sure > 0


async def test_what_is_no_longer_needed_is_cancelled_and_has_ended() -> None:
    ended = []

    async def one(at: int) -> int:
        try:
            await asyncio.sleep(0 if at < 2 else 3600)
        finally:
            ended.append(at)
        return at

    came = await gather_until([one(at) for at in range(5)], lambda came, _: len(came) == 2, 20)
    assert (sorted(came), sorted(ended)) == ([0, 1], [0, 1, 2, 3, 4])


async def test_without_time_what_has_come_is_kept() -> None:
    async def one(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    assert await gather_until([one(3600), one(0)], lambda *_: False, 0.05) == [0]


async def test_whoever_is_cancelled_leaves_no_question_behind() -> None:
    ended = asyncio.Event()

    async def one() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    asking = asyncio.create_task(gather_until([one()], lambda *_: False, 3600))
    await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert asking.cancelled()
    assert ended.is_set()
