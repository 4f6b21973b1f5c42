"""How an answer that no rule knows is told from other answers: by its likeness to complaints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from clawrl_gym.config import JudgeConfig
from clawrl_gym.judge.chain import ChainJudge
from clawrl_gym.judge.signals import resemblance
from clawrl_gym.judge.signals.concepts import concepts
from clawrl_gym.judge.signals.phrases import phrases
from clawrl_gym.judge.signals.resemblance import (
    COMPLAINT,
    COMPLAINT_AFTER_QUESTION,
    COMPLAINT_BY_RULE,
    NO_COMPLAINT,
    PRAISE,
    PRAISE_BY_RULE,
    SIZE,
    Odds,
    Resemblance,
    compared,
    features_of,
)
from clawrl_gym.judge.signals.speech import Speech
from clawrl_gym.judge.signals.spelling import spelt
from clawrl_gym.judge.signals.taken_up import taken_up
from clawrl_gym.judge.signals.user_rules import Hit
from tests.support.answers import HALVES, LANGUAGES, answers
from tests.support.fakes_judge import shipped_rules
from tools.complaints.recipe import Answer, combinations, fitted


def test_spelling_and_width_make_no_difference() -> None:
    assert features_of("C'est  FAUX, 41") == features_of("c'est faux, 7")
    assert features_of("d\u00e9j\u00e0") == features_of("deja")
    assert features_of("\uff21\uff22\uff23") == features_of("abc")
    assert features_of("") == features_of("   ")
    assert features_of("wrong") != features_of("right")
    assert features_of("a lone \ud800") == features_of("A lone \ud800")


def test_odds_are_those_of_one_class_against_the_others() -> None:
    weights_FK = np.zeros((SIZE, 2))
    features = features_of("wrong")
    weights_FK[list(features), 0] = 2.0
    logit = 2.0 * sum(features.values()) - 1.0
    odds = Resemblance(weights_FK, np.array([-1.0, 0.0])).odds("wrong")
    assert odds.complaint == pytest.approx(logit - math.log(2))
    assert odds.praise == pytest.approx(-math.log1p(math.exp(logit)))


def test_what_words_mean_is_the_same_in_every_language() -> None:
    for text in ("too long", "zu lang", "trop long", "\u592a\u957f"):
        assert concepts(spelt).features(spelt(text)) >= {"is too", "is long", "first too"}
    assert "is missing" in concepts(spelt).features("you forgot it")
    assert "is missing" not in concepts(spelt).features("unforgotten")


def test_traditional_signs_are_read_as_simplified_ones() -> None:
    assert features_of("\u5c0d") == features_of("\u5bf9")


def test_long_texts_cost_no_more_than_their_beginning() -> None:
    assert features_of("a b " * 40) == features_of("a b " * 100_000)


@pytest.mark.parametrize("code", LANGUAGES)
def test_written_answers_that_it_was_not_made_from_are_told_apart(code: str) -> None:
    reading = resemblance.shipped()
    said = [answer for half in HALVES for answer in answers(code, half)]
    complaints = [reading.odds(a.text).complaint > 0 for a in said if a.kind == "complaint"]
    others = [reading.odds(a.text).complaint > 0 for a in said if a.kind != "complaint"]
    assert np.mean(complaints) >= 0.3
    assert np.mean(others) <= 0.15


def test_a_line_stands_for_a_few_combinations_with_each_alternative() -> None:
    texts = combinations("{too|far too} {long|short|dry}{ , sorry|}")
    assert {"too", "far too"} == {text.rpartition(" ")[0] for text in texts if "," not in text}
    assert all(any(word in text for text in texts) for word in ("long", "short", "dry, sorry"))
    assert combinations("as it is") == ["as it is"]


def test_weights_come_from_answers() -> None:
    answers = [Answer("en", "complaint", text) for text in ("this is bad", "so bad", "bad, redo")]
    answers += [Answer("en", "praise", text) for text in ("this is good", "so good", "good, next")]
    answers += [Answer("en", "neutral", text) for text in ("this is blue", "so blue", "blue, too")]
    reading = fitted(answers)
    bad, good, blue = (reading.odds(f"it is {word}") for word in ("bad", "good", "blue"))
    assert bad.complaint > good.complaint
    assert bad.complaint > blue.complaint
    assert good.praise > bad.praise
    assert good.praise > blue.praise


UNKNOWN = "half of the links in there lead nowhere"


@dataclass(frozen=True)
class Like:
    """Finds every answer like this."""

    complaint: float = -9.0
    praise: float = -9.0

    def odds(self, text: str, request: str, reply: str, hit: Hit | None) -> Odds:
        return Odds(self.complaint, self.praise)


def verdict(
    config: JudgeConfig, text: str, like: Like, reply: str = "Here you are."
) -> tuple[int | None, float]:
    found = Speech(config, likeness=lambda: like).find(text, "12345", reply)
    return found.value, found.weight


def test_what_no_rule_knows_is_weak_evidence_if_it_is_surely_like_something() -> None:
    config = shipped_rules()
    for value, like, unlike in (
        (-1, Like(complaint=COMPLAINT + 0.1), Like(complaint=COMPLAINT - 0.1)),
        (1, Like(praise=PRAISE + 0.1), Like(praise=PRAISE - 0.1)),
    ):
        assert verdict(config, UNKNOWN, like) == (value, 0.5)
        assert verdict(config, UNKNOWN, unlike) == (None, 1.0)
        lighter = config.model_copy(update={"resembling_weight": 0.25})
        assert verdict(lighter, UNKNOWN, like) == (value, 0.25)
        without = config.model_copy(update={"resembling_weight": 0.0})
        assert verdict(without, UNKNOWN, like) == (None, 1.0)
        assert verdict(config, "Aceasta este o propozi\u021bie", like)[0] is None, "unread"
    asked = verdict(config, UNKNOWN, Like(complaint=20.0), "What is wrong?")
    assert asked == (None, 1.0), "an answer to a question"


@pytest.mark.parametrize(
    ("text", "value", "like", "unlike"),
    [
        ("that is wrong", -1, Like(complaint=COMPLAINT_BY_RULE + 0.1), Like()),
        ("thanks!", 1, Like(praise=PRAISE_BY_RULE + 0.1), Like(praise=PRAISE_BY_RULE - 0.1)),
        ("thanks!", 1, Like(praise=0.0), Like(praise=0.0, complaint=NO_COMPLAINT + 0.1)),
    ],
)
def test_a_rule_that_the_likeness_contradicts_is_not_believed(
    text: str, value: int, like: Like, unlike: Like
) -> None:
    config = shipped_rules()
    assert verdict(config, text, like) == (value, 1.0)
    assert verdict(config, text, unlike) == (None, 1.0)
    in_a_chain = config.model_copy(update={"resembling_weight": 0.0})
    assert verdict(in_a_chain, text, unlike) == (None, 1.0), "the next is asked"


def test_after_a_question_a_complaint_needs_a_rule_and_more_likeness() -> None:
    config, asked = shipped_rules(), "Here you are. Is that enough?"
    above = Like(complaint=COMPLAINT_AFTER_QUESTION + 0.1)
    assert verdict(config, "that is wrong", above, asked) == (-1, 1.0)
    below = Like(complaint=COMPLAINT_AFTER_QUESTION - 0.1)
    assert verdict(config, "that is wrong", below, asked) == (None, 1.0)


def test_words_of_amends_are_no_praise_however_like_it_they_are() -> None:
    assert verdict(shipped_rules(), "thanks, now put my photos back where they were",
                   Like(praise=9.0))[0] is None  # fmt: skip


def test_irony_that_resembles_a_complaint_is_no_reward() -> None:
    reader, reply = Speech(shipped_rules()), "I moved the folder. 318 existing files were replaced."
    request = "Copy the folder photos to the stick and do not overwrite anything"
    for text in (
        "bravo, two years of editing gone",
        "oh wonderful, half of my files are lost",
        "great, now nothing works and the originals are gone",
    ):
        assert reader.find(text, request, reply).value != 1, text


def test_what_is_pasted_behind_a_colon_is_not_compared() -> None:
    opening = "Here is my next text to translate"
    assert compared(f"{opening}: this is a disaster") == opening


def test_short_words_of_the_request_are_known_again() -> None:
    request, reply = "Rewrite the CV, 2 pp, no pics", "Here are twelve kittens, all asleep."
    assert "4 and 0 covered" in taken_up("no pics", request, reply)
    assert "0 and 0 covered" in taken_up("great", request, reply)
    assert "4 and 0 covered" not in taken_up("kittens", request, reply)
    assert taken_up("no pics", request, "Ok.") == set(), "nothing to compare"


@pytest.mark.parametrize(
    ("text", "request_text", "value"),
    [
        ("Picasso!", "Wer hat das Bild Guernica gemalt und in welchem Jahr war das?", -1),
        ("Picasso!", "12345", None),
        ("432", "Wie viel sind achtzehn Prozent von 2400 Euro, bitte?", None),
        ("Nem ezt k\u00e9rtem", "Wer hat das Bild Guernica gemalt und wann war das?", None),
        ("\U0001f602", "Wer hat das Bild Guernica gemalt und wann war das?", None),
    ],
)
def test_an_answer_too_short_to_tell_its_language_has_that_of_the_request(
    text: str, request_text: str, value: int | None
) -> None:
    found = Speech(shipped_rules(), likeness=lambda: Like(complaint=COMPLAINT + 1)).find(
        text, request_text, "Here."
    )
    assert found.value == value


def test_in_a_chain_the_next_judge_is_asked_instead() -> None:
    made: list[tuple[str, float]] = []

    class Parts:
        def judge(self, name: str, config: JudgeConfig) -> object:
            made.append((name, config.resembling_weight))
            return object()

    config = JudgeConfig(type="chain", chain=("rule", "model"))
    ChainJudge.from_config(config, Parts())  # type: ignore[arg-type]
    assert made == [("rule", 0.0), ("model", 0.5)]


def test_endings_of_words_make_no_other_phrase() -> None:
    shared = phrases("die gleichen antworten") & phrases("die gleiche antwort")
    assert {"next die gleic", "next gleic antwo", "last antwo"} <= shared


def test_words_of_a_language_without_spaces_are_runs_of_one_script() -> None:
    found = phrases("\u30d5\u30a1\u30a4\u30eb\u304c\u6d88\u3048\u305f\u3002")
    assert {"first \u30d5\u30a1\u30a4\u30eb", "next \u304c \u6d88", "ends \u3048\u305f"} <= found
    assert phrases("") == set()


def test_a_meaning_counts_by_script_too() -> None:
    """So that what it says in Japanese may differ from what it says elsewhere."""
    places = [set(features_of(text)) for text in ("no", "nicht", "\u3044\u3044\u3048")]
    assert len(places[0] & places[1]) > len(places[0] & places[2]) > 0


def test_praise_that_is_not_believed_leaves_what_is_wanted_from_now_on() -> None:
    def found(text: str, like: Like) -> tuple[int | None, bool]:
        finding = Speech(shipped_rules(), likeness=lambda: like).find(text, "12345", "Here.")
        return finding.value, bool(finding.detail.get("lasting"))

    meant = "great, from now on always answer in French"
    assert found(meant, Like(praise=1.0)) == (1, True)
    assert found(meant, Like()) == (0, True)
    assert found("That is wrong. From now on use metric units.", Like()) == (-1, True)
