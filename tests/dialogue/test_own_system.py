"""A chat template that writes a system message which nobody sent: prompts still extend each other,
and hints stand where they belong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clawrl_gym.core.types import Message
from clawrl_gym.dialogue.graph import Rendering
from clawrl_gym.dialogue.prompts import PreviousTurn, insert_addition, make_prompt
from clawrl_gym.judge.enhance import with_hint
from tests.dialogue.test_prompts import RealTemplate
from tests.gateway.test_sessions import make_turn, user
from tests.inference.test_chat_template import PLAIN

OWN = "You are a helpful AI assistant named SmolLM"


@pytest.fixture
def template() -> RealTemplate:
    return RealTemplate(PLAIN)


async def test_a_second_turn_extends_the_first_though_its_reply_was_spelt_oddly(
    template: RealTemplate,
) -> None:
    asked = [user("Name 12 things.")]
    prompt_T = await template.render({"messages": asked})
    assert template.text(prompt_T).count(OWN) == 1
    reply_T = [*template.odd_tokens(["A", "p", "ple", "s"]), template.end]
    reply: Message = {"role": "assistant", "content": "Apples"}
    turn = replace(
        make_turn(asked, "Apples"),
        prompt_ids_T=prompt_T,
        sampled_ids_T=reply_T,
        reply=reply,
        finish_reason="stop",
    )
    previous = PreviousTurn(turn, Rendering.of(prompt_T))
    made = await make_prompt(
        template.render, {"messages": [*asked, reply, user("  And 3 more?")]}, previous
    )
    assert made.fit in ("exact", "spliced")
    assert made.ids_T[: len(prompt_T) + len(reply_T)] == prompt_T + reply_T
    assert template.text(made.ids_T).count(OWN) == 1


async def test_a_hint_stands_at_the_end_of_the_last_user_message_and_nowhere_else(
    template: RealTemplate,
) -> None:
    messages: list[Message] = [
        user("Name 12 things."),
        {"role": "assistant", "content": "No."},
        user("Please!"),
    ]
    plain_T = await template.render({"messages": messages})
    hinted = with_hint(messages, "\n\n[hint]\n\nSay yes.")
    assert hinted is not None
    hinted_T = await template.render({"messages": hinted})
    used = insert_addition(plain_T, plain_T, hinted_T)
    text = template.text(used)
    assert text == template.text(plain_T).replace("Please!", "Please!\n\n[hint]\n\nSay yes.")
    assert text.count(OWN) == 1


async def test_a_system_message_of_ones_own_takes_its_place(template: RealTemplate) -> None:
    messages: list[Message] = [{"role": "system", "content": "Be brief."}, user("Hello")]
    text = template.text(await template.render({"messages": messages}))
    assert OWN not in text
    assert text.count("system") == 1
