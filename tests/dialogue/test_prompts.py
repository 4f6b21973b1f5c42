"""Prompts that extend the turn before: with the fake's template and with the shipped one."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from tokenizers import Tokenizer

import clawrl_gym.inference.models
from clawrl_gym.core.types import ChatBody, Message, Tool, Turn
from clawrl_gym.dialogue.graph import Rendering
from clawrl_gym.dialogue.prompts import (
    HistoryRule,
    PreviousTurn,
    extends,
    make_prompt,
    same_message,
)
from tests.gateway.test_sessions import assistant, calling, make_turn, tool, user
from tests.support.fakes import END, FakePolicy, sampled
from tests.support.recordings import recorded

MODEL = Path(clawrl_gym.inference.models.__file__).parent / "tiny_model"
PIECES = [
    "ls",
    " -la",
    "```bash\n",
    "\n```",
    " ",
    "é",
    "\U0001f600",
    "0123",
    "<|im_",
    "end|>",
    "s | t",
]


def past_of(turn: Turn, rendered_T: list[int]) -> PreviousTurn:
    return PreviousTurn(turn, Rendering.of(rendered_T))


class RealTemplate:
    """The shipped model's own tokenizer and chat template, without a model."""

    def __init__(self, template: str | None = None) -> None:
        self.tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value, **_: json.dumps(value)
        template = template or (MODEL / "chat_template.jinja").read_text()
        self._template = environment.from_string(template)
        (self.end,) = self.tokens("<|im_end|>")

    async def render(self, body: ChatBody) -> list[int]:
        messages = list(map(_with_mappings, body["messages"]))
        chat = {"tools": None, **body, "messages": messages}
        return self.tokens(self._template.render(**chat, add_generation_prompt=True))

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def text(self, ids_T: list[int]) -> str:
        text: str = self.tokenizer.decode(ids_T, skip_special_tokens=False)
        return text

    def odd_tokens(self, pieces: list[str]) -> list[int]:
        """A spelling that the tokenizer itself would often not choose."""
        return [token for piece in pieces for token in self.tokens(piece)]


