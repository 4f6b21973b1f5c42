"""Calls that a client demands: the form is vLLM's own, in the policy's syntax, and a reply that
takes it is read like any other. xgrammar says which replies take it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from clawrl_gym.inference.structured import Structured
from clawrl_gym.inference.vllm.reply_parser import ReplyParser
from tests.support.reply_cases import (
    PARSERS,
    PROMPT,
    TOOLS,
    ids_of,
    reader,
    renderer,
    tokenizer,
)

pytestmark = [
    pytest.mark.slow,  # it imports vLLM
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CALLS = {
    "hermes": '<tool_call>\n{{"name": "{0}", "arguments": {{"x": "a"}}}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function={0}>\n<parameter=x>\na\n</parameter>\n</function>\n"
    "</tool_call>",
    "llama3_json": '{{"name": "{0}", "parameters": {{"x": "a"}}}}',
    "mistral": '[{{"name": "{0}", "arguments": {{"x": "a"}}}}]',
}
"""Calls as vLLM demands them: of a Mistral without its own tokenizer as plain JSON."""
BETWEEN = {"qwen3_coder": "\n"}
NAMED = {"type": "function", "function": {"name": "look"}}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    pytest.importorskip("vllm")
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@cache
def compiler() -> Any:
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer())
    return xgrammar.GrammarCompiler(info, max_threads=1)


def takes(form: dict[str, Any], text: str) -> bool:
    """Whether a reply of this text takes the form."""
    import xgrammar

    if "json" in form:
        grammar = compiler().compile_json_schema(json.dumps(form["json"]))
    else:
        grammar = compiler().compile_structural_tag(form["structural_tag"])
    matcher = xgrammar.GrammarMatcher(grammar)
    ids = [*ids_of(text), tokenizer().eos_token_id]
    return all(matcher.accept_token(token) for token in ids)


def asked(names: tuple[str, str | None], **fields: Any) -> dict[str, Any]:
    """What vLLM's engine is asked for a chat."""
    from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
    from vllm.v1.structured_output.backend_xgrammar import validate_xgrammar_grammar

    form = fields.get("structured_outputs")
    params: dict[str, Any] = {} if form is None else {"structured_outputs": form}
    generate: dict[str, Any] = {"token_ids": PROMPT, "sampling_params": params}
    reader(names, **fields).constrain(generate)
    validate_xgrammar_grammar(GenerateRequest(**generate).sampling_params)
    return generate


@pytest.mark.parametrize("names", PARSERS, ids=str)
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_demanded_call_is_the_only_reply_and_is_read(
    names: tuple[str, str | None], choice: Any
) -> None:
    generate = asked(names, tool_choice=choice)
    form = generate["sampling_params"]["structured_outputs"]
    call = CALLS[names[0]]
    assert takes(form, call.format("look"))
    assert takes(form, call.format("write")) == (choice == "required")
    assert not takes(form, call.format("burn"))
    assert not takes(form, "Well, hello")
    one = reader(names, tool_choice=choice)
    thoughts = "<think>\nI look.\n</think>\n\n" if names[1] else ""
    ids = ids_of(thoughts + call.format("look"))
    deltas = [delta for delta in one.replay(ids, visible=len(ids)) if delta]
    (read,) = deltas[-1]["tool_calls"]
    assert read["function"] == {"name": "look", "arguments": '{"x": "a"}'}
    assert "unread_calls" not in deltas[-1]


@pytest.mark.parametrize("names", PARSERS[:3], ids=str)
def test_one_call_is_demanded_where_no_more_may_be_made(names: tuple[str, str | None]) -> None:
    call, between = CALLS[names[0]], BETWEEN.get(names[0], "")
    two = f"{call.format('look')}{between}{call.format('write')}"
    many = asked(names, tool_choice="required")["sampling_params"]["structured_outputs"]
    assert takes(many, two)
    fields: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False}
    one = asked(names, **fields)["sampling_params"]["structured_outputs"]
    assert not takes(one, two)
    assert takes(one, call.format("look"))


def test_a_form_begins_behind_the_reasoning() -> None:
    thinking = asked(("hermes", "qwen3"), tool_choice="required")
    assert thinking["reasoning_ended"] is False
    assert thinking["reasoning_parser_kwargs"] == {"chat_template_kwargs": {}}
    plain = asked(("hermes", None), tool_choice="required")
    assert not plain["reasoning_ended"]
    assert "reasoning_parser_kwargs" not in plain


@pytest.mark.parametrize("names", PARSERS, ids=str)
def test_a_reply_in_a_form_keeps_it_beside_tools_that_may_be_called(
    names: tuple[str, str | None],
) -> None:
    form = Structured.of("structured_outputs", "regex", "a+").for_vllm["structured_outputs"]
    made = asked(names, structured_outputs=form)["sampling_params"]["structured_outputs"]
    assert {key: value for key, value in made.items() if value} == {"regex": "a+"}


@pytest.mark.parametrize("names", PARSERS, ids=str)
def test_nothing_is_forced_that_was_not_asked_for(names: tuple[str, str | None]) -> None:
    for choice in ("auto", "none"):
        fields: dict[str, Any] = {"tool_choice": choice, "parallel_tool_calls": False}
        generate: dict[str, Any] = {"token_ids": PROMPT, "sampling_params": {}}
        reader(names, **fields).constrain(generate)
        assert generate == {"token_ids": PROMPT, "sampling_params": {}}


def test_a_policy_that_cannot_demand_a_call_says_so() -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser import ParserManager

    silent = renderer(("hermes", None))
    silent.parser = ParserManager.get_parser(reasoning_parser_name="qwen3")
    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": "x"}], tools=TOOLS, tool_choice="required"
    )
    with pytest.raises(ValueError, match="cannot, expected tool_choice 'auto'"):
        ReplyParser(silent, request, PROMPT)
