"""What a shop asks of its assistant, and what comes near it."""

import pytest

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.envs.showcase.toolcall.shop.goals import (
    AttemptGoal,
    IdentificationGoal,
    RefusalGoal,
    StatedNumberGoal,
)
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome


def made(name, result="", failed=False, **arguments):
    return ExecutedCall(Call("1", name, "{}"), arguments, result, failed)


def is_met(goal, *calls, said=()):
    return not goal.missing(Outcome(tuple(said), tuple((call,) for call in calls), {}))


FOUND = made("find_user", '{"id": "ana"}')
OTHER = made("find_user", '{"id": "bo"}')
CANCELLED = made("cancel_order", "done")
READ = made("order", '{"user": "ana"}')


@pytest.mark.parametrize(
    ("calls", "met"),
    [
        ([FOUND], True),
        ([FOUND, CANCELLED], True),
        ([READ, OTHER, FOUND, CANCELLED], True),
        ([made("cancel_order", "no", failed=True), FOUND], True),
        ([], False),
        ([READ, OTHER], False),
        ([OTHER, CANCELLED, FOUND], False),
        ([CANCELLED], False),
        ([made("find_user", '"ana"', failed=True)], False),
    ],
)
def test_a_customer_is_found_before_anything_is_changed(calls, met):
    assert is_met(IdentificationGoal("ana"), *calls) is met


@pytest.mark.parametrize(
    ("call", "met"),
    [
        (made("cancel_order", order="W1", reason="x", count=3), True),
        (made("cancel_order", "no", failed=True, order="W1", reason="x"), True),
        (made("cancel_order", order="W1", reason="y"), False),
        (made("cancel_order", order="W1"), False),
        (made("return_items", order="W1", reason="x"), False),
    ],
)
def test_an_attempt_is_a_call_of_the_tool_with_the_values(call, met):
    assert is_met(AttemptGoal("cancel_order", ("W1", "x")), READ, call) is met


def test_a_refusal_is_said_in_any_reply():
    assert is_met(RefusalGoal(), said=("Sorry, that cannot be.", "Bye."))
    assert not is_met(RefusalGoal(), said=("It is done.",))
    assert not is_met(RefusalGoal())


@pytest.mark.parametrize(
    ("said", "met"),
    [
        (["You get 1,250 back."], True),
        (["1250"], True),
        (["It is 1, 2, 3 or 1250"], True),
        (["It is 1, 2, 3, 4 or 1250"], False),
        (["It is 1, 2, 3, 1250 or 1250"], True),
        (["1250", "Bye."], False),
        (["12500"], False),
        (["1250x or v1250 or 0.1250"], False),
        ([], False),
    ],
)
def test_a_number_is_said_in_the_last_reply_and_not_in_a_list_of_many(said, met):
    assert is_met(StatedNumberGoal(1250, "the sum"), said=said) is met
