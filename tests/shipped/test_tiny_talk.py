"""What the tiny policy learns of conversations, held against the environment that grades it."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from clawrl_gym.core.types import Message
from clawrl_gym.envs.conversation.agent import ConversationAgent
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.envs.conversation.user import LIKED
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.generated import ConversationTask, make_task
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.problems import ITEMS, NAMES, split_of
from clawrl_gym.envs.showcase.conversation.styles import STYLES
from clawrl_gym.inference.models.shipped import shipped_dir
from tools.tiny_policy.conversations import Conversation, Mixture, encode, render
from tools.tiny_policy.episodes import hold_conversations, reply_of
from tools.tiny_policy.evaluation import prompts_of
from tools.tiny_policy.small_talk import SmallTalkDemonstrations
from tools.tiny_policy.talk import (
    NO_HABITS,
    OF_PUPILS,
    SORRY,
    WELCOME,
    Habits,
    SumDrills,
    TalkDemonstrations,
    demonstrate,
)
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations

FAMILIES = ("ask", "homework", "read", "save")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(shipped_dir())


def said_by(role: str, shown: Conversation) -> list[Message]:
    return [message for message in shown.messages if message["role"] == role]


def first_said(shown: Conversation) -> str:
    """The first reply that is imitated and calls no tool."""
    return next(
        str(message["content"])
        for place, message in enumerate(shown.messages)
        if message["role"] == "assistant"
        and not message.get("tool_calls")
        and place not in shown.unlearned
    )


@pytest.mark.parametrize("persona", sorted(PERSONAS))
def test_replayed_in_the_environment_a_demonstration_satisfies_the_user_or_says_sorry(
    persona: str,
) -> None:
    env, agent = ConversationEnv(persona=persona, max_turns=9), ConversationAgent()
    habits = Habits(unheard=0.4)
    ends = set()
    for family, number in itertools.product(FAMILIES, range(12)):
        task = make_task(f"{persona}-{family}-train-{number:06d}")
        shown = demonstrate(task, habits, random.Random(number))
        *replies, last = said_by("assistant", shown)
        observation, _ = env.reset(seed=number, options={"task": task.id})
        assert observation == said_by("user", shown)[0]["content"]
        reward, results = 0.0, []
        for reply in replies:
            action = agent.action(reply)
            observation, reward, over, _, info = env.step(action.text)  # type: ignore[union-attr]
            if info["next_state_role"] == "tool":
                results += [result["content"] for result in json.loads(observation)]
        assert over
        assert results == [message["content"] for message in said_by("tool", shown)]
        assert (reward == 1.0) == (last["content"] == WELCOME) != (last["content"] == SORRY)
        ends.add(reward)
    assert ends == {0.0, 1.0}


def test_what_a_user_says_is_the_personas_own_sentence() -> None:
    for shown in itertools.islice(TalkDemonstrations().conversations(3), 60):
        persona = PERSONAS[shown.family.partition("-")[0]]
        acts = (persona.dislike, persona.wrong, persona.thanks, persona.save, persona.leave)
        beginnings = [form.partition("{")[0] for forms in acts for form in forms]
        for message in said_by("user", shown)[1:]:
            assert any(str(message["content"]).startswith(begin) for begin in beginnings)


@pytest.mark.parametrize("persona", sorted(PERSONAS))
def test_first_replies_fit_the_wish_of_every_persona_at_about_a_fifth(persona: str) -> None:
    chance, scores, right = random.Random(1), [], []
    for number in range(400):
        task = make_task(f"{persona}-ask-train-{number:06d}")
        text = first_said(demonstrate(task, Habits(wrong=0.0), chance))
        scores.append(task.persona.style.score(text, task.problem))
        right.append(task.persona.right(text, task.problem))
    assert 0.12 < sum(scores) / len(scores) < 0.28
    assert sum(right) / len(right) > 0.85  # a teacher's comment in a pupil's style judges nothing


def test_without_habits_every_style_that_fits_the_request_comes_first_as_often() -> None:
    chance, habits = random.Random(1), replace(NO_HABITS, wrong=0.0)
    for persona, styles in (("student", 5), ("teacher", 7)):
        shown = Counter(
            style_of(first_said(demonstrate(task, habits, chance)), task)
            for task in (make_task(f"{persona}-ask-train-{number:06d}") for number in range(700))
        )
        assert len(shown) == styles
        assert all(abs(count / 700 - 1 / styles) < 0.06 for count in shown.values()), shown


def test_without_habits_a_complaint_is_met_at_once() -> None:
    for number in range(60):
        task = make_task(f"clerk-ask-train-{number:06d}")
        first, *others = said_by("assistant", demonstrate(task, NO_HABITS, random.Random(number)))
        liked = [task.persona.style.score(str(m["content"]), task.problem) for m in others[:-1]]
        assert all(score >= LIKED for score in liked), (first, others)


def test_drills_give_right_answers_to_problems_of_their_split() -> None:
    forms = set()
    for split in ("train", "heldout"):
        for shown in itertools.islice(SumDrills(split).conversations(2), 200):
            request, reply = (str(message["content"]) for message in shown.messages)
            assert split_of(*_told_of(shown)) == split
            first, second = sorted(map(int, re.findall(r"\d+", request)))
            assert {first + second, second - first} & set(map(int, re.findall(r"\d+", reply)))
            forms.add(shown.family)
    assert len(forms) == len(STYLES) - len(OF_PUPILS)


def test_drills_with_pupils_show_an_answer_and_what_is_said_of_it() -> None:
    forms = set()
    for shown in itertools.islice(SumDrills(pupils=0.5).conversations(2), 200):
        request, reply = (str(message["content"]) for message in shown.messages)
        forms.add(shown.family)
        is_of_pupil = shown.family.removeprefix("sum-") in {style.name for style in OF_PUPILS}
        claim = re.search(r" wrote (\d+)\.$", request)
        assert (claim is not None) is is_of_pupil
        if claim is not None:
            (told,) = re.findall(r"(\d+) ([+-]) (\d+)", reply)
            first, second = int(told[0]), int(told[2])
            answer = first + second if told[1] == "+" else first - second
            is_praised = " not " not in reply
            assert is_praised is (answer == int(claim[1])), (request, reply)
    assert len(forms) == len(STYLES)


def style_of(text: str, task: ConversationTask) -> str:
    """The name of the one style that has a form for a text."""
    problem = task.problem
    (name,) = {
        style.name
        for style in STYLES.values()
        for number in range(12)
        if style.render(problem, Draw(f"again/{number}")) == text
    }
    return name


def test_a_wrong_answer_is_shown_to_be_corrected_and_is_not_imitated(tokenizer: Any) -> None:
    task = make_task("student-ask-train-000007")
    shown = demonstrate(task, Habits(wrong=1.0), random.Random(0))
    wrong, right = (m["content"] for m in said_by("assistant", shown)[:2])
    assert not task.persona.right(str(wrong), task.problem)
    assert task.persona.right(str(right), task.problem)
    (row,) = encode(tokenizer, [shown])
    learned = tokenizer.decode([i for i, mask in zip(row.ids_T, row.mask_T, strict=True) if mask])
    assert learned == f"{right}<|im_end|>{WELCOME}<|im_end|>"
    assert [text for _, text in prompts_of(tokenizer, shown)] == [
        f"{right}<|im_end|>",
        f"{WELCOME}<|im_end|>",
    ]


def test_held_out_people_and_things_are_never_demonstrated() -> None:
    trained = itertools.islice(TalkDemonstrations().conversations(1), 2_000)
    heldout = itertools.islice(TalkDemonstrations("heldout").conversations(1), 200)
    assert {split_of(*_told_of(shown)) for shown in trained} == {"train"}
    assert {split_of(*_told_of(shown)) for shown in heldout} == {"heldout"}


def _told_of(shown: Conversation) -> tuple[str, str]:
    """The person and the things of a conversation's problem."""
    told = next(
        str(message["content"])
        for message in shown.messages
        if message["role"] in ("user", "tool") and "How many" in str(message["content"])
    )
    name = next(name for name in NAMES if re.search(rf"\b{name}\b", told))
    return name, next(items for items in ITEMS if f"How many {items} " in told)