def _with_mappings(message: Message) -> dict[str, object]:
    """Arguments of calls as vLLM hands them to a template."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(str(arguments))}}
        for call in message.get("tool_calls", [])
        if (arguments := call["function"]["arguments"])
    ]
    return {**message, **({"tool_calls": calls} if calls else {})}


@pytest.fixture(scope="module")
def real() -> RealTemplate:
    return RealTemplate()


def test_messages_are_the_same_but_for_fields_that_say_nothing() -> None:
    sent_back: Any = {"role": "assistant", "content": None, "tool_calls": [], "refusal": None}
    assert same_message(sent_back, assistant(""))
    assert not same_message(assistant("a"), assistant("a "))
    assert not same_message(user("a"), assistant("a"))


def test_a_request_extends_a_turn_only_verbatim_and_with_something_more() -> None:
    turn = make_turn([user("a")])
    assert extends([user("a"), assistant("ok"), user("b")], turn)
    assert not extends([user("a"), assistant("ok")], turn)
    assert not extends([user("x"), assistant("ok"), user("b")], turn)
    assert not extends([user(" a"), assistant("ok"), user("b")], turn), "not its words"
    assert not extends([user("a"), assistant("OK"), user("b")], turn)


def test_a_reply_in_another_spelling_is_still_the_one_that_was_sampled() -> None:
    reply = calling('{"a": 1}', text=" so ")
    turn = replace(make_turn([user("a")]), reply=reply)
    assert extends([user("a"), calling('{"a":1}', text="so", ids="call{}"), tool("b")], turn)
    assert not extends([user("a"), calling('{"a":2}', text="so"), tool("b")], turn)


@pytest.mark.parametrize(
    "reply",
    [assistant("42", reasoning_content="hm"), assistant("<think>hm</think>42")],
)
def test_reasoning_that_the_client_dropped_is_not_put_back(reply: Message) -> None:
    turn = replace(make_turn([user("a")]), reply=reply)
    without = [user("a"), assistant("42"), user("b")]
    assert not extends(without, turn, keeps_thoughts=False)
    assert extends([user("a"), reply, user("b")], turn, keeps_thoughts=False)
    assert extends(without, turn), "but where thoughts stay"


SYSTEM: Message = {"role": "system", "content": "Monday."}
TUESDAY: Message = {"role": "system", "content": "Tuesday."}


@pytest.mark.parametrize(
    ("sent", "reply", "then", "fit"),
    [
        ([SYSTEM, user("a")], "cab", [TUESDAY, user("a"), assistant("cab"), user("b")], "system"),
        ([user("a"), user("note")], "cab", [user("a"), assistant("cab"), user("b")], "transient"),
        ([user("a")], "cab", [user("a"), assistant("bac"), user("b")], "edited"),
        ([user("a")], "cab", [user("x"), assistant("cab"), user("b")], "edited"),
        ([user("a")], "cab", [user("a"), assistant("cab")], "edited"),
        ([user("a")], "cab", [user("new")], "edited"),
        ([user("a")], "cab", [user("a"), assistant(" cab"), user("b")], "spliced"),
    ],
)
async def test_a_prompt_that_does_not_extend_says_why(
    sent: list[Message], reply: str, then: list[Message], fit: str
) -> None:
    policy = FakePolicy()
    prompt_T = await policy.render({"messages": sent})
    turn = make_turn(sent, reply, prompt_ids_T=prompt_T, sampled_ids_T=sampled(reply))
    prompt = await make_prompt(policy.render, {"messages": then}, past_of(turn, prompt_T))
    assert prompt.fit == fit
    used_T = turn.prompt_ids_T + turn.sampled_ids_T
    extended = prompt.ids_T[: len(used_T)] == used_T
    assert extended == (fit == "spliced")
    if not extended:
        assert prompt.ids_T == await policy.render({"messages": then})


async def test_a_reply_that_lost_its_reasoning_says_so() -> None:
    policy = FakePolicy()
    prompt_T = await policy.render({"messages": [user("a")]})
    turn = make_turn([user("a")], prompt_ids_T=prompt_T, sampled_ids_T=sampled("hm cab"))
    turn = replace(turn, reply=assistant("cab", reasoning_content="hm"))
    body: ChatBody = {"messages": [user("a"), assistant("cab"), user("b")]}
    rule = HistoryRule(keeps_thoughts=False)
    prompt = await make_prompt(policy.render, body, past_of(turn, prompt_T), rule)
    assert (prompt.fit, prompt.ids_T) == ("reasoning", await policy.render(body))


@pytest.mark.parametrize("folder", ["conversation", "tools"])
async def test_openclaws_requests_never_extend_each_other_word_for_word(folder: str) -> None:
    """Its context block stands between the user's message and our reply, and is gone later."""
    policy = FakePolicy()
    first, second = recorded(f"{folder}/1"), recorded(f"{folder}/2")
    prompt_T = await policy.render({"messages": first.messages})
    assert first.reply is not None
    turn = make_turn(first.messages, prompt_ids_T=prompt_T, sampled_ids_T=sampled("x"))
    turn = replace(turn, reply=first.reply)
    body: ChatBody = {"messages": second.messages}
    prompt = await make_prompt(policy.render, body, past_of(turn, prompt_T))
    assert (prompt.fit, prompt.ids_T) == ("transient", await policy.render(body))


def test_a_rendering_is_known_by_its_hash() -> None:
    told = Rendering.of([1, 2, 3])
    assert told.begins([1, 2, 3])
    assert told.begins([1, 2, 3, 4])
    assert not told.begins([1, 2])
    assert not told.begins([1, 2, 4, 4])


