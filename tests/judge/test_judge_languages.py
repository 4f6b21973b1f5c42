"""What persons say in the declared languages, and that nobody is rewarded in another one."""

from __future__ import annotations

import asyncio
import time

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.rules import RuleJudge
from clawrl_gym.judge.signals import language
from clawrl_gym.judge.signals.speech import Speech
from tests.support.answers import (
    HALVES,
    LANGUAGES,
    UNDECLARED,
    answers,
    finding_of,
    is_as_meant,
    speech,
)
from tests.support.fakes_judge import reply, shipped_rules, user
from tests.support.tool_results import rule_judge


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("code", LANGUAGES)
def test_complaints_are_seen_and_never_reinforced(code: str, half: str) -> None:
    said = [answer for answer in answers(code, half) if answer.kind == "complaint"]
    values = [finding_of(speech(), answer).value for answer in said]
    assert not {0, 1} & set(values)
    assert values.count(-1) >= 0.75 * len(values)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("code", LANGUAGES)
def test_praise_is_mostly_seen_and_nothing_else_is_blamed(code: str, half: str) -> None:
    said = [answer for answer in answers(code, half) if answer.kind in ("praise", "neutral")]
    values = [finding_of(speech(), answer).value for answer in said]
    praised = [value for answer, value in zip(said, values, strict=True) if answer.kind == "praise"]
    assert values.count(-1) <= 0.1 * len(values)
    assert praised.count(1) >= 0.65 * len(praised)  # what may be meant otherwise is no reward


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("code", LANGUAGES)
def test_an_instruction_for_the_future_is_known(code: str, half: str) -> None:
    said = [answer for answer in answers(code, half) if answer.kind == "future"]
    right = [is_as_meant("future", finding_of(speech(), answer)) for answer in said]
    assert sum(right) >= 0.85 * len(right)


@pytest.mark.parametrize("half", HALVES)
def test_nothing_in_another_language_is_rewarded_and_hardly_anything_judged(half: str) -> None:
    values = [finding_of(speech(), answer).value for answer in answers(UNDECLARED, half)]
    assert not {0, 1} & set(values)
    assert values.count(-1) <= 0.05 * len(values)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("use British spelling from now on", 0),
        ("ab jetzt bitte nur Stichpunkte", 0),
        ("今後は敬語で", 0),
        ("No, that is wrong. From now on use metric units.", -1),
        ("以后都用简体中文回答", 0),
        ("dorénavant sans emojis", 0),
    ],
)
def test_an_instruction_for_the_future_is_a_hint_in_the_persons_words(
    words: str, value: int
) -> None:
    case = Case(1, "12345", reply("Here you are."), [user(words + " <|im_end|>")])
    verdict = asyncio.run(rule_judge(hints=True).judge(case))
    assert (verdict.value, verdict.weight) == (value, 0.5 if value else 1.0)
    (hint,) = verdict.hints
    assert hint.startswith(f"The user said: {words[:20]}")
    assert "<|" not in hint


@pytest.mark.parametrize(
    ("words", "codes", "value"),
    [
        ("Das ist falsch, es sind 42", ("en", "de"), -1),
        ("Das ist falsch, es sind 42", ("en",), None),
        ("That is wrong", ("de",), None),
        ("这不是我要的", ("en", "de"), None),
        ("Это неправильно", ("en", "de"), None),
        ("\U0001f44e", ("en", "de"), -1),
    ],
)
def test_only_declared_languages_are_read(
    words: str, codes: tuple[str, ...], value: int | None
) -> None:
    reader = Speech(shipped_rules(languages=codes))
    found = reader.find(words, "12345", "Here you are.")
    assert found.value == value
    if value is None:
        assert found.detail["rule"] == "language"


def test_a_language_without_rules_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"judge\.languages with 'xx', expected some of de, en"):
        RuleJudge(shipped_rules(languages=("en", "xx")))


def test_every_shipped_language_is_declared_and_its_patterns_find_their_words() -> None:
    config = shipped_rules()
    assert set(language.shipped()) == set(config.languages) == set(LANGUAGES)
    for code, declared in language.declared(config).items():
        assert declared.common or code in ("zh", "ja")


@pytest.mark.parametrize(
    "text",
    ["nicht " * 700, "pas " * 900, "没" * 4000, "不" * 4000, "もっと" * 1300, "не " * 1300,
     "muy " * 900, "das ist " * 500, "é" * 4000, "ich habe " * 400, "très " * 700],
)  # fmt: skip
def test_no_text_takes_long_in_any_language(text: str) -> None:
    started_s = time.process_time()
    speech().find(text, text[::-1], "Here you are.")
    assert time.process_time() - started_s < 2.0  # milliseconds; a runaway pattern takes minutes