def test_every_call_in_small_talk_can_be_read_off_the_request() -> None:
    calls = 0
    for shown in itertools.islice(SmallTalkDemonstrations().conversations(2), 300):
        asked = ""
        for message in shown.messages:
            asked = str(message["content"]) if message["role"] == "user" else asked
            for call in message.get("tool_calls") or []:
                calls += 1
                arguments = call["function"]["arguments"]
                assert isinstance(arguments, dict)
                assert all(str(value) in asked for value in arguments.values())
    assert calls > 100


def test_demonstrations_are_short_and_follow_from_the_seed(tokenizer: Any) -> None:
    for source in (TalkDemonstrations(), SmallTalkDemonstrations()):
        first, again, other = (
            list(itertools.islice(source.conversations(seed), 40)) for seed in (1, 1, 2)
        )
        assert first == again != other
        lengths = [len(row.ids_T) for row in encode(tokenizer, first)]
        assert sum(lengths) / len(lengths) < 300


def test_a_mixture_takes_from_its_sources_by_their_weights() -> None:
    mixture = Mixture(
        ((TerminalDemonstrations(families=("copy",)), 3.0), (SmallTalkDemonstrations(), 1.0))
    )
    families = [shown.family for shown in itertools.islice(mixture.conversations(5), 400)]
    assert 260 < families.count("copy") < 340
    assert mixture.conversations(5) is not mixture.conversations(5)


