"""Goals: answers, states, what was said, calls; and that none gives its answer away."""

import json
from fractions import Fraction

import pytest

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.envs.toolcall.answer_matching import boxed, last_number, number_of, says
from clawrl_gym.envs.toolcall.goals import (
    AnswerGoal,
    CallsGoal,
    ExpectedCall,
    MentionGoal,
    StateGoal,
)
from clawrl_gym.envs.toolcall.json_matching import fits, same
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome


def outcome(*said, made=(), **states):
    return Outcome(tuple(said), tuple(made), states)


def made(name, failed=False, **arguments):
    return ExecutedCall(
        Call("1", name, json.dumps(arguments)), {} if failed else arguments, "ok", failed
    )


def is_met(goal, left):
    return not goal.missing(left)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("391", "391"),
        ("17 * 23 is 391.", "391"),
        ("The answer is **391**", "391"),
        ("Answer: \\boxed{391}, after 12 steps", "391"),
        ("\\boxed{12} no, \\boxed{391}", "391"),
        ("\\boxed{\\frac{3}{4}}", "0.75"),
        ("\\boxed{x = \\text{7}}", "7"),
        ("it costs $1,234.50", "1234.5"),
        ("that is -5 degrees", "-5"),
        ("5-3 = 2", "2"),
        ("1e3", "1000"),
        ("3/4", "0.75"),
        ("391kg", "391"),
        ("\u22124", "-4"),
        ("123456789012345678901", "123456789012345678901"),
    ],
)
def test_a_right_number_is_found_where_a_model_says_it(said, wanted):
    assert is_met(AnswerGoal(wanted), outcome(said))


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("390", "391"),
        ("391 or 392", "391"),
        ("\\boxed{390} 391", "391"),
        ("three hundred", "391"),
        ("", "391"),
        ("123456789012345678902", "123456789012345678901"),
        ("NaN", "391"),
        ("1e999999999", "391"),
        ("1/0", "391"),
        ("9" * 100_000, "391"),
        ("\\boxed{391", "392"),
    ],
)
def test_a_wrong_number_is_wrong(said, wanted):
    assert not is_met(AnswerGoal(wanted), outcome(said))


def test_only_the_last_thing_said_is_the_answer():
    assert is_met(AnswerGoal("2"), outcome("1", "2"))
    assert not is_met(AnswerGoal("2"), outcome("2", "1"))
    assert AnswerGoal("2").missing(outcome()) == ["no answer was given"]


def test_a_box_can_be_asked_for():
    goal = AnswerGoal("2", boxed=True)
    assert not is_met(goal, outcome("2"))
    assert is_met(goal, outcome("\\boxed{2}"))


def test_a_tolerance_is_how_far_off_a_number_may_be():
    assert is_met(AnswerGoal("3.14159", tolerance=1e-2), outcome("3.14"))
    assert not is_met(AnswerGoal("3.14159"), outcome("3.14"))
    assert is_met(AnswerGoal("3", tolerance=0.5), outcome("3.5"))
    assert not is_met(AnswerGoal("3", tolerance=0.5), outcome("3.51"))
    assert not is_met(AnswerGoal("three"), outcome("3"))


def test_texts_are_the_same_without_case_and_full_stop():
    goal = AnswerGoal("Lunar Mango", form="text")
    assert is_met(goal, outcome("lunar  mango."))
    assert is_met(goal, outcome("It is \\boxed{\\text{lunar mango}}"))
    assert not is_met(goal, outcome("lunar"))


def test_boxes_may_hold_braces():
    assert boxed("a \\boxed{\\frac{1}{2}} b") == "\\frac{1}{2}"
    assert boxed("\\boxed{1") is None
    assert number_of("\\frac{1}{2}") == Fraction(1, 2)
    assert last_number("a1b") is None


FILES = {"a.txt": "1", "b.txt": "2"}


def test_a_state_is_equal_or_holds_at_least():
    assert is_met(StateGoal("files", FILES), outcome(files=FILES))
    assert not is_met(StateGoal("files", {"a.txt": "1"}), outcome(files=FILES))
    assert is_met(StateGoal("files", {"a.txt": "1"}, contains=True), outcome(files=FILES))
    assert is_met(StateGoal("shop", 3, at=("orders", "W1")), outcome(shop={"orders": {"W1": 3}}))
    assert not is_met(StateGoal("shop", 3, at=("orders", "W2")), outcome(shop={"orders": 3}))
    assert not is_met(StateGoal("shop", {}), outcome())


