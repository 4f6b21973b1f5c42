"""Demonstrations of single skills: what is shown, and that a real shell shows the same."""

from __future__ import annotations

import itertools
import random

import pytest

from clawrl_gym.agents.agent import Action
from clawrl_gym.envs.showcase.terminal.composed.generated import compose
from clawrl_gym.envs.showcase.terminal.composed.library import SKILLS
from clawrl_gym.envs.terminal.agent import TerminalAgent
from clawrl_gym.envs.terminal.env import TerminalEnv
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.shell_skills import ShellSkills, in_two
from tools.tiny_policy.skill_words import NODS, ORDERS

ALL = ShellSkills()
NUMBERS = range(40)


def commands_of(conversation: Conversation) -> list[str]:
    """Commands of the replies, in order."""
    commands = []
    for message in conversation.messages:
        if message["role"] == "assistant":
            action = TerminalAgent().action(message)
            assert isinstance(action, Action)
            commands.append(action.text)
    return commands


def shown(conversation: Conversation) -> list[str]:
    """What stands behind each reply, of whoever says it."""
    return [str(m["content"]) for m in conversation.messages[3:] if m["role"] == "user"]


def test_every_demonstration_ends_with_the_submission_and_all_skills_come_up():
    conversations = list(itertools.islice(ALL.conversations(1), 600))
    for conversation in conversations:
        *earlier, last = commands_of(conversation)
        assert last.endswith("submit")
        assert not any("submit" in command for command in earlier)
    assert {conversation.family for conversation in conversations} == set(SKILLS)


def test_the_same_seed_shows_the_same_and_the_splits_share_no_request_of_one_skill():
    first, again, heldout = (
        [c.messages[1]["content"] for c in itertools.islice(source.conversations(3), 60)]
        for source in (
            ShellSkills(alone=1.0),
            ShellSkills(alone=1.0),
            ShellSkills("heldout", alone=1.0),
        )
    )
    assert first == again
    assert not set(first) & set(heldout)


def test_the_second_of_two_things_is_only_done_when_a_person_has_answered():
    for number in NUMBERS:
        task_id = f"two-train-{number:06d}"
        second = compose("two", "train", number).plan.parts[1]
        own = {second.action().command, *in_two(second.action().command)}
        for show in (ALL.show_led, ALL.show_one_after_the_other):
            conversation = show(task_id, random.Random(number))
            spoken = [i for i, text in enumerate(shown(conversation)) if "\n\n" in text]
            before = commands_of(conversation)[: spoken[0] + 1]
            assert not own & {line for command in before for line in command.split("\n")}
            word = shown(conversation)[spoken[0]].rpartition("\n\n")[2]
            assert (word in (*NODS, *ORDERS)) is (show == ALL.show_led)


def test_what_somebody_else_does_is_not_done():
    firsts = 0
    for number in NUMBERS:
        plan = compose("two", "train", number).plan
        done = "\n".join(
            commands_of(ALL.show_other_is_not_asked(f"two-train-{number:06d}", random.Random(1)))
        )
        own = [
            command in done or all(c in done for c in in_two(command))
            for command in (part.action().command for part in plan.parts)
        ]
        assert sum(own) == 1, done
        firsts += own[0]
    assert 10 < firsts < 30


@pytest.mark.parametrize(
    ("command", "two"),
    [
        ("mkdir a && mv b a", ["mkdir a", "mv b a"]),
        ("ls a | wc -l > b", ["ls a > /tmp/notes", "wc -l < /tmp/notes > b"]),
        ("(cd a && grep -l w *) > b", ["(cd a && grep -l w *) > b"]),
        ("sort a > b", ["sort a > b"]),
    ],
)
def test_a_command_in_two(command: str, two: list[str]):
    assert in_two(command) == two


@pytest.mark.sandbox
@pytest.mark.parametrize("family", ["one", "two"])
def test_a_real_shell_shows_what_the_demonstrations_say(family: str):
    show = ALL.show_alone if family == "one" else ALL.show_led
    env = TerminalEnv(tasks="plain", max_turns=12)
    try:
        for number in range(30):
            task_id = f"{family}-train-{number:06d}"
            env.reset(options={"task": task_id})
            conversation = show(task_id, random.Random(number))
            *commands, last = commands_of(conversation)
            for command, text in zip(commands, shown(conversation), strict=True):
                assert text.split("\n\n")[0] == env.step(command)[0], task_id
            _, reward, terminated, _, _ = env.step(last)
            assert terminated
            assert reward == 1.0, (task_id, env.report)
    finally:
        env.close()


def test_bare_ones_hold_a_request_and_its_commands():
    for conversation in itertools.islice(ShellSkills(bare=True).conversations(2), 50):
        request, reply = conversation.messages
        assert "Change nothing else" not in str(request["content"])
        assert reply["role"] == "assistant"
