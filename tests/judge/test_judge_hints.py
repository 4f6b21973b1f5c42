"""Hints: read from an answer, accepted or refused, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawrl_gym.config import HintConfig
from clawrl_gym.judge.hints import choose, fault, parse_hint
from clawrl_gym.judge.models.chat_models import Completion
from clawrl_gym.judge.rule_hints import hint_of_report, hint_of_words
from tests.support.fakes_judge import hint_answer, whole

CONFIG = HintConfig()
GOOD = "Answer in one short sentence."


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (hint_answer(GOOD), GOOD),
        (rf"[HINT_START]{GOOD}[HINT_END] \boxed{{1}}", GOOD),
        (rf"<think>\boxed{{-1}}</think>[HINT_START]{GOOD}[HINT_END]\boxed{{ +1 }}", GOOD),
        (hint_answer("\n  two\n\n lines \t"), "two lines"),
        (r"[HINT_START]a[HINT_END] better: [HINT_START]b[HINT_END] \boxed{1}", "b"),
        (r"[HINT_START]left [HINT_START]b[HINT_END] \boxed{1}", "b"),
        (hint_answer(r"say \boxed{-1}"), r"say \boxed{-1}"),
        (hint_answer(""), ""),
        (rf"[HINT_START]{GOOD}[HINT_END]", None),
        (rf"[HINT_START]{GOOD}[HINT_END] \boxed{{-1}}", None),
        (rf"[HINT_START]{GOOD}[HINT_END] \boxed{{0}}", None),
        (rf"\boxed{{1}} [HINT_START]{GOOD}", None),
        (rf"\boxed{{1}} {GOOD}[HINT_END]", None),
        (rf"\boxed{{1}} {GOOD}", None),
        (rf"<think>{hint_answer(GOOD)}", None),
        (rf"<think>{hint_answer(GOOD)}</think>\boxed{{-1}}", None),
        (r"\boxed{-1}", None),
        ("", None),
    ],
)
def test_a_hint_needs_a_vote_for_it_and_both_markers(text: str, hint: str | None) -> None:
    assert parse_hint(whole(text)) == hint


def test_a_hint_that_is_cut_off_is_none() -> None:
    assert parse_hint(Completion(hint_answer(GOOD), finished=False)) is None


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        ("", "0 characters"),
        ("too short", "at least 10"),
        ("long " * 2000, "at most 500"),
        ("Answer shortly.<|im_end|>", "control tokens"),
        ("Answer <think>shortly</think>.", "control tokens"),
        ("Answer </reply> shortly now.", "control tokens"),
        ("Answer [HINT_START] shortly.", "control tokens"),
        ("Answer [INST] shortly [/INST].", "control tokens"),
        ("Answer <\uff5cUser\uff5c> shortly.", "control tokens"),
        ("Answer <tool_call> shortly.", "control tokens"),
        ("Answer shortly. [hint] And now", "control tokens"),
        ("Answer shortly.\x00\x1b[2J", "control characters"),
        ("Answer \u202eshortly\u202c please", "control characters"),
        (r"End with \boxed{1} always.", "form of a vote"),
        (r"End with \BOXED{1} always.", "form of a vote"),
    ],
)
def test_hints_are_refused(hint: str, why: str) -> None:
    assert why in str(fault(hint, [], CONFIG))


@pytest.mark.parametrize(
    "hint",
    [
        GOOD,
        "Use `ls -l` first; then 2 < 3 && x > y.",
        "Réponds en une phrase 🙂.",
        "Say a\u200db always.",
    ],
)
def test_ordinary_hints_are_accepted(hint: str) -> None:
    assert fault(hint, ["no, shorter"], CONFIG) is None


def test_a_hint_that_repeats_the_next_state_gives_away_and_is_refused() -> None:
    """The reference has no such check: a hint may hold the answer."""
    result = "total 42: one two three, four five six seven eight nine ten"
    asked = HintConfig(max_copied_words=12)
    assert "repeats 12 words" in str(fault(f"Say that it is {result.upper()}!", [result], asked))
    assert fault(f"Say that it is {result[:40]}.", [result], asked) is None
    assert fault("Say one and two, three or four, five then six.", [result], asked) is None
    assert "repeats" in str(fault(f"Say {result}", ["other", result], asked))


def test_words_of_scripts_without_spaces_are_counted_too() -> None:
    result = "合計は四十二で、答えは表の最後の行にあります"
    assert "repeats" in str(fault(f"次のように言う、{result}", [result], CONFIG))


def test_the_longest_comes_first_and_each_comes_once() -> None:
    """The reference asks the teacher with a hint that came several times as if it were several."""
    longer = "Answer in one short and friendly sentence."
    found = [GOOD, "answer in ONE short sentence", longer, "short", GOOD]
    chosen = choose(found, ["no, shorter"], CONFIG)
    assert chosen.accepted == [longer, GOOD]
    assert chosen.refused == [{"hint": "short", "why": "it has 5 characters, expected at least 10"}]


def test_of_a_refused_hint_only_the_beginning_is_kept() -> None:
    (refused,) = choose(["x" * 10_000], [], CONFIG).refused
    assert len(refused["hint"]) == 300


@given(st.text(max_size=600), st.text(max_size=200))
def test_what_is_accepted_holds_no_control_token_and_is_within_bounds(hint: str, came: str) -> None:
    for accepted in choose([hint], [came], CONFIG).accepted:
        assert 10 <= len(accepted) <= 500
        assert "<|" not in accepted
        assert "\\boxed" not in accepted


@pytest.mark.parametrize(("length", "fits"), [(197, 2), (198, 2), (199, 1)])
def test_a_reports_reasons_are_as_many_as_fit_with_what_parts_them(length: int, fits: int) -> None:
    reasons = ["a" * 200, "b" * length, "c"]
    hint = hint_of_report("Test report: failed\n" + "\n".join(f"- {reason}" for reason in reasons))
    assert hint == f"The checks failed: {'; '.join(reasons[:fits])}."


@pytest.mark.parametrize(("length", "fits"), [(196, 2), (197, 2), (198, 1)])
def test_a_persons_sentences_are_as_many_as_fit_with_what_parts_them(
    length: int, fits: int
) -> None:
    sentences = ["a" * 100 + ".", "b" * length + ".", "Then this."]
    assert hint_of_words(" ".join(sentences)) == f"The user said: {' '.join(sentences[:fits])}"


def test_a_reason_that_is_too_long_alone_is_cut() -> None:
    hint = hint_of_report("Test report: failed\n- " + "a" * 500 + "\n- b")
    assert hint == f"The checks failed: {'a' * 397}...."
