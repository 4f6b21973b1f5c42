"""Praise that asks for amends or names the damage earns nothing; praise that goes on mostly does.

The lists were written by somebody who had seen neither rules nor recipe. When they were read for
the first time, 20 of the 240 that do not mean their praise were +1 by the rules of before, and 2
by those that were made without them; the 2 were then mended.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.judge.signals.language import declared
from tests.support.answers import LANGUAGES, speech
from tests.support.fakes_judge import shipped_rules

LISTS = Path(__file__).parents[1] / "fixtures" / "replies" / "taken_back.yaml"
DELETED = ("Delete the two blurred photos.", "I have deleted the 240 photos in your folder.")
PLAIN = ("12345", "Here you are.")


@functools.cache
def listed() -> dict[str, dict[str, str]]:
    lists: dict[str, dict[str, str]] = plain_values(LISTS.read_text("utf-8"))
    return lists


def values(code: str, kind: str, request: str, reply: str) -> list[int | None]:
    said = filter(None, listed()[code][kind].splitlines())
    return [speech().find(text, request, reply).value for text in said]


@pytest.mark.parametrize(("asked", "reply"), [PLAIN, DELETED])
@pytest.mark.parametrize("code", LANGUAGES)
def test_praise_that_is_taken_back_is_never_a_reward(code: str, asked: str, reply: str) -> None:
    found = values(code, "undeserved", asked, reply)
    assert len(found) == 30
    assert 1 not in found
    assert found.count(-1) >= 10


@pytest.mark.parametrize("code", LANGUAGES)
def test_praise_that_goes_on_is_no_complaint_and_often_seen(code: str) -> None:
    found = values(code, "deserved", *PLAIN)
    assert len(found) == 20
    assert found.count(-1) <= 2
    assert found.count(1) >= 3


@pytest.mark.parametrize(
    "text",
    ["thanks, now do it right", "great, now put them back", "perfect. now bring them back",
     "génial, maintenant remets-les", "super, jetzt hol sie zurück", "gracias, ahora devuélvelas",
     "obrigado, agora põe tudo de volta", "спасибо, теперь верни их", "谢谢。现在恢复它们",
     "ありがとう、では元に戻して"],
)  # fmt: skip
def test_thanks_for_photos_that_were_deleted_by_mistake_are_none(text: str) -> None:
    assert speech().find(text, *DELETED).value != 1


CONTENTED = {
    "en": ["thanks once more", "great, now I can log in again", "thanks, you always get it right"],
    "de": ["danke, das haut hin", "super, das macht richtig spass", "danke, ist wiedergefunden"],
    "fr": ["merci, c'est corrigé", "merci, j'ai récupéré mes photos", "merci, ça rend bien"],
    "es": ["gracias, ya está reparado", "gracias, rápido y bien", "gracias, he recuperado todo"],
    "pt": ["obrigado, recuperei as fotos", "obrigado, já está corrigido", "obrigada, consertou"],
    "ja": ["直してくれてありがとう", "ありがとう、バグが全部消えました"],
    "ru": ["спасибо, всё отлично работает", "спасибо, купил два дня назад"],
    "zh": ["谢谢,已经恢复正常了", "谢谢,你真会写", "谢谢,现在能正常看了"],
}


@pytest.mark.parametrize("code", LANGUAGES)
def test_words_of_amends_in_contentment_take_nothing_back(code: str) -> None:
    rules = declared(shipped_rules())[code].rules
    found = {text: rules.find(text, False) for text in CONTENTED[code]}
    assert {text: hit and hit.value for text, hit in found.items()} == dict.fromkeys(found, 1)
