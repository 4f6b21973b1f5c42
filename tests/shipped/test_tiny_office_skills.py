"""Demonstrations of single skills in an office: what is shown, and that the environment agrees."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable

import pytest

from clawrl_gym.agents.agent import Action
from clawrl_gym.agents.tool_calls import calls_of, results_of
from clawrl_gym.core.types import Message
from clawrl_gym.envs.showcase.toolcall.composed.actions import ACTIONS
from clawrl_gym.envs.showcase.toolcall.composed.generated import compose
from clawrl_gym.envs.toolcall.agent import ToolCallAgent
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.office_skills import OfficeSkills
from tools.tiny_policy.skill_words import NODS, ORDERS

ALL = OfficeSkills()
NUMBERS = range(40)
Show = Callable[[str, random.Random], Conversation]


def called(messages: list[Message]) -> list[tuple[str, dict[str, object]]]:
    """Name and arguments of all calls that change something, in order."""
    calls = [call for message in messages for call in calls_of(message)]
    return [(call.name, json.loads(call.arguments)) for call in calls if call.name in ACTIONS]


def test_every_demonstration_ends_when_all_is_done_and_all_skills_come_up() -> None:
    conversations = list(itertools.islice(ALL.conversations(1), 400))
    for conversation in conversations:
        *_, last = conversation.messages
        assert last == {"role": "assistant", "content": "Done."}
        replies = [m for m in conversation.messages[:-1] if m["role"] == "assistant"]
        assert replies
        assert all(len(calls_of(reply)) == 1 for reply in replies)
    assert {conversation.family for conversation in conversations} == set(ACTIONS)


def test_the_same_seed_shows_the_same_and_the_splits_share_no_request_of_one_skill() -> None:
    first, again, heldout = (
        [c.messages[1]["content"] for c in itertools.islice(source.conversations(3), 60)]
        for source in (
            OfficeSkills(alone=1.0), OfficeSkills(alone=1.0), OfficeSkills("heldout", alone=1.0),
        )
    )  # fmt: skip
    assert first == again
    assert not set(first) & set(heldout)


def test_the_second_of_two_things_is_only_done_when_a_person_has_answered() -> None:
    for number in NUMBERS:
        task_id = f"office-two-train-{number:06d}"
        first, second = compose("two", "train", number).plan.parts
        shows: tuple[Show, ...] = (ALL.show_led, ALL.show_one_after_the_other)
        for show in shows:
            messages = show(task_id, random.Random(number)).messages
            spoken = [i for i, m in enumerate(messages) if m["role"] == "user"]
            assert called(messages[: spoken[1]]) == list(first.calls)
            assert called(messages[spoken[1] :]) == list(second.calls)
            word = str(messages[spoken[1]]["content"])
            assert (word in (*NODS, *ORDERS)) is (show == ALL.show_led)


def test_what_somebody_else_does_is_not_done() -> None:
    firsts = 0
    for number in NUMBERS:
        first, second = compose("two", "train", number).plan.parts
        task_id = f"office-two-train-{number:06d}"
        done = called(ALL.show_other_is_not_asked(task_id, random.Random(number)).messages)
        assert done in (list(first.calls), list(second.calls))
        firsts += done == list(first.calls)
    assert 10 < firsts < 30


@pytest.mark.parametrize("family", ["one", "two"])
def test_the_environment_says_what_the_demonstrations_show(family: str) -> None:
    show: Show = ALL.show_alone if family == "one" else ALL.show_led
    env, agent = ToolCallEnv(tasks="plain"), ToolCallAgent()
    try:
        for number in range(30):
            task_id = f"office-{family}-train-{number:06d}"
            observation, info = env.reset(options={"task": task_id})
            conversation = show(task_id, random.Random(number))
            assert conversation.tools == info["tools"]
            opening = agent.messages([observation], [])
            assert conversation.messages[0] == opening[0]
            request = str(conversation.messages[1]["content"]).rpartition(" You have ")[0]
            assert observation.startswith(request)
            results = iter(m["content"] for m in conversation.messages if m["role"] == "tool")
            *replies, last = [m for m in conversation.messages if m["role"] == "assistant"]
            for reply in replies:
                observation, *_ = env.step(_action(agent, reply))
                assert results_of(observation, 1) == [next(results)], task_id
            _, reward, terminated, _, _ = env.step(_action(agent, last))
            assert terminated
            assert reward == 1.0, (task_id, env.report)
    finally:
        env.close()


def _action(agent: ToolCallAgent, reply: Message) -> str:
    action = agent.action(reply)
    assert isinstance(action, Action)
    return action.text


def test_bare_ones_hold_a_request_and_its_call() -> None:
    for conversation in itertools.islice(OfficeSkills(bare=True).conversations(2), 50):
        request, reply = conversation.messages
        assert "You have" not in str(request["content"])
        assert len(calls_of(reply)) == 1
        assert conversation.tools is None