async def test_a_reply_that_spells_the_end_token_is_spliced_exactly() -> None:
    """Searching the rendering for the end token would find the one inside the reply."""
    policy = FakePolicy()
    messages = [user("a")]
    prompt_T = await policy.render({"messages": messages})
    used_T = sampled("say |> cab")
    turn = make_turn(
        messages, "say |> cab", prompt_ids_T=prompt_T, sampled_ids_T=used_T, session_id="s"
    )
    body: ChatBody = {"messages": [*messages, turn.reply, user("b")]}
    prompt = await make_prompt(policy.render, body, past_of(turn, prompt_T))
    assert prompt.fit == "spliced"
    assert prompt.ids_T[: len(prompt_T) + len(used_T)] == prompt_T + used_T
    rendered_T = await policy.render(body)
    assert rendered_T.count(END) == prompt_T.count(END) + 3
    assert prompt.ids_T.count(END) == prompt_T.count(END) + 2


async def test_a_reply_that_ended_on_another_token_is_not_spliced() -> None:
    policy = FakePolicy()
    messages = [user("a")]
    prompt_T = await policy.render({"messages": messages})
    turn = make_turn(messages, "cab", prompt_ids_T=prompt_T, sampled_ids_T=sampled("cab", False))
    body: ChatBody = {"messages": [*messages, turn.reply, user("b")]}
    prompt = await make_prompt(policy.render, body, past_of(turn, prompt_T))
    assert prompt.fit == "retoken"
    assert prompt.ids_T == await policy.render(body)


@pytest.mark.parametrize("seed", range(40))
async def test_with_the_real_template_every_prompt_extends_and_reads_the_same(
    real: RealTemplate, seed: int
) -> None:
    """Four turns with replies in odd spellings, some cut off: ids extend, the text is the same."""
    draw = random.Random(seed)
    messages: list[Message] = [{"role": "system", "content": "Work."}, user("start")]
    past: PreviousTurn | None = None
    for _ in range(4):
        prompt = await make_prompt(real.render, {"messages": messages}, past)
        assert real.text(prompt.ids_T) == real.text(prompt.rendered_ids_T)
        if past is not None:
            used_T = past.turn.prompt_ids_T + past.turn.sampled_ids_T
            assert prompt.fit in ("exact", "spliced")
            assert prompt.ids_T[: len(used_T)] == used_T
        pieces = draw.choices(PIECES, k=draw.randrange(1, 8))
        cut = draw.random() < 0.3
        ids_T = real.odd_tokens(pieces) + ([] if cut else [real.end])
        turn = make_turn(
            list(messages),
            "".join(pieces),
            prompt_ids_T=prompt.ids_T,
            sampled_ids_T=ids_T,
            finish_reason="length" if cut else "stop",
        )
        past = past_of(turn, prompt.rendered_ids_T)
        messages = [*messages, turn.reply, user("".join(draw.choices(PIECES, k=3)))]


async def test_with_the_real_template_a_tool_call_keeps_its_sampled_ids(real: RealTemplate) -> None:
    """The template writes the call again in its own way; what was sampled stays."""
    said = '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>'
    function = {"name": "f", "arguments": '{"a":1}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    tools: list[Tool] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    messages = [user("call f")]
    prompt_T = await real.render({"messages": messages, "tools": tools})
    used_T = [*real.tokens(said), real.end]
    turn = make_turn(messages, prompt_ids_T=prompt_T, sampled_ids_T=used_T)
    turn = replace(turn, reply=assistant("", tool_calls=calls))
    result: Message = {"role": "tool", "tool_call_id": "c1", "content": "2"}
    body: ChatBody = {"messages": [*messages, turn.reply, result], "tools": tools}
    prompt = await make_prompt(real.render, body, past_of(turn, prompt_T))
    assert prompt.fit == "spliced"
    tail = "\n<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n"
    tail += "<|im_start|>assistant\n"
    assert real.text(prompt.ids_T) == real.text(prompt_T) + said + "<|im_end|>" + tail
