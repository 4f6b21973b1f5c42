"""What the rule judge says of lists of writers who have not seen its rules."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.answers import LANGUAGES
from tests.support.blind_lists import Read, read_talk, read_tools


def shares(listed: tuple[Read, ...], label: str) -> dict[int | None, float]:
    values = [each.value for each in listed if each.label == label]
    return {value: count / len(values) for value, count in Counter(values).items()}


def test_a_failed_tool_result_is_never_good() -> None:
    for part in ("dev", "test"):
        found = shares(read_tools(part), "failed")
        assert found.get(1, 0) == 0
        assert found[-1] >= 0.8


def test_a_tool_result_that_succeeded_is_seldom_bad() -> None:
    found = shares(read_tools("test"), "succeeded")
    assert found.get(-1, 0) <= 0.03
    assert found[1] >= 0.2


def test_successes_that_speak_of_errors_are_seldom_bad_and_failures_never_good() -> None:
    listed = read_tools("dev_second")
    failed, succeeded = (shares(listed, label) for label in ("failed", "succeeded"))
    assert failed.get(1, 0) == 0
    assert failed[-1] >= 0.75
    assert succeeded.get(-1, 0) <= 0.025
    assert succeeded[1] >= 0.1


def test_plain_praise_is_mostly_good_and_complaints_are_mostly_bad() -> None:
    praise, complaints = (shares(read_talk("test"), label) for label in ("praise", "complaint"))
    assert praise[1] >= 0.5
    assert praise.get(-1, 0) <= 0.035
    assert complaints[-1] >= 0.8
    assert complaints.get(1, 0) == 0


def test_short_answers_and_new_requests_are_seldom_bad() -> None:
    short, neutral = (shares(read_talk("test"), label) for label in ("short", "neutral"))
    assert short.get(-1, 0) <= 0.035
    assert neutral.get(-1, 0) <= 0.03
    assert neutral.get(1, 0) <= 0.005


@pytest.mark.parametrize("code", LANGUAGES)
def test_a_content_person_is_heard_in_every_language(code: str) -> None:
    praise = [
        each.value for each in read_talk("test") if (each.group, each.label) == (code, "praise")
    ]
    assert praise.count(1) >= 0.5 * len(praise)
