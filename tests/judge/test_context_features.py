"""What an answer takes up of the request and the reply before it."""

from __future__ import annotations

import pytest

from clawrl_gym.judge.signals.context_features import NAMES, context_features

REQUEST = "Find a waterproof rucksack under 60 pounds, at least 30 litres."
REPLY = "I recommend the Alpine daypack, water-repellent, 22 litres, for 89.99 in five colours."


def values(text: str, request: str = REQUEST, reply: str = REPLY) -> dict[str, float]:
    features = context_features(text, request, reply)
    assert features is not None
    return dict(zip(NAMES, features, strict=True))


def test_words_of_the_reply_and_of_the_request_are_told_apart() -> None:
    doubted, repeated = values("colours?"), values("a rucksack")
    assert doubted["words of the reply"] == 1 == doubted["a question with words of the reply"]
    assert doubted["words of the request"] == 0
    assert repeated["words of the request"] == 1
    assert repeated["words of the reply"] == 0
    assert values("where is my umbrella")["words of neither"] == 1
    assert values("litres")["words of both"] == 1


def test_numbers_are_those_of_the_reply_of_the_request_or_others() -> None:
    assert values("60, please")["a number of the request"] == 1
    assert values("22 is tiny")["a number of the reply"] == 1
    assert values("it costs 75")["another number than the reply's"] == 1
    assert values("I am 75", reply="Glad to be of any help here")["a number after none"] == 1
    big = values("1,200 then", request="Sum", reply="Altogether they cost 1200 pounds")
    assert big["a number of the reply"] == 1, "thousands are written in more than one way"


def test_languages_that_inflect_or_write_without_spaces_are_compared_too() -> None:
    inflected = values(
        "die Farbe stimmt nicht", "Such einen Rucksack", "Ihn gibt es in f\u00fcnf Farben"
    )
    assert inflected["words of the reply"] == 1
    chinese = values("盐水?", "薄荷怎么养", "每年施一次盐水")
    assert chinese["words of the reply"] == 1 == chinese["a question"]


def test_a_quotation_of_the_reply_is_known_in_any_marks() -> None:
    for quotation in (
        '"five colours", wow',
        "\u201cfive colours\u201d",
        "\u00abfive colours\u00bb",
    ):
        assert values(quotation)["a quotation of the reply"] == 1
    assert values('"something else entirely"')["a quotation of the reply"] == 0


def test_a_long_reply_shares_words_by_chance() -> None:
    assert values("colours", reply=REPLY)["words of the reply"] == 1
    several = " ".join(f"{chr(97 + a)}{chr(97 + b)}cdx" for a in range(20) for b in range(9))
    assert 0 < values("colours", reply=f"{REPLY} {several}")["words of the reply"] < 0.5


@pytest.mark.parametrize("reply", ["", "12345", "Here you are."])
def test_a_reply_without_words_is_not_compared(reply: str) -> None:
    assert context_features("no, the other one", REQUEST, reply) is None


def test_anything_can_be_read() -> None:
    for text in ("", "\ud800", "?" * 5000, "\U0001f44d", "\u3042" * 400):
        assert context_features(text, text, REPLY) is not None
