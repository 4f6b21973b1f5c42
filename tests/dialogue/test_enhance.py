"""A hint enters a turn's own prompt, and nothing else of the prompt changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.config import HintConfig
from clawrl_gym.core.errors import ContextError, PolicyError, RequestError
from clawrl_gym.core.types import ChatBody, Message, Tool, Turn, Verdict
from clawrl_gym.dialogue.prompts import insert_addition
from clawrl_gym.judge.enhance import Enhancer, hints_of, with_hint
from tests.support.fakes import FakePolicy, decode, encode, sampled
from tests.support.fakes_judge import a_turn, reply, tool, user

HINT = "Write out.txt."


def enhancer(policy: FakePolicy, max_model_len: int = 10_000, **config: Any) -> Enhancer:
    return Enhancer(policy.render, HintConfig(**config), max_model_len)


async def asked(policy: FakePolicy, *messages: Message, **changes: Any) -> Turn:
    """A turn with the prompt that the policy renders for its messages."""
    ids = await policy.render({"messages": list(messages)})
    turn = a_turn(messages=list(messages), prompt_ids_T=ids, sampled_ids_T=sampled("ok"))
    return replace(turn, **changes)


async def test_the_hint_ends_the_last_user_message() -> None:
    policy = FakePolicy()
    turn = await asked(policy, {"role": "system", "content": "s"}, user("Do it."))
    made = await enhancer(policy).prompts(turn, [HINT])
    assert made is not None
    assert [decode(ids) for ids in made] == [
        "<|system:s|>\n<|user:Do it.\n\n[hint]\nWrite out.txt.|>\n<|assistant:"
    ]


async def test_as_the_users_next_words_it_stands_behind_the_reply_itself() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("Do it."), reply=reply("ok"))
    (made,) = await enhancer(policy, place="next").prompts(turn, [HINT]) or ()
    assert decode(made) == (
        "<|user:Do it.|>\n<|assistant:ok|>\n<|user:[hint]\nWrite out.txt.|>\n<|assistant:"
    )


async def test_a_control_stands_behind_the_hints_in_the_same_form() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("Do it."))
    config = HintConfig(form="!{hint}", selection="overlap", controls=("a lamp",))
    made = Enhancer(policy.render, config, 10_000, with_control=True)
    assert [decode(ids) for ids in await made.prompts(turn, ["h", "other"]) or ()] == [
        f"<|user:Do it.!{hint}|>\n<|assistant:" for hint in ("h", "other", "a lamp")
    ]
    assert made.counters["prompts"] == 2
    assert await made.prompts(turn, []) == ()


async def test_hints_whose_control_does_not_fit_are_left_out() -> None:
    """Else the last hint would pass for the control."""
    policy = FakePolicy()
    turn = await asked(policy, user("Do it."))
    config = HintConfig(form="!{hint}", selection="overlap", controls=("a very long lamp",))
    room = len(turn.prompt_ids_T) + len(turn.sampled_ids_T) + 6
    made = Enhancer(policy.render, config, room, with_control=True)
    assert await made.prompts(turn, ["h", "i"]) == ()
    assert made.counters["too_long"] == 2


@pytest.mark.parametrize("hint", ["", " \n"])
async def test_an_empty_hint_leaves_exactly_the_prompt_that_was_used(hint: str) -> None:
    """In the reference, teacher and policy differ at each token even without any hint."""
    turn = a_turn(prompt_ids_T=[7, 8, 9])
    assert await enhancer(FakePolicy()).prompts(turn, [hint]) == ([7, 8, 9],)


async def test_a_hint_goes_before_later_replies_and_results() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("Do it."), reply("x"), tool("failed"))
    (made,) = await enhancer(policy, form="!{hint}").prompts(turn, ["h"]) or ()
    assert decode(made) == "<|user:Do it.!h|>\n<|assistant:x|>\n<|tool:failed|>\n<|assistant:"


async def test_the_ids_that_were_sampled_stay_before_the_hint() -> None:
    """The template writes `ab` as one id, the policy as two: only the latter were seen."""
    policy = FakePolicy()
    turn = await asked(policy, user("go"), reply("ab"), user("on"))
    used_T = turn.prompt_ids_T
    pair = used_T.index(encode("ab")[0])
    used_T = used_T[:pair] + sampled("ab", end=False) + used_T[pair + 1 :]
    (made,) = (
        await enhancer(policy, form="!{hint}").prompts(replace(turn, prompt_ids_T=used_T), ["h"])
        or ()
    )
    assert decode(made) == "<|user:go|>\n<|assistant:ab|>\n<|user:on!h|>\n<|assistant:"
    assert encode("ab")[0] not in made


async def test_the_ids_that_were_sampled_stay_behind_the_hint() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("go"), reply("ab"), tool("on"))
    used_T = turn.prompt_ids_T
    pair = used_T.index(encode("ab")[0])
    used_T = used_T[:pair] + sampled("ab", end=False) + used_T[pair + 1 :]
    (made,) = (
        await enhancer(policy, form="!{hint}").prompts(replace(turn, prompt_ids_T=used_T), ["h"])
        or ()
    )
    assert decode(made) == "<|user:go!h|>\n<|assistant:ab|>\n<|tool:on|>\n<|assistant:"
    assert encode("ab")[0] not in made


async def test_where_the_place_cannot_be_found_the_fresh_rendering_is_read() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("go"), prompt_ids_T=[1, 2, 3])
    (made,) = await enhancer(policy, form="!{hint}").prompts(turn, ["h"]) or ()
    assert decode(made) == "<|user:go!h|>\n<|assistant:"


IDS = st.lists(st.integers(0, 2), max_size=6)


@settings(derandomize=True)
@given(IDS, IDS, IDS)
def test_what_was_used_as_rendered_becomes_the_hinted_rendering(
    before: list[int], hint: list[int], after: list[int]
) -> None:
    plain, hinted = before + after, before + hint + after
    assert insert_addition(plain, plain, hinted) == hinted


@settings(derandomize=True)
@given(IDS, IDS, st.lists(st.integers(3, 5), min_size=1, max_size=6), IDS)
def test_other_spellings_of_the_past_stay(
    past: list[int], spelt: list[int], hint: list[int], after: list[int]
) -> None:
    """`8` is what begins the last user message, `9` what ends it."""
    plain, used = [*past, 8, 9, *after], [*spelt, 8, 9, *after]
    assert insert_addition(used, plain, [*past, 8, *hint, 9, *after]) == [
        *spelt,
        8,
        *hint,
        9,
        *after,
    ]


async def test_tools_and_template_keys_are_rendered_again() -> None:
    policy = FakePolicy()
    tools: list[Tool] = [{"type": "function", "function": {"name": "ls"}}]
    used_T = await policy.render({"messages": [user("x")], "tools": tools})
    template = {"chat_template_kwargs": {"a": 1}}
    turn = a_turn(messages=[user("x")], prompt_ids_T=used_T, tools=tools, template=template)
    (made,) = await enhancer(policy).prompts(turn, [HINT]) or ()
    assert decode(made).startswith("<|tool:ls|><|user:x\n\n[hint]")
    assert policy.bodies[-1]["chat_template_kwargs"] == {"a": 1}


async def test_the_longest_hint_is_read_or_each_candidate_for_overlap() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("x"))
    hints = ["short", "a longer one", "short"]
    longest = await enhancer(policy).prompts(turn, hints) or ()
    assert ["a longer one" in decode(ids) for ids in longest] == [True]
    each = await enhancer(policy, selection="overlap").prompts(turn, hints) or ()
    assert ["longer" in decode(ids) for ids in each] == [False, True]


async def test_braces_in_a_hint_and_in_the_form_are_words() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("x"))
    (made,) = await enhancer(policy, form=" {0}{hint}").prompts(turn, ["{y} {hint}"]) or ()
    assert "x {0}{y} {hint}|>" in decode(made)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a", "a!"),
        (None, "!"),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a!"}]),
        (
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}],
            [{"type": "text", "text": "a!"}, {"type": "image_url", "image_url": {}}],
        ),
        ([], [{"type": "text", "text": "!"}]),
        (["odd", {"type": "text", "text": None}], None),
    ],
)
def test_content_of_any_form_gets_the_hint(content: Any, expected: Any) -> None:
    message: Any = {"role": "user", "content": content}
    changed = with_hint([message], "!")
    assert changed is not None
    (made,) = changed
    told: Any = made.get("content")
    assert told == (expected if expected is not None else [*content, {"type": "text", "text": "!"}])
    assert message["content"] == content


async def test_without_a_user_message_there_is_no_prompt() -> None:
    policy = FakePolicy()
    made = enhancer(policy)
    turn = await asked(policy, {"role": "system", "content": "x"})
    assert await made.prompts(turn, [HINT]) == ()
    assert +made.counters == {"no_user": 1}


async def test_a_hint_that_the_template_cuts_off_is_no_lesson() -> None:
    async def render(body: ChatBody) -> list[int]:
        return [1, 2, 3]

    made = Enhancer(render, HintConfig(), 100)
    assert await made.prompts(a_turn(), [HINT]) == ()
    assert +made.counters == {"unseen": 1}


async def test_a_raw_prompt_is_not_read_as_a_chat() -> None:
    made = enhancer(FakePolicy())
    turn = a_turn(messages=[user("Once upon")], prompt_ids_T=encode("Once upon"))
    assert await made.prompts(turn, [HINT]) == ()
    assert +made.counters == {"no_chat": 1}


async def test_prompt_and_reply_that_exceed_the_context_are_not_read() -> None:
    policy = FakePolicy()
    turn = await asked(policy, user("x"))
    (whole,) = await enhancer(policy).prompts(turn, [HINT]) or ()
    length = len(whole) + len(turn.sampled_ids_T)
    assert await enhancer(policy, length).prompts(turn, [HINT]) == (whole,)
    short = enhancer(policy, length - 1)
    assert await short.prompts(turn, [HINT]) == ()
    assert +short.counters == {"too_long": 1}


@pytest.mark.parametrize(
    ("error", "answer", "name"),
    [
        (ContextError("too long"), (), "too_long"),
        (RequestError("no such template"), (), "refused"),
        (PolicyError("down"), None, "failed"),
        (TimeoutError(), None, "failed"),
    ],
)
async def test_a_policy_that_fails_leaves_the_turn_without_prompts(
    error: Exception, answer: object, name: str
) -> None:
    async def render(body: ChatBody) -> list[int]:
        raise error

    made = Enhancer(render, HintConfig(), 100)
    assert await made.prompts(a_turn(), [HINT]) == answer
    assert made.counters == {name: 1}


def said(kind: Any, value: Any, **detail: Any) -> Verdict:
    details: Any = detail
    return Verdict(1, kind, value, None if value is None else float(value), details, 0.0)


def test_a_persons_words_come_before_the_judges_hints() -> None:
    judged = said("model", -1, hints=["judge"])
    corrected = said("feedback", -1, text="Shorter,\n please.")
    assert hints_of([judged]) == ("judge",)
    assert hints_of([judged, corrected]) == ("The user said: Shorter, please.", "judge")
    assert hints_of([said("model", None, hints=["a", "b", "a"])]) == ("a", "b")


def test_a_content_person_overrules_the_judges_hints() -> None:
    judged = said("model", -1, hints=["judge"])
    assert hints_of([judged, said("feedback", 1, thumb="up")]) == ()
    assert hints_of([judged, said("feedback", -1, thumb="down")]) == ("judge",)


@pytest.mark.parametrize("text", ["", "  ", 5, None, ["x"]])
def test_feedback_without_words_has_no_hint(text: Any) -> None:
    assert hints_of([said("feedback", -1, text=text)]) == ()


def test_a_long_correction_is_cut() -> None:
    (hint,) = hints_of([said("feedback", -1, text="word " * 20_000)])
    assert len(hint) < 350