def test_what_is_missing_names_the_place_and_not_the_value():
    left = outcome(files={"a.txt": "9", "c.txt": ""})
    assert list(StateGoal("files", FILES).missing(left)) == [
        "files: a.txt is not as it should be",
        "files: b.txt is missing",
        "files: c.txt should not be there",
    ]
    told = [
        *AnswerGoal("4711").missing(outcome("5")),
        *MentionGoal(("4711",)).missing(outcome("5")),
        *StateGoal("files", {"x": "4711"}).missing(outcome(files={"x": "5"})),
        *CallsGoal((ExpectedCall("f", {"a": [4711]}),)).missing(outcome(made=[(made("f", a=5),)])),
    ]
    assert len(told) == 4
    assert "4711" not in "".join(told)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (None, {}, False),
        ([], {}, False),
        ("1", 1, False),
    ],
)
def test_values_are_compared_as_json(one, other, equal):
    assert same(one, other) is equal
    assert same(other, one) is equal


@pytest.mark.parametrize(
    ("said", "wanted", "found"),
    [
        ("That is 54.04 dollars", "54.04", True),
        ("15 items", "5", False),
        ("5.5 kg", "5", False),
        ("It is 5.", "5", True),
        ("1,234 left", "1234", True),
        ("1234 left", "1,234", True),
        ("the  RED\nhat", "red hat", True),
        ("predicate", "red", False),
    ],
)
def test_things_are_said_as_whole_words(said, wanted, found):
    assert says(said, wanted) is found
    assert is_met(MentionGoal((wanted,)), outcome("hello", said)) is found


WANTED = (ExpectedCall("find", {"city": ["Bern", "Berne"], "days": [2, 3], "unit": ["C", ""]}),)


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"city": "Bern", "days": 2}, True),
        ({"city": "bern", "days": 3.0, "unit": "C"}, True),
        ({"city": "Basel", "days": 2}, False),
        ({"city": "Bern"}, False),
        ({"city": "Bern", "days": "2"}, False),
        ({"city": "Bern", "days": True}, False),
        ({"city": "Bern", "days": 2, "unit": "F"}, False),
        ({"city": "Bern", "days": 2, "more": 1}, False),
    ],
)
def test_a_call_has_allowed_values_and_all_that_is_needed(arguments, right):
    assert is_met(CallsGoal(WANTED), outcome(made=[(made("find", **arguments),)])) is right


def test_objects_and_lists_are_allowed_in_the_manner_of_bfcl():
    allowed = {"where": [{"x": [1, 2], "y": ["", 3]}], "tags": [["a", "b"]], "rows": [[{"n": [1]}]]}
    assert fits({"where": {"x": 2}, "tags": ["A", "b"], "rows": [{"n": 1}]}, allowed)
    assert not fits({"where": {"x": 3}, "tags": ["a", "b"], "rows": [{"n": 1}]}, allowed)
    assert not fits({"where": {"x": 1}, "tags": ["b", "a"], "rows": [{"n": 1}]}, allowed)
    assert not fits({"where": {"x": 1}, "tags": ["a", "b"], "rows": [{"n": 2}]}, allowed)


def test_parallel_calls_match_in_any_order_each_its_own():
    loose, strict = ExpectedCall("f", {"a": [1, 2]}), ExpectedCall("f", {"a": [1]})
    both = (made("f", a=1), made("f", a=2))
    assert is_met(CallsGoal((loose, strict)), outcome(made=[both]))
    assert not is_met(CallsGoal((strict, strict)), outcome(made=[both]))
    assert is_met(CallsGoal((strict, loose), ordered=True), outcome(made=[both]))
    turned = CallsGoal((ExpectedCall("f", {"a": [2]}), ExpectedCall("f", {"a": [1]})), ordered=True)
    assert not is_met(turned, outcome(made=[both]))


def test_calls_that_were_not_needed_or_failed_are_told():
    one = CallsGoal((ExpectedCall("f"),))
    assert list(one.missing(outcome(made=[(made("f"), made("g"))]))) == [
        "calls were made that were not needed"
    ]
    assert is_met(
        CallsGoal((ExpectedCall("f"),), extra=True), outcome(made=[(made("f"), made("g"))])
    )
    assert not is_met(one, outcome(made=[(made("f", failed=True),)]))
    assert is_met(CallsGoal(()), outcome("no tool fits"))
    assert not is_met(CallsGoal(()), outcome(made=[(made("f"),)]))
