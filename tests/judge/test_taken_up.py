"""Whose words an answer uses, the request's or the reply's: features that all languages share."""

from __future__ import annotations

import pytest

from clawrl_gym.judge.signals.taken_up import taken_up

REQUEST = "Who was the first woman in space, and in which year?"
REPLY = "The first woman in space was Sally Ride, aboard the shuttle Challenger in 1983."


def test_words_and_numbers_are_the_replys_the_requests_both_or_new() -> None:
    features = taken_up("Challenger in which year? A woman in 1963, not 1983", REQUEST, REPLY)
    assert {"is @reply", "is @request", "is @both", "is #new", "is #reply"} <= features
    assert "is @new" not in features
    assert "is @new" in taken_up("Tereshkova, surely", REQUEST, REPLY)


def test_what_stands_beside_a_meaning_or_a_sign_is_told() -> None:
    assert "next neg @reply" in taken_up("not Sally", REQUEST, REPLY)
    assert "sign ? @reply" in taken_up("Sally?", REQUEST, REPLY)
    assert "no question @reply" in taken_up("Sally.", REQUEST, REPLY)
    assert "no question @reply" not in taken_up("Sally?", REQUEST, REPLY)


@pytest.mark.parametrize(
    ("text", "request_text", "reply"),
    [
        (
            "not Saturday, Friday",
            "Move the talk to Friday, please",
            "Moved the talk to Saturday at ten",
        ),
        ("nicht Samstag, Freitag", "Verschieb das auf Freitag", "Verschoben auf Samstag um zehn"),
        ("не суббота, пятница", "Перенеси встречу, пятница", "Перенёс встречу, суббота, утро"),
        ("不是周六\uff0c是周五", "把会改到周五", "已把会改到周六上午"),
    ],
)
def test_a_corrected_value_looks_the_same_in_every_language(
    text: str, request_text: str, reply: str
) -> None:
    features = taken_up(text, request_text, reply)
    assert {"next neg @reply", "near neg @request", "near @reply @request"} <= features


def test_nothing_is_compared_with_a_reply_of_few_words() -> None:
    assert taken_up("Sally?", REQUEST, "Done.") == set()
    assert taken_up("Sally?", "", "") == set()
    assert taken_up("", REQUEST, REPLY) == set()


def test_numbers_are_compared_however_they_are_written() -> None:
    assert "is #reply" in taken_up("1,983?", REQUEST, REPLY)
    assert "is #new" in taken_up("\uff11\uff19\uff16\uff13", REQUEST, REPLY)
