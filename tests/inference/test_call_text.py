"""Tool calls in the text of a reply, in the formats of `conf/policy`, written well and badly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawrl_gym.inference.vllm.call_text import FORMATS, CallReading

HERMES, XML, LLAMA, MISTRAL = (
    FORMATS[name]
    for name in (
        "Hermes2ProToolParser", "Qwen3EngineToolParser",
        "Llama3JsonToolParser", "MistralToolParser",
    )
)  # fmt: skip
GOOD = '{"name": "f", "arguments": {"x": "a"}}'
CALL = ("f", '{"x": "a"}')


def tag(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def typed(call: str) -> str:
    """As vLLM types the parameters of a call in XML."""
    parts = call.split("<parameter=")[1:]
    pairs = (part.split(">", 1) for part in parts)
    return json.dumps({key: value.partition("</parameter>")[0].strip() for key, value in pairs})


def read(how: Any, text: str) -> tuple[CallReading, list[tuple[str, str]]]:
    reading = how.read(text, typed)
    return reading, [(call.name, call.arguments) for call in reading.calls]


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (GOOD, [CALL]),
        ('{"arguments": {"x": "a"}, "name": "f"}', [CALL]),
        ('{"arguments": {"name": "Bob"}, "name": "f"}', [("f", '{"name": "Bob"}')]),
        ('{"name": "f", "parameters": {"x": "a"}}', [CALL]),
        ('{"name": "f"}', [("f", "{}")]),
        ('{"name": "f", "arguments": null}', [("f", "{}")]),
        ('{"name": "f", "arguments": {}}', [("f", "{}")]),
        ('{"name": "f", "arguments": {"x": "a"}', [CALL]),
        ('{"name": "f", "arguments": {"x": "a"}}}', [CALL]),
        ('{"name": "f", "arguments": {oops}}', [("f", "{oops}}")]),
        ('{"name": "f", "arguments": {"x": ', [("f", '{"x":')]),
        ('{"name": "f", "arguments"', [("f", "{")]),
        ('{"name": "f"', [("f", "{")]),
        ('{"name": "f", "arguments": "text"}', [("f", '"text"')]),
        ('{"name": "f", "arguments": [1]}', [("f", "[1]")]),
        ('{"name": "f", "arguments": {"x": NaN}}', [("f", '{"x": NaN}}')]),
        (f"{GOOD}\n{GOOD}", [CALL, CALL]),
        (f"[{GOOD}, {GOOD}]", [CALL, CALL]),
        ('{"name": "f", "name": "f", "arguments": {"x": "a"}}', [CALL]),
        ('{"name": "f", "arguments": {"x": "</tool_call>"}}', [("f", '{"x": "</tool_call>"}')]),
    ],
)
def test_a_call_is_read_however_it_is_written(body: str, calls: list[tuple[str, str]]) -> None:
    reading, found = read(HERMES, tag(body))
    assert found == calls
    assert (reading.said, reading.failures) == ([], [])


@pytest.mark.parametrize(
    "body",
    [
        "{oops", "oops", "", "[]", "4", '{"tool": "f"}', '{"name": 4, "arguments": {}}',
        '{"name": "", "arguments": {}}', '{"name": "f", "name": "g", "arguments": {}}',
        '{"name": "f", "arguments": {"a": 1}, "parameters": {"b": 2}}',
        '{"type": "function", "function": {"name": "f"}}', '"f"', "[" * 5000, "{'name': 'f'}",
    ],
)  # fmt: skip
def test_what_is_no_call_stays_text_and_takes_no_other_call_away(body: str) -> None:
    reading, found = read(HERMES, tag(GOOD) + "\n" + tag(body) + tag(GOOD))
    assert found == [CALL, CALL]
    assert reading.said == [tag(body)]
    assert len(reading.failures) == 1


def test_words_around_calls_are_kept() -> None:
    text = f"{tag(GOOD)} then {tag(GOOD)}\n```\nDone."
    assert read(HERMES, text)[0].said == [" then ", "\n```\nDone."]
    reading, found = read(HERMES, f"<tool_call>{GOOD} and more words</tool_call>")
    assert (found, reading.said) == ([CALL], ["and more words"])
    assert len(reading.notes) == 1


def test_a_call_without_its_end_or_with_its_tag_only_is_not_lost() -> None:
    assert read(HERMES, f"<tool_call>{GOOD}")[1] == [CALL]
    assert read(HERMES, f"<tool_call>{GOOD}<tool_call>{GOOD}")[1] == [CALL, CALL]
    assert read(HERMES, "<tool_call>")[0].said == ["<tool_call>"]


def test_members_that_no_tool_gets_are_noted() -> None:
    reading, found = read(HERMES, tag('{"name": "f", "why": "because", "arguments": {"x": "a"}}'))
    assert found == [CALL]
    assert "because" in reading.notes[0]


PARAMETER = "<parameter=x>\na\n</parameter>\n"


@pytest.mark.parametrize(
    ("text", "calls", "said"),
    [
        (tag(f"<function=f>\n{PARAMETER}</function>"), [CALL], []),
        (f"<function=f>\n{PARAMETER}</function> more", [CALL], [" more"]),
        (tag("<function=f>\n</function>"), [("f", "{}")], []),
        (tag(f"<function=f>\n{PARAMETER}"), [CALL], []),
        (tag(f"<function=f>{PARAMETER}</function><function=f>{PARAMETER}"), [CALL] * 2, []),
        ("<tool_call>\n<function=f>\n<parameter=x>\na", [("f", "<parameter=x>\na")], []),
        (tag(f"<function=f>junk{PARAMETER}</function>"), [("f", f"junk{PARAMETER}".strip())], []),
        ("<tool_call><function=wri", [], ["<function=wri"]),
        (tag("{oops"), [], [tag("{oops")]),
        (tag(f"words<function=f>{PARAMETER}</function>"), [CALL], ["\nwords"]),
        (tag(f"<function=f>{PARAMETER}{PARAMETER}</function>"), [CALL], []),
        (tag("<function=f><parameter=x>a<parameter=y>b</parameter></function>"),
         [("f", '{"x": "a", "y": "b"}')], []),
        (tag("<function=f><parameter=x>a</parameter><parameter=x>b</parameter></function>"),
         [("f", "<parameter=x>a</parameter><parameter=x>b</parameter>")], []),
    ],
)  # fmt: skip
def test_calls_in_xml(text: str, calls: list[tuple[str, str]], said: list[str]) -> None:
    reading, found = read(XML, text)
    assert (found, reading.said) == (calls, said)


@pytest.mark.parametrize(
    "value",
    [
        "</function>", "</function>\n</tool_call>", "<function=g>", "<tool_call>", "</tool_call>",
        "< / parameter >", "</ parameter>", "<parameter", "<think>a</think>", "</think>",
        "<|im_end|>", "a < b > c", r"\u003c <", "<b>\n\n\"'\\</b>", "日本 <🎉>",
    ],
)  # fmt: skip
def test_a_value_in_xml_may_hold_the_tags_of_calls(value: str) -> None:
    function = f"<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>"
    reading, ((name, arguments),) = read(XML, f"{tag(function)} more")
    assert (name, json.loads(arguments)) == ("f", {"x": value})
    assert (reading.said, reading.failures) == ([" more"], [])


@pytest.mark.parametrize(
    "written",
    ['{"name":"f","parameters":{"x":"%s"}}', '[{"name":"f","arguments":{"x":"%s"}}]',
     'f[ARGS]{"x":"%s"}', 'f{"x":"%s"}', 'f[CALL_ID]a[ARGS]{"x":"%s"}'],
)  # fmt: skip
@pytest.mark.parametrize("value", ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID] {", "}]", "a[TOOL_CALLS]b"])
def test_a_value_may_hold_the_marks_of_calls(written: str, value: str) -> None:
    text = "[TOOL_CALLS]" + written % value
    reading, found = read(MISTRAL, text + f"[TOOL_CALLS]{GOOD}")
    assert [(name, json.loads(arguments)) for name, arguments in found] == [
        ("f", {"x": value}), ("f", {"x": "a"})
    ]  # fmt: skip
    assert (reading.said, reading.failures) == ([], [])


@pytest.mark.parametrize("key", ["args", "input", "params", "Arguments", "argument", "x"])
def test_a_call_whose_arguments_have_another_name_is_not_carried_out_without_them(
    key: str,
) -> None:
    body = tag(f'{{"name": "f", "{key}": {{"x": "a"}}}}')
    reading, found = read(HERMES, body)
    assert (found, reading.said) == ([], [body])
    assert key in reading.failures[0]


@pytest.mark.parametrize(
    ("text", "calls", "said"),
    [
        ('{"name": "f", "parameters": {"x": "a"}}', [CALL], []),
        ('<|python_tag|>{"name": "f", "parameters": {"x": "a"}}', [CALL], []),
        (f"{GOOD}; {GOOD}", [CALL, CALL], []),
        (f"{GOOD} and words", [CALL], ["and words"]),
        (f"{GOOD}; {{oops}}", [CALL], ["{oops}"]),
        ('{"answer": 4}', [], ['{"answer": 4}']),
        ('{"name": "Bob", "age": 4}', [], ['{"name": "Bob", "age": 4}']),
        ("{not json", [], ["{not json"]),
    ],
)
def test_calls_in_bare_json(text: str, calls: list[tuple[str, str]], said: list[str]) -> None:
    reading, found = read(LLAMA, text)
    assert (found, reading.said) == (calls, said)


@pytest.mark.parametrize(
    ("text", "calls", "said"),
    [
        (f"[TOOL_CALLS] [{GOOD}]", [CALL], []),
        ("[TOOL_CALLS]f[ARGS]", [("f", "{")], []),
        ("[TOOL_CALLS]f[ARGS] null", [("f", "{}")], []),
        (f"[TOOL_CALLS][{GOOD}, {GOOD}]", [CALL, CALL], []),
        ('[TOOL_CALLS]f[ARGS]{"x": "a"}[TOOL_CALLS]f{"x": "a"}', [CALL, CALL], []),
        (f"[TOOL_CALLS] [{GOOD}, {{oops]", [CALL], ["{oops]"]),
        (f"[TOOL_CALLS] [{GOOD}] words", [CALL], [" words"]),
        ("[TOOL_CALLS]two words", [], ["[TOOL_CALLS]two words"]),
        ('[TOOL_CALLS]f[ARGS]{"x": ', [("f", '{"x":')], []),
    ],
)
def test_calls_behind_a_mark(text: str, calls: list[tuple[str, str]], said: list[str]) -> None:
    reading, found = read(MISTRAL, text)
    assert (found, reading.said) == (calls, said)


@pytest.mark.parametrize("how", [HERMES, XML, MISTRAL])
def test_a_tag_that_has_only_begun_is_held_back(how: Any) -> None:
    start = how.start
    for length in range(1, len(start)):
        assert how.said_before_calls(f"hi {start[:length]}", is_first=True) == 3
    assert how.said_before_calls(f"hi {start}x", is_first=True) == 3
    assert how.said_before_calls("hi <", is_first=False) in (3, 4)


def test_json_calls_only_at_the_beginning_of_a_reply() -> None:
    assert LLAMA.said_before_calls("{", is_first=True) == 0
    assert LLAMA.said_before_calls("{", is_first=False) == 1
    assert LLAMA.said_before_calls("<|py", is_first=True) == 0
    assert LLAMA.said_before_calls("hi {", is_first=True) == 4
