"""Styles and their scores. In the reference the personalization score has no code (S20): here it
is computed, for each style and each wish."""

import pytest

from clawrl_gym.envs.conversation.user import LIKED
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.problems import Problem, draw_problem, is_correct
from clawrl_gym.envs.showcase.conversation.styles import (
    CASUAL,
    FORMAL,
    FRIENDLY,
    STORY,
    STYLES,
    TERSE,
)

PROBLEM = Problem("Tom", "apples", "gets", 3, 4, "+", "Tom has 3 apples ...", claimed=8)


def rendered(style, count=400):
    for n in range(count):
        draw = Draw(f"style/{style.name}/{n}")
        problem = draw_problem("heldout" if n % 2 else "train", draw)
        yield problem, style.render(problem, draw)


@pytest.mark.parametrize("persona", PERSONAS.values(), ids=PERSONAS)
def test_what_a_persona_wants_scores_one_and_is_right(persona) -> None:
    for problem, text in rendered(persona.style):
        assert persona.style.score(text, problem) == 1.0, text
        assert persona.right(text, problem), text


@pytest.mark.parametrize("persona", PERSONAS.values(), ids=PERSONAS)
def test_s20_what_an_ai_says_unasked_scores_at_most_a_fifth_for_every_wish(persona) -> None:
    for unasked in ("assistant", "grader"):
        for problem, text in rendered(STYLES[unasked]):
            assert persona.style.score(text, problem) <= 0.2, text


@pytest.mark.parametrize("persona", PERSONAS.values(), ids=PERSONAS)
def test_what_an_ai_says_unasked_is_right_all_the_same(persona) -> None:
    for problem, text in rendered(persona.unasked):
        assert persona.right(text, problem), text


def test_one_persons_wish_is_not_another_ones() -> None:
    for persona in PERSONAS.values():
        for other in PERSONAS.values():
            if other is not persona:
                scores = [persona.style.score(text, p) for p, text in rendered(other.style, 60)]
                assert max(scores) < LIKED, (persona.name, other.name)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("tom has 3 and gets 4 more so its 7", 1.0),
        ("Tom has 3 and gets 4 more so it is 7", 0.65),
        ("tom has **3** and gets 4 more so its 7", 0.45),
        ("7", 0.6),
        ("3 4 7", 0.6),
        ("**Final answer: 7**", 0.051),
        ("- 3 and 4 makes **7**\n- Let me know if you need more", 0.0),
    ],
)
def test_each_sign_of_an_ai_costs_part_of_the_score(text: str, score: float) -> None:
    assert CASUAL.score(text, PROBLEM) == pytest.approx(score, abs=0.08)


@pytest.mark.parametrize(
    "text", ["", "  ", "cat notes.txt", "tom has 3 and gets 4 more", "HOMEWORK_DONE"]
)
def test_s20_a_text_without_an_answer_has_no_style_whatever_it_claims(text: str) -> None:
    for style in STYLES.values():
        assert style.score(text, PROBLEM) == 0.0


def test_a_score_does_not_ask_whether_the_answer_is_right() -> None:
    text = "tom has 3 and gets 4 more so its 8"
    assert CASUAL.score(text, PROBLEM) == 1.0
    assert not is_correct(text, PROBLEM)


@pytest.mark.parametrize("style", [CASUAL, FRIENDLY, TERSE, STORY, FORMAL], ids=lambda s: s.name)
def test_weights_add_up_to_one_and_long_texts_do_not_hang(style) -> None:
    assert sum(weight for weight, _ in style.marks) == pytest.approx(1.0)
    for text in ("7 **1. " * 20_000 + "\n" * 20_000, "7" * 20_000, "- " * 20_000 + "7"):
        assert 0.0 <= style.score(text, PROBLEM) <= 1.0


def test_the_same_draw_gives_the_same_words_and_draws_give_several() -> None:
    for style in STYLES.values():
        assert style.render(PROBLEM, Draw("a")) == style.render(PROBLEM, Draw("a"))
        if style is not TERSE:
            assert len({style.render(PROBLEM, Draw(str(n))) for n in range(50)}) > 1


@pytest.mark.parametrize(
    ("style", "most"),
    [(CASUAL, 16), (FRIENDLY, 30), (TERSE, 8), (TERSE, 3), (STORY, 30), (FORMAL, 20)],
)
def test_one_word_more_than_a_style_has_room_for_costs(style, most) -> None:
    full = "7 apples" + " or" * (most - 2)
    assert style.score(full, PROBLEM) > style.score(f"{full} so", PROBLEM)
    assert style.score(full, PROBLEM) > style.score(full.replace(" or", "\nor", 1), PROBLEM)


@pytest.mark.parametrize(
    ("style", "better", "worse"),
    [
        (CASUAL, "3 and 4 is so 7", "3 and 4 is 7"),
        (CASUAL, "3 and 4 is so 7", "3 and 4 is so = 7"),
        (CASUAL, "3 and 4 is so 7", "3 and it is so 7"),
        (FORMAL, "It is all 7 apples.", "It is 7 apples."),
        (FORMAL, "It is all 7 apples.", "it is all 7 apples."),
        (FORMAL, "It is all 7 apples.", "It is all 7 apples"),
        (FORMAL, "It is all 7 apples.", "It is all! 7 apples."),
        (FORMAL, "It is all 7 apples.", "It is so 7 apples."),
        (FORMAL, "It is all 7 apples.", "It is all 7 pears."),
        (FRIENDLY, "Tom, 3 plus 4 is 7, nice.", "3 plus 4 is 7, nice."),
        (FRIENDLY, "Tom, 3 plus 4 is 7, nice.", "Tom, 3 plus 4 is 7."),
        (FRIENDLY, "Tom, 3 plus 4 is 7, nice.", "Tom, 3 and 4 is 7, nice."),
        (FRIENDLY, "Tom, 3 plus 4 is 7, nice.", "Tom, plus 4 is 7, nice."),
        (STORY, "Once Tom had 7 apples!", "Once he had 7 apples!"),
        (STORY, "Once Tom had 7 apples!", "Tom had 7 apples!"),
        (STORY, "Once Tom had 7 apples!", "Once Tom had 7 apples."),
        (STORY, "Once Tom had 7 apples!", "Once Tom had 7!"),
        (TERSE, "7 apples", "7 pears"),
        (TERSE, "7 apples", "7 apples!"),
    ],
)
def test_each_mark_of_a_style_counts(style, better, worse) -> None:
    assert style.score(better, PROBLEM) > style.score(worse, PROBLEM)
