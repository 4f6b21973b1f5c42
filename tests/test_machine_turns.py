"""Main turns that look as if a program had written them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.identify import KindRules
from clawrl_gym.gateway.machine_turns import MachineTurns
from clawrl_gym.run.serve import machine_turns_in_words
from tests.recordings import shipped
from tests.test_sessions import assistant, make_turn, user

NIGHTLY = "Nightly report for run {}: list what failed, then what is new."


def told(
    machine: MachineTurns, session_id: str, text: str, at_s: float, kind: str = "main"
) -> None:
    turn = make_turn([user(text)], "ok")
    machine.add(replace(turn, session_id=session_id, created_s=at_s, kind=kind))  # type: ignore[arg-type]


def test_the_same_beginning_in_many_sessions_looks_machine_made() -> None:
    machine = MachineTurns()
    for number in range(3):
        assert machine.turns == 0
        told(machine, f"s{number}", NIGHTLY.format(number), number**3 * 1000.0)
    assert (machine.turns, machine.main_turns) == (3, 3)
    (suggestion,) = machine.suggestions()
    assert (suggestion.turns, suggestion.sessions) == (3, 3)
    assert suggestion.why == "the same beginning in 3 sessions"


def test_what_different_people_write_does_not() -> None:
    machine = MachineTurns()
    texts = ["hi", "good morning", "Help me with my tax form", "What is the capital of Peru?"]
    for number, text in enumerate([*texts, "hi", "good morning", "hi", "Write a poem on rain"]):
        told(machine, f"s{number}", text, number**3 * 1000.0)
    assert machine.turns == 0


def test_a_short_text_at_regular_intervals_looks_machine_made_even_where_a_beat_is_missing() -> (
    None
):
    machine = MachineTurns()
    for at_s in (0.0, 1801.0, 3599.0, 7203.0, 9000.0):
        told(machine, "main", "wake up", at_s)
    assert machine.suggestions()[0].why == "they come at regular intervals"


def test_a_short_text_at_a_persons_moments_does_not() -> None:
    machine = MachineTurns()
    for at_s in (0.0, 700.0, 3599.0, 3700.0, 9000.0):
        told(machine, "main", "thanks", at_s)
    assert machine.turns == 0


def test_texts_that_nobody_can_have_typed_look_machine_made() -> None:
    machine = MachineTurns()
    for number in range(4):
        told(machine, "s", NIGHTLY.format(number), number * 1.5)
    assert machine.suggestions()[0].why == "3 came faster than anybody types"


def test_side_turns_and_steps_of_an_agents_loop_are_not_looked_at() -> None:
    machine = MachineTurns()
    result: Message = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    for number in range(5):
        told(machine, f"s{number}", NIGHTLY.format(number), 0.0, kind="side")
        turn = make_turn([user(NIGHTLY.format(1)), assistant("reading"), result], "ok")
        machine.add(replace(turn, session_id=f"t{number}"))
    assert machine.turns == 0


def test_a_deleted_session_leaves_nothing() -> None:
    machine = MachineTurns()
    for number in range(3):
        told(machine, f"s{number}", NIGHTLY.format(number), number**3 * 1000.0)
    machine.forget("s0")
    assert (machine.turns, machine.main_turns) == (0, 2), "two sessions are not many"
    machine.forget("s1")
    machine.forget("s2")
    machine.forget("never")
    assert machine.main_turns == 0
    held = [getattr(machine, name) for name in vars(machine) if name != "_transient"]
    assert not any(held)


@pytest.mark.parametrize(
    "text",
    [
        NIGHTLY,
        "It's 'quoted' \\ and [odd] {braces}, run {}".replace("{braces}", "(braces)"),
        "Job 7f3b2c1a-1111-2222-3333-44445555666{}: go on, please, and say when",
    ],
)
def test_the_suggested_rule_makes_them_side_turns_and_leaves_others(text: str) -> None:
    machine = MachineTurns(shipped().rules.transient)
    for number in range(3):
        told(machine, f"s{number}", text.format(number), number**3 * 1000.0)
    (suggestion,) = machine.suggestions()
    live = compose("serve", [suggestion.override()], ServeConfig).live
    kinds = KindRules(live.rules.kinds)
    assert kinds.kind_of([user(text.format(9))], {}, None) == ("side", "mine")
    assert kinds.kind_of([user("Please: " + text.format(9))], {}, None) == ("main", "")
    words = machine_turns_in_words(machine)
    assert words.startswith("3 of 3 main turns look machine-made")
    assert suggestion.override() in words
    assert suggestion.yaml() in words
