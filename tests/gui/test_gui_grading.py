"""What an episode on pages is worth, and that only the model can give up."""

import pytest

from clawrl_gym.envs.gui.answers import same_answer
from clawrl_gym.envs.gui.grading import (
    AnswerGrader,
    InfeasibleGrader,
    StateGrader,
    differences,
)
from clawrl_gym.envs.gui.task import FinalState

STATE = {"basket": [{"name": "pens", "count": 2}], "orders": []}


def final_state(states=None, answer=None, gave_up=False):
    return FinalState({"shop": STATE} if states is None else states, answer, gave_up)


def test_the_whole_state_counts():
    grader = StateGrader({"shop": STATE})
    assert grader.grade(final_state()) == (1.0, ())
    assert not grader.needs_pages
    different = {"shop": {"basket": [{"name": "pens", "count": 3}], "orders": []}}
    assert grader.grade(final_state(different)) == (0.0, ("shop.basket[0].count is 3, expected 2",))


def test_side_effects_cost_the_reward():
    reward, missing = StateGrader({"shop": STATE}).grade(
        final_state({"shop": {**STATE, "sent": 1}})
    )
    assert (reward, missing) == (0.0, ("shop.sent is 1, expected none",))


def test_a_server_that_is_gone_is_missing():
    assert StateGrader({"shop": STATE}).grade(final_state({}))[0] == 0.0


def test_an_answer_is_asked_for_beside_the_state():
    grader = StateGrader({"shop": STATE}, "42 coins")
    assert grader.grade(final_state(answer=" 42  Coins. "))[0] == 1.0
    assert grader.grade(final_state()) == (0.0, ("got no answer, expected '42 coins'",))
    assert grader.grade(final_state({"shop": {}}, "42 coins"))[0] == 0.0
    assert grader.grade(final_state(answer="43 coins"))[1] == (
        "got the answer '43 coins', expected '42 coins'",
    )


def test_giving_up_a_task_that_can_be_done_earns_nothing():
    for grader in (StateGrader({"shop": STATE}), AnswerGrader("x"), StateGrader({}, None)):
        assert grader.grade(final_state(answer="x", gave_up=True))[0] == 0.0
    assert AnswerGrader("x").grade(final_state(answer="X"))[0] == 1.0


def test_a_task_that_cannot_be_done_earns_by_giving_up_alone():
    """Defect S13 of the reference: running out of steps said FAIL for the model and earned 1."""
    assert InfeasibleGrader().grade(final_state(gave_up=True)) == (1.0, ())
    assert InfeasibleGrader().grade(final_state())[0] == 0.0
    assert InfeasibleGrader().grade(final_state(answer="it cannot be done"))[0] == 0.0


def test_what_was_changed_before_giving_up_counts():
    grader = InfeasibleGrader({"shop": STATE})
    assert grader.grade(final_state(gave_up=True))[0] == 1.0
    reward, missing = grader.grade(final_state({"shop": {**STATE, "orders": [1]}}, gave_up=True))
    assert (reward, missing) == (0.0, ("shop.orders has 1 entries, expected 0",))


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("Paris", "paris"), ("Paris", " PARIS. "), ("a b", "a\n  b"), ("7", "7.0"), ("7", "07"),
        ("1250.5", "1,250.50"), ("$3", "3.00"), ("-2", "-2.0"), ("", "."), ("Straße", "STRASSE"),
    ],
)  # fmt: skip
def test_answers_that_mean_the_same_are_the_same(expected, got):
    assert same_answer(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("Paris", None), ("Paris", ""), ("Paris", "Paris, France"), ("7", "70"), ("7", "seven"),
        ("12", "1,2"), ("7", "nan"), ("nan", "inf"), ("1", "1 or 2"), ("1", "True"),
    ],
)  # fmt: skip
def test_answers_that_differ_differ(expected, got):
    assert not same_answer(expected, got)


def test_differences_are_told_where_they_are():
    assert list(differences({"a": [1, {"b": True}]}, {"a": [1, {"b": 1}]}, "x")) == [
        "x.a[1].b is 1, expected True"
    ]
    assert list(differences({"a": 1}, {}, "x")) == ["x.a is missing, expected 1"]
    assert list(differences([1, 2], (1, 2), "x")) == []
    assert len(next(differences("a", "b" * 1000, "x"))) < 200
