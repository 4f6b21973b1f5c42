"""However the engine cuts a reply: what is streamed, what is stored and what is read whole agree.

Through vLLM's own parsers and detokenizer, for each combination of parsers in `conf/policy`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.pictures import text_of
from tests.support.reply_cases import (
    PARSERS,
    WrittenReply,
    differences,
    ids_of,
    random_splits,
    reader,
    stopped,
    streamed,
    tokenizer,
    whole,
    without_call_ids,
    written_reply,
)

pytestmark = [
    pytest.mark.slow,  # it imports vLLM
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CONF = Path(__file__).parents[2] / "conf/policy"


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """vLLM's parsers log each reply that they cannot read."""
    pytest.importorskip("vllm")
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def test_all_parsers_of_the_policies_are_tried() -> None:
    pairs = set()
    for path in CONF.glob("*.yaml"):
        config = yaml.safe_load(path.read_text()).get("policy") or yaml.safe_load(path.read_text())
        pairs.add((config.get("tool_parser", "hermes"), config.get("reasoning_parser")))
    assert pairs <= {*PARSERS}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), number=st.integers(0, len(PARSERS) - 1))
def test_a_reply_is_one_whatever_its_splits(seed: int, number: int) -> None:
    """Also where one server dies in it and another goes on."""
    draw, names = random.Random(seed), PARSERS[number]
    reply = stopped(written_reply(names, draw), skips_special=reader(names).skips_special)
    if reply.ids:
        assert differences(names, reply, random_splits(len(reply.ids), 4, draw)) == []


@pytest.mark.parametrize("names", PARSERS, ids=str)
def test_every_single_cut_and_no_cut_at_all(names: tuple[str, str | None]) -> None:
    call = {
        "qwen3_coder": "<tool_call>\n<function=look>\n<parameter=x>\n日本 🎉\n</parameter>\n"
        "</function>\n</tool_call>",
        "llama3_json": '{"name": "look", "parameters": {"x": "日本 🎉"}}',
        "mistral": '[TOOL_CALLS] [{"name": "look", "arguments": {"x": "日本 🎉"}}]',
    }.get(names[0], '<tool_call>\n{"arguments": {"x": "日本 🎉"}, "name": "look"}\n</tool_call>')
    thoughts = "<think>\nI think 🎉\n</think>\n\n" if names[1] else ""
    said = "" if names[0] == "llama3_json" else "Grüße 👩‍👩‍👧 "
    ids = [*ids_of(thoughts + said + call), tokenizer().eos_token_id]
    reply = WrittenReply(ids, "stop", (), ("日本",))
    assert differences(names, reply, [[], *([cut] for cut in range(1, len(ids)))]) == []
    message = whole(names, reply)
    (one,) = without_call_ids(message)["tool_calls"]
    assert one == {"name": "look", "arguments": '{"x": "日本 🎉"}'}
    assert message.get("reasoning_content") == ("\nI think 🎉\n" if names[1] else None)
    assert text_of(message).strip() == said.strip()


def test_thoughts_that_never_end_are_reasoning_and_empty_ones_are_none() -> None:
    names = ("hermes", "qwen3")
    for text, reasoning, content in (
        ("<think>on and on", "on and on", ""),
        ("<think></think>hi", None, "hi"),
        ("I think</think>hi", "I think", "hi"),
    ):
        reply = WrittenReply(ids_of(text), "length", ())
        assert differences(names, reply, random_splits(len(reply.ids), 5, random.Random(1))) == []
        message = whole(names, reply)
        assert (message.get("reasoning_content"), message["content"]) == (reasoning, content)


def test_the_stream_of_two_servers_is_that_of_one() -> None:
    names = ("hermes", "qwen3")
    text = '<think>\nhm\n</think>\n\nGrüße 🎉 <tool_call>\n{"name": "look", "arguments": {}}'
    reply = WrittenReply([*ids_of(text), tokenizer().eos_token_id], "stop", ("END",))
    expected = without_call_ids(whole(names, reply))
    for broken_at in range(1, len(reply.ids)):
        pieces = streamed(names, reply, range(1, len(reply.ids)), broken_at)
        assert [token for piece in pieces for token in piece.ids_T] == reply.ids
        assert differences(names, reply, [[broken_at]]) == []
    assert expected["tool_calls"] == [{"name": "look", "arguments": "{}"}]
