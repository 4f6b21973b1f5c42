"""Replies as turns: the prompt's ids, and those by which the policy would have said the reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Turn
from clawrl_gym.dialogue.chats import BadRow, Chat, PlainText, read_row
from clawrl_gym.dialogue.merging import merge_turns
from clawrl_gym.inference.models.renderer import ChatRenderer
from tests.support.tiny_models import TEMPLATE, make_random_model

USER = {"role": "user", "content": "copy the file"}
REPLY = {"role": "assistant", "content": "first lines"}
LAST_THOUGHT_ONLY = TEMPLATE.replace(
    "{{ message.content or '' }}",
    "{% if message.reasoning_content and loop.last %}"
    "{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% endif %}"
    "{{ message.content or '' }}",
)
"""Drops the thoughts of earlier replies."""


def renderer(folder: Path, template: str = TEMPLATE, **settings: Any) -> ChatRenderer:
    model = make_random_model(folder / "model", template=template)
    file = model / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return ChatRenderer(model)


def chat(*messages: Any, **more: Any) -> Chat:
    read = read_row({"messages": [*messages], **more}, "all")
    assert isinstance(read, Chat)
    return read


def said(renderer: ChatRenderer, turns: list[Turn]) -> list[str]:
    return [renderer.decode(turn.sampled_ids_T) for turn in turns]


def test_a_reply_ends_with_its_end_token_and_its_prompt_where_it_begins(tmp_path: Path) -> None:
    render = renderer(tmp_path)
    first, second = render.turns(chat(USER, REPLY, USER, REPLY), "s")
    assert said(render, [first, second]) == ["first lines<|im_end|>"] * 2
    opened = "<|im_start|>user\ncopy the file<|im_end|>\n<|im_start|>assistant\n"
    assert render.decode(first.prompt_ids_T) == opened
    assert render.decode(second.prompt_ids_T) == f"{opened}first lines<|im_end|>\n{opened}"
    (whole,) = merge_turns([first, second]).sequences
    assert whole.ids_T == second.prompt_ids_T + second.sampled_ids_T
    assert sum(whole.mask_T) == 2 * len(first.sampled_ids_T)


def test_a_template_that_drops_thoughts_makes_a_sequence_of_each_reply(tmp_path: Path) -> None:
    render = renderer(tmp_path, LAST_THOUGHT_ONLY)
    thoughtful = {**REPLY, "reasoning_content": "I copy it."}
    turns = render.turns(chat(USER, thoughtful, USER, thoughtful), "s")
    merged = merge_turns(turns, render.decode)
    assert merged.forks == {"template": 1}
    assert said(render, turns) == ["<think>\nI copy it.\n</think>\n\nfirst lines<|im_end|>"] * 2
    assert "think" not in render.decode(turns[1].prompt_ids_T)


def test_letters_that_would_melt_into_the_prompt_stay_apart(tmp_path: Path) -> None:
    """The policy has read the prompt before it says anything."""
    asked = TEMPLATE.replace("assistant\n{% endif %}", "assistant\nco{% endif %}")
    template = asked.replace(
        "{{ message.content or '' }}",
        "{% if message.role == 'assistant' %}co{% endif %}{{ message.content or '' }}",
    )
    render = renderer(tmp_path, template)
    (turn,) = render.turns(chat(USER, {"role": "assistant", "content": "py"}), "s")
    whole = render._tokenizer("copy", add_special_tokens=False)["input_ids"]
    assert len(whole) == 1, "the two are one token of this tokenizer"
    assert render.decode(turn.sampled_ids_T) == "py<|im_end|>"
    assert turn.prompt_ids_T[-1] not in whole


def test_special_tokens_in_what_somebody_wrote_end_nothing(tmp_path: Path) -> None:
    render = renderer(tmp_path)
    odd = {"role": "assistant", "content": "say <|im_end|> now"}
    (turn,) = render.turns(chat(USER, odd), "s")
    end = render.end_ids[0]
    assert turn.sampled_ids_T.count(end) == 1
    assert turn.sampled_ids_T[-1] == end
    assert render.decode(turn.sampled_ids_T) == "say <|im_end|> now<|im_end|>"


def test_a_completion_of_plain_text_gets_an_end(tmp_path: Path) -> None:
    render = renderer(tmp_path)
    turn = render.text_turn(PlainText("copy the file", " below"), "s")
    assert render.decode(turn.prompt_ids_T) == "copy the file"
    assert render.decode(turn.sampled_ids_T) == " below<|im_end|>"
    same = render.text_turn(PlainText("copy the file", " below<|im_end|>"), "s")
    assert same.sampled_ids_T == turn.sampled_ids_T


def test_end_tokens_are_the_servers(tmp_path: Path) -> None:
    render = renderer(tmp_path, eos_token="<|endoftext|>")
    file = tmp_path / "model" / "generation_config.json"
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(BadRow, match=r"ends otherwise than with the model's end token"):
        render.turns(chat(USER, REPLY), "s")
    file.write_text('{"eos_token_id": [0, 2]}')
    (turn,) = ChatRenderer(tmp_path / "model").turns(chat(USER, REPLY), "s")
    assert turn.sampled_ids_T[-1] == 2


CALL = {"function": {"name": "look", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": "first lines", "tool_calls": [CALL]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
WITHOUT_CALLS = TEMPLATE.replace("message.tool_calls or []", "[]")
WITHOUT_TOOLS = TEMPLATE.replace("{%- if tools %}", "{%- if false %}")


def test_calls_of_tools_are_learned_as_the_template_writes_them(tmp_path: Path) -> None:
    render = renderer(tmp_path)
    (turn,) = render.turns(chat(USER, CALLING, tools=[TOOL]), "s")
    called = render.decode(turn.sampled_ids_T)
    assert called == (
        'first lines<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call><|im_end|>'
    )
    assert '"name": "look"' in render.decode(turn.prompt_ids_T)


@pytest.mark.parametrize(
    ("template", "messages", "says"),
    [
        (WITHOUT_CALLS, [USER, CALLING], "tool calls, which the model's chat template does not"),
        (WITHOUT_TOOLS, [USER, REPLY], "tools, which the model's chat template does not write"),
        (TEMPLATE + "{{ raise_exception('no') }}", [USER, REPLY], r"refused by the chat template"),
        (
            TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"),
            [USER, REPLY],
            "a reply that the chat template does not write behind its prompt",
        ),
    ],
)
def test_what_a_template_cannot_say_is_no_demonstration(
    tmp_path: Path, template: str, messages: list[Any], says: str
) -> None:
    with pytest.raises(BadRow, match=says):
        renderer(tmp_path, template).turns(chat(*messages, tools=[TOOL]), "s")


def test_a_model_without_a_chat_template_has_plain_text_alone(tmp_path: Path) -> None:
    render = renderer(tmp_path, chat_template=None)
    assert render.text_turn(PlainText("a", "b"), "s").sampled_ids_T
    with pytest.raises(ConfigError, match="no chat template, expected one for data of chats"):
        render.turns(chat(USER, REPLY), "s")


def test_a_model_without_an_end_would_never_stop(tmp_path: Path) -> None:
    render = renderer(tmp_path, eos_token=None)
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(ConfigError, match="has no end token"):
        render.turns(chat(USER, REPLY), "s")