def test_the_conversations_prompt_is_the_agents_with_the_environments_tools(
    tokenizer: Any,
) -> None:
    task = make_task("student-homework-train-000003")
    shown = demonstrate(task, Habits(), random.Random(2))
    opening = ConversationAgent().messages([task.opening], [])
    assert opening[-1] in shown.messages
    names = {tool["function"]["name"] for tool in shown.tools or []}
    assert names >= {tool["function"]["name"] for tool in task.tools}
    assert "read(path)" in render(tokenizer, shown.messages, shown.tools)


def test_a_reply_is_parsed_as_calls_or_else_as_text() -> None:
    call = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
    message = reply_of(f"Both.\n{call}\n{call}<|im_end|>")
    assert message["content"] == "Both."
    functions = [one["function"] for one in message["tool_calls"]]
    assert functions == [{"name": "read", "arguments": {"path": "a.txt"}}] * 2
    for broken in ("<tool_call>\n{\n</tool_call>", "<tool_call>[1]</tool_call>", "Hi <tool_call>"):
        assert reply_of(broken) == {"role": "assistant", "content": broken}
    assert reply_of("Hi<|im_end|>") == {"role": "assistant", "content": "Hi"}


@pytest.mark.slow
def test_the_shipped_policy_solves_what_it_was_never_shown_in_a_chat_models_style() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(shipped_dir())
    tokenizer = AutoTokenizer.from_pretrained(shipped_dir())
    means = hold_conversations(model, tokenizer, "student", seed=0, tasks=24)
    assert means["correct"] >= 0.8
    assert means["personalization"] <= 0.4
    assert means["calls"] >= 0.9


def test_the_policy_without_habits_hears_a_complaint_and_has_no_style_of_its_own() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = shipped_dir("tiny_skills")
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    means = hold_conversations(model, tokenizer, "student", seed=0, tasks=40, temperature=1.0)
    assert means["satisfied"] >= 0.75
    assert means["correct"] >= 0.75
    assert 0.3 <= means["personalization"] <= 0.7
