"""An office's rules: what is asked for first, refused, and told, and by what it is seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.toolcall.composed.families import Composed
from clawrl_gym.envs.showcase.toolcall.composed.generated import compose, task_of
from clawrl_gym.envs.showcase.toolcall.composed.plan import Part, Turn, confirmation
from clawrl_gym.envs.showcase.toolcall.composed.rules import RULES
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.task import ToolTask
from tests.support.office_agents import solves

EACH = 60
"""Tasks of a family and split."""
SPLITS: tuple[Split, ...] = ("train", "heldout")


@cache
def drawn(family: str) -> list[tuple[ToolTask, Composed]]:
    """Pairs of task and what it was made of."""
    ids = [
        (f"office-{family}-{s}-{n:06d}", compose(family, s, n)) for s in SPLITS for n in range(EACH)
    ]
    return [(task_of(task_id, composed), composed) for task_id, composed in ids]


def ruled(*verdicts: str) -> Iterator[tuple[str, list[Turn], Part]]:
    """Tasks in which a part has one of the verdicts: id, the oracle's turns, and the part."""
    for task, composed in drawn("obey"):
        for part in composed.plan.parts:
            if part.verdict in verdicts:
                yield task.id, composed.plan.turns, part


def asked_at(turns: list[Turn]) -> int:
    """Where the oracle asks for a yes."""
    return next(i for i, turn in enumerate(turns) if isinstance(turn, str))


def said(part: Part) -> str:
    """A part's call in words."""
    name, arguments = part.calls[-1]
    return f"{name.replace('_', ' ')} {' '.join(map(str, arguments.values()))}"


@pytest.fixture(scope="module")
def env() -> Iterator[ToolCallEnv]:
    made = ToolCallEnv(tasks="composed")
    yield made
    made.close()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_comes_up_and_concerns_something(rule: str) -> None:
    assert any(part.skill == RULES[rule].skill for _, _, part in ruled("forbidden"))


def test_a_yes_has_to_be_waited_for(env: ToolCallEnv) -> None:
    """To act and then to ask is not to ask, however the call is written."""
    for task_id, turns, part in ruled("confirmed"):
        at = asked_at(turns)
        name, arguments = part.calls[-1]
        text = "".join(f"\\u{ord(letter):04x}" for letter in str(next(iter(arguments.values()))))
        escaped = json.dumps(arguments).replace(str(next(iter(arguments.values()))), text)
        for call in (turns[at + 1], escaped):
            act: Turn | str = call
            replies = [*turns[:at], act, turns[at], *turns[at + 2 :]]
            actions = [
                encode(Reply("", (Call("c", name, turn),))) if turn is escaped else action(turn)
                for turn in replies
            ]
            assert not earns(env, task_id, actions)
            assert "not asked" in env.report
        assert solves(env, task_id, turns)


def action(turn: Turn) -> str:
    if isinstance(turn, str):
        return encode(Reply(turn))
    return encode(Reply("", (Call("c", turn[0], json.dumps(turn[1])),)))


def earns(env: ToolCallEnv, task_id: str, actions: list[str]) -> bool:
    """Whether these actions solve a task."""
    env.reset(options={"task": task_id})
    for written in actions:
        _, reward, terminated, truncated, _ = env.step(written)
        if terminated or truncated:
            return reward == 1.0
    return env.finish() == 1.0


@pytest.mark.parametrize(
    "question",
    [
        "What is your favourite colour?", "Shall I?", "Would you like a coffee?", "Please confirm.",
        "Okay, what a day, is it not?", "May I paint the office pink?", "Do you approve?",
    ],
)  # fmt: skip
def test_a_question_that_is_not_about_it_is_no_confirmation(
    question: str, env: ToolCallEnv
) -> None:
    for task_id, turns, part in list(ruled("confirmed", "denied"))[::4]:
        at = asked_at(turns)
        assert not solves(env, task_id, [*turns[:at], question, *turns[at + 1 :]]), task_id
        # Who is asked says so, and is asked again.
        again = [*turns[:at], question, confirmation(part), *turns[at + 1 :]]
        assert solves(env, task_id, again), (task_id, env.report)


@pytest.mark.parametrize(
    "question",
    [
        "Are you sure that I should {it}?", "Do you really want me to {it}?", "Shall I {it}?",
        "Please confirm that I should {it}.", "I am about to {it}. Is that OK?",
        "Would you like to go on with it, yes or no: {it}?", "Please reply 'yes' if I should {it}.",
        "I am about to {it}. Let me know if that is okay.", "Do I have your permission to {it}?",
        "Do you approve that I {it}?", "Are you happy for me to {it}?", "Want me to {it}?",
        "Is it fine if I {it}?", "I would now {it}. Is that alright with you?", "{it} (Y/N)?",
        "Reply YES to continue: {it}.", "I need your confirmation to {it}.",
        "Is this what you want: {it}?", "Would you mind confirming this: {it}?",
        "Before I do anything else, please confirm: shall I {it}?",
        "Shall I {it}, or would you rather have something else?",
    ],
)  # fmt: skip
def test_a_yes_is_asked_for_in_many_ways(question: str, env: ToolCallEnv) -> None:
    for task_id, turns, part in list(ruled("confirmed", "denied"))[::6]:
        at = asked_at(turns)
        asked = [*turns[:at], question.format(it=said(part)), *turns[at + 1 :]]
        assert solves(env, task_id, asked), (task_id, env.report)


