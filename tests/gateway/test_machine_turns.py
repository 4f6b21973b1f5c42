"""Main turns that look as if a program had written them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

import pytest
import yaml

from clawrl_gym.config import KindRule, ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.sessions.machine_turns import MachineTurns
from clawrl_gym.gateway.wire.identify import KindRules
from clawrl_gym.run.serve import machine_turns_in_words
from tests.gateway.test_sessions import assistant, make_turn, user
from tests.support.recordings import shipped

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


ODD_BEGINNINGS = [
    NIGHTLY,
    "It's 'quoted' \\ and [odd] (braces), run {}",
    "Job 7f3b2c1a-1111-2222-3333-44445555666{}: go on, please, and say when",
    "Summarise ${{oc.env:HOME}} and {{x}} for run number {} please now",
    'He said "it is 100% done" \\o/ #hash, a=b: c; [d] (e) run {}, !history',
    "\t\n  Leading white space and a tab\there, run {} of all the tests",
    "Zusammenfassung für Übergrößen, №{}: bitte „kurz“ 🥚 antworten, danke",
    "Nightly:\r\nreport {} of everything that has happened since then",
    "'''{}''' triple quotes begin this message, which then goes on and on",
    "\\\\server\\share\\{}\\file is what to read now, and say what is in it",
    "cost is $5 and $(whoami) `id` run {}, please tell me what is in there",
    "* list item {}\n* second item of the list\n* third item of the list",
    '<context>\n<file path="/a/b/{}.txt">\ncontents\n</file>\n</context>\nGo',
    "\u200bzero width {} at its beginning and then some more words go here",
    "\x1b[2J\x07 bells and escapes {} that no terminal is to get, whatever comes",
    "A" * 47 + "\\ {}",
    "A" * 47 + "' {}",
    "A" * 46 + "\\' {}",
    "- x: {} like YAML at the beginning of a message that is long enough",
    "key: value, other: [1, 2] run {} and then some more words that follow",
    "?query&param={}&other=1 what is this query string, can you tell me it",
    "!tag {} and an exclamation at its beginning, with more words after it",
    "%percent {} like a directive at its beginning, with some more words",
    "[Fri 2026-03-13 08:41 UTC] stamped {} words that a program wrote down",
]


@pytest.mark.parametrize("text", ODD_BEGINNINGS)
def test_a_suggested_rule_that_is_pasted_ends_the_report(text: str) -> None:
    texts = [text.format(100 + number) for number in range(3)]
    machine = replayed(texts, shipped().rules.kinds)
    (suggestion,) = machine.suggestions()
    live = compose("serve", [suggestion.override()], ServeConfig).live
    kinds = KindRules(live.rules.kinds)
    assert kinds.kind_of([user(text.format(9))], {}, None) == ("side", suggestion.name)
    assert kinds.kind_of([user("Please: " + text.format(9))], {}, None) == ("main", "")
    assert replayed(texts, live.rules.kinds).turns == 0
    in_file = yaml.safe_load(suggestion.yaml())["clients"][suggestion.name]["kinds"]
    assert replayed(texts, [KindRule(**rule) for rule in in_file]).turns == 0


@pytest.mark.parametrize("text", ODD_BEGINNINGS)
def test_what_serve_prints_is_one_line_whose_rule_a_shell_takes(text: str) -> None:
    texts = [text.format(100 + number) for number in range(3)]
    machine = replayed(texts, shipped().rules.kinds)
    words = machine_turns_in_words(machine)
    assert words.isprintable()
    assert words.startswith("3 of 3 main turns look machine-made")
    (suggestion,) = machine.suggestions()
    assert suggestion.yaml() in words
    argument = words.partition("start serve with ")[2].partition(", or add to a file")[0]
    assert shlex.split(argument) == [suggestion.override()]


def test_two_suggestions_stand_beside_each_other() -> None:
    first = [f"Nightly report of run {number}: list what failed" for number in range(3)]
    second = [f"Weekly report of run {number}: list what is new" for number in range(4)]
    machine = replayed([*first, *second], shipped().rules.kinds)
    rules = [suggestion.override() for suggestion in machine.suggestions()]
    live = compose("serve", rules, ServeConfig).live
    assert len(rules) == 2
    assert replayed([*first, *second], live.rules.kinds).turns == 0


def replayed(texts: list[str], rules: Sequence[KindRule]) -> MachineTurns:
    """Counts of a gateway with these rules, of messages that each begin a session."""
    machine, kinds = MachineTurns(shipped().rules.transient), KindRules(rules)
    for number, text in enumerate(texts):
        kind, _ = kinds.kind_of([user(text)], {}, None)
        told(machine, f"s{number}", text, number**3 * 1000.0, kind)
    return machine
