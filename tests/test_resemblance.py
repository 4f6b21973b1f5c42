"""How an answer that no rule knows is told from other answers: by its likeness to complaints."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from clawrl_gym.config import JudgeConfig
from clawrl_gym.judge import resemblance
from clawrl_gym.judge.chain import ChainJudge
from clawrl_gym.judge.concepts import concepts
from clawrl_gym.judge.context_features import NAMES
from clawrl_gym.judge.phrases import phrases
from clawrl_gym.judge.resemblance import (
    COMPLAINT,
    PRAISE,
    PRAISE_WITH_MORE,
    SIZE,
    UNTOLD,
    Resemblance,
    compared,
    features_of,
)
from clawrl_gym.judge.speech import Speech
from clawrl_gym.judge.spelling import spelt
from clawrl_gym.judge.taken_up import taken_up
from tests.answers import HALVES, LANGUAGES, answers
from tests.fakes_judge import shipped_rules
from tools.complaints import recipe
from tools.complaints.recipe import Answer, combinations, fitted


def test_spelling_and_width_make_no_difference() -> None:
    assert features_of("C'est  FAUX, 41") == features_of("c'est faux, 7")
    assert features_of("d\u00e9j\u00e0") == features_of("deja")
    assert features_of("\uff21\uff22\uff23") == features_of("abc")
    assert features_of("") == features_of("   ")
    assert features_of("wrong") != features_of("right")
    assert features_of("a lone \ud800") == features_of("A lone \ud800")


def test_a_logit_is_the_sum_of_weighted_values_and_the_bias() -> None:
    weights_F = np.zeros(SIZE)
    features = features_of("wrong")
    weights_F[list(features)] = 2.0
    logit = Resemblance(weights_F, bias=-1.0).logit("wrong")
    assert logit == pytest.approx(2.0 * sum(features.values()) - 1.0)


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
    complaints = [reading.logit(a.text) > COMPLAINT for a in said if a.kind == "complaint"]
    others = [reading.logit(a.text) > COMPLAINT for a in said if a.kind != "complaint"]
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
    reading = fitted(answers)
    assert reading.logit("it is bad") > 0 > reading.logit("it is good")


UNKNOWN = "half of the links in there lead nowhere"


def verdict(config: JudgeConfig, text: str, logit: float) -> tuple[int | None, float]:
    reader = Speech(config, likeness=lambda: Resemblance(np.zeros(SIZE), logit))
    found = reader.find(text, "12345", "Here you are.")
    return found.value, found.weight


def test_what_no_rule_knows_and_resembles_complaints_is_weak_evidence() -> None:
    config, like = shipped_rules(), COMPLAINT + 1
    assert verdict(config, UNKNOWN, like) == (-1, 0.5)
    assert verdict(config, UNKNOWN, COMPLAINT - 1) == (None, 1.0)
    lighter = config.model_copy(update={"resembling_weight": 0.25})
    assert verdict(lighter, UNKNOWN, like) == (-1, 0.25)
    without = config.model_copy(update={"resembling_weight": 0.0})
    assert verdict(without, UNKNOWN, like) == (None, 1.0)
    assert verdict(config, "Aceasta este o propozi\u021bie", like)[0] is None, "another language"
    asked = Speech(config, likeness=lambda: Resemblance(np.zeros(SIZE), like))
    assert asked.find(UNKNOWN, "12345", "What is wrong?").value is None, "an answer to a question"


@pytest.mark.parametrize(
    ("text", "value", "against"),
    [("that is wrong", -1, -1.5), ("thanks!", 1, 0.0)],
)
def test_a_rule_that_the_likeness_contradicts_is_not_believed(
    text: str, value: int, against: float
) -> None:
    config = shipped_rules()
    assert verdict(config, text, UNTOLD) == (value, 1.0)
    assert verdict(config, text, against) == (None, 1.0)
    assert verdict(config, text, -3.0 * value) == (value, 1.0)
    in_a_chain = config.model_copy(update={"resembling_weight": 0.0})
    assert verdict(in_a_chain, text, against) == (None, 1.0), "the next is asked"


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("great", PRAISE),
        ("Great! My boss has it, too.", PRAISE),
        ("great\nmy boss has it, too", PRAISE),
        ("great, my boss has it, too", PRAISE_WITH_MORE),
        ("great, now write it to a.txt", COMPLAINT),
        ("now write it to a.txt", PRAISE),
        ("great, thanks a lot", PRAISE),
        ("great, thanks, my boss has it now", PRAISE_WITH_MORE),
    ],
)
def test_praise_is_believed_less_when_its_sentence_goes_on_unread(text: str, most: float) -> None:
    config = shipped_rules()
    assert verdict(config, text, most - 0.01) == (1, 1.0)
    assert verdict(config, text, most + 0.01)[0] != 1


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


def test_the_same_answer_is_read_by_what_it_answers() -> None:
    weights_F, bias, context_K = np.zeros(SIZE), -1.0, np.zeros(2 + len(NAMES))
    context_K[1], context_K[2 + NAMES.index("words of the reply")] = 1.0, 3.0
    reading = Resemblance(weights_F, bias, context_K)
    reply = "Deleted 212 pictures of your holidays."
    assert reading.logit("deleted?", "Rename them", reply) == pytest.approx(2.0)
    assert reading.logit("thanks", "Rename them", reply) == pytest.approx(-1.0)
    assert reading.logit("deleted?", "", "Done.") == pytest.approx(-1.0), "nothing to compare"


def test_what_is_taken_up_counts_as_exchanges_teach() -> None:
    exchanges = [
        Answer("en", kind, text, f"situation {at % 4}", "Name the first woman", reply)
        for at, (name, other) in enumerate(
            product(("Ride", "Curie", "Meir"), ("Tereshkova", "Bly"))
        )
        for reply in [f"Surely that was {name * 2} from our village"]
        for kind, text in (("complaint", f"{name * 2}!"), ("praise", f"{other}!"))
    ]
    context_K = fitted(exchanges).arrays[2]
    assert context_K is not None
    assert context_K[2 + NAMES.index("words of the reply")] > 0


def test_short_words_of_the_request_are_known_again() -> None:
    request, reply = "Rewrite the CV, 2 pp, no pics", "Here are twelve kittens, all asleep."
    assert "4 and 0 covered" in taken_up("no pics", request, reply)
    assert "0 and 0 covered" in taken_up("great", request, reply)
    assert "4 and 0 covered" not in taken_up("kittens", request, reply)
    assert taken_up("no pics", request, "Ok.") == set(), "nothing to compare"


def test_a_logit_for_what_is_taken_up_comes_from_other_situations() -> None:
    training = [
        Answer("en", ("complaint", "praise")[at % 2], f"{word} {at}", f"situation {at // 4}")
        for at, word in enumerate(["bad", "good"] * 12)
    ]
    own = [at for at, each in enumerate(training) if each.situation == "situation 1"]
    turned = [
        replace(each, kind="complaint" if each.kind == "praise" else "praise")
        if at in own
        else each
        for at, each in enumerate(training)
    ]
    first, second = (
        recipe.unseen_logits(each, [recipe.numbered(answer) for answer in each])
        for each in (training, turned)
    )
    assert first[own] == pytest.approx(second[own])
    assert not np.allclose(first, second), "the others learn from it"


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
    like = Resemblance(np.zeros(SIZE), COMPLAINT + 1)
    found = Speech(shipped_rules(), likeness=lambda: like).find(text, request_text, "Here.")
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
    def found(text: str, logit: float) -> tuple[int | None, bool]:
        reader = Speech(shipped_rules(), likeness=lambda: Resemblance(np.zeros(SIZE), logit))
        finding = reader.find(text, "12345", "Here you are.")
        return finding.value, bool(finding.detail.get("lasting"))

    meant = "great, from now on always answer in French"
    assert found(meant, PRAISE_WITH_MORE - 0.01) == (1, True)
    assert found(meant, COMPLAINT + 0.01) == (0, True)
    assert found("That is wrong. From now on use metric units.", -3.0) == (-1, True)