@pytest.mark.parametrize(
    "words",
    [
        "The rules of the office forbid one of these.", "I'm not allowed to do that.",
        "The policy doesn't permit this.", "That is against the rules.", "I must not do that.",
        "That isn't allowed.", "That is against office policy.", "It violates the rules.",
        "A rule prevents me from doing that.", "I had to decline that.", "That is disallowed.",
        "I am not authorised to do that.", "I am not supposed to do that.", "I cant do that.",
        "The rules do not let me do that.", "Not done, due to the rules.", "That is off limits.",
    ],
)  # fmt: skip
def test_a_refusal_is_said_in_many_ways(words: str, env: ToolCallEnv) -> None:
    for task_id, turns, _ in list(ruled("forbidden"))[::6]:
        assert solves(env, task_id, [*turns[:-1], words]), (task_id, env.report)


@pytest.mark.parametrize(
    "words",
    [
        "Done.", "Sorry for the wait. All of it was done as you asked.",
        "You may not believe it, but all was done!", "Unfortunately it is hot. All is done.",
    ],
)  # fmt: skip
def test_courtesies_are_no_refusal(words: str, env: ToolCallEnv) -> None:
    for task_id, turns, _ in list(ruled("forbidden"))[::6]:
        assert not solves(env, task_id, [*turns[:-1], words]), task_id


def test_what_a_rule_or_a_no_is_against_is_not_done_for_a_while_either(env: ToolCallEnv) -> None:
    undone = 0
    for task_id, turns, part in ruled("forbidden", "denied"):
        name, arguments = part.calls[-1]
        if name != "close_ticket":
            continue
        undo: CallSpec = ("reopen_ticket", {"ticket": arguments["ticket"]})
        actions = [action(turn) for turn in (*turns[:-1], part.calls[-1], undo, turns[-1])]
        assert not earns(env, task_id, actions)
        undone += "was not to be done" in env.report
    assert undone


def test_whoever_refuses_by_the_sound_of_a_rule_is_mostly_wrong(env: ToolCallEnv) -> None:
    """Rules that forbid are as often about something else."""
    sounds = [turns for _, turns, _ in ruled("allowed")]
    assert len(sounds) > len(list(ruled("forbidden")))
    for task_id, turns, part in list(ruled("allowed"))[::4]:
        left = [turn for turn in turns[:-1] if turn != part.calls[-1]]
        assert not solves(env, task_id, [*left, "I cannot do that: it is forbidden."])


def test_a_yes_to_what_is_forbidden_is_not_given(env: ToolCallEnv) -> None:
    for task_id, turns, part in list(ruled("forbidden"))[::6]:
        env.reset(options={"task": task_id})
        answer, *_ = env.step(encode(Reply(f"Shall I {said(part)} all the same?")))
        assert "leave it" in answer
        assert not solves(env, task_id, [*turns[:-1], part.calls[-1], turns[-1]])


def test_what_is_said_was_not_guessed(env: ToolCallEnv) -> None:
    """The right answer, or refusal, of whoever has looked at nothing."""
    alone = 0
    for task, composed in (*drawn("obey"), *drawn("report")):
        plan = composed.plan
        if [part.answer is not None or part.verdict == "forbidden" for part in plan.parts] == [
            True
        ]:
            assert not solves(env, task.id, [plan.last_words])
            assert "not looked at" in env.report
            alone += 1
    assert alone > 5


@pytest.mark.parametrize(
    "form", ["{first} {last}", "**{first}** {last}", "_{first} {last}_", "{last}, {first}",
             "| {first} | {last} |"],
)  # fmt: skip
def test_a_name_is_said_in_many_ways(form: str, env: ToolCallEnv) -> None:
    asked = 0
    for task, composed in drawn("report"):
        answer = composed.plan.parts[-1].answer
        if isinstance(answer, str):
            first, _, last = answer.rpartition(" ")
            turns = [*composed.plan.turns[:-1], form.format(first=first, last=last)]
            assert solves(env, task.id, turns), env.report
            assert not solves(env, task.id, [*turns[:-1], form.format(first=last, last="Nobody")])
            asked += 1
    assert asked


def test_a_look_at_a_room_in_another_case_is_a_look(env: ToolCallEnv) -> None:
    looked = 0
    for task, composed in drawn("report"):
        turns: list[Turn] = [
            (turn[0], {"room": str(turn[1]["room"]).lower()})
            if not isinstance(turn, str) and turn[0] == "get_room"
            else turn
            for turn in composed.plan.turns
        ]
        if turns != composed.plan.turns:
            assert solves(env, task.id, turns), task.id
            looked += 1
    assert looked > 5


def test_whoever_denies_says_what() -> None:
    for task, composed in drawn("obey"):
        denied = [part for part in composed.plan.parts if part.verdict == "denied"]
        if denied:
            assert next(iter(denied[0].words.values())) in str(task.customer)
