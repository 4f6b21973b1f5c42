"""The tool-call agent: both protocols, thoughts, parse failures, and results in their form."""

import json

import pytest

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.agents.tool_calls import Call, Reply, decode, encode_results, failure
from clawrl_gym.envs.toolcall.agent import SYSTEM, ToolCallAgent
from clawrl_gym.envs.toolcall.toolsets.calculator import CALCULATE
from clawrl_gym.envs.toolcall.toolsets.python import PYTHON
from clawrl_gym.judge.signals.tool_rules import ToolRules, results_by_call, shown_output
from tests.support import narrow
from tests.support.fakes_judge import shipped_rules

NATIVE, TEXT = ToolCallAgent(), ToolCallAgent(protocol="text")


def text_call(name: str, **arguments: object) -> str:
    """How protocol `text` writes a call."""
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def said(content, *calls):
    reply = {"role": "assistant", "content": content}
    if calls:
        reply["tool_calls"] = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(calls, 1)
        ]
    return reply


def acted(agent, reply):
    action = agent.action(reply)
    assert isinstance(action, Action), action
    return decode(action.text)


def called(text):
    return [(call.name, json.loads(call.arguments)) for call in acted(TEXT, said(text)).calls]


def test_native_calls_become_one_action_and_results_come_back_as_tool_messages():
    reply = said(None, ("calculate", '{"expression": "1"}'), ("read", "{}"))
    assert acted(NATIVE, reply) == Reply(
        "", (Call("c1", "calculate", '{"expression": "1"}'), Call("c2", "read", "{}"))
    )
    observation = encode_results(acted(NATIVE, reply).calls, ["1", "x"])
    assert NATIVE.messages(["hi", observation], [reply]) == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "hi"},
        reply,
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "x"},
    ]
    assert NATIVE.tools([CALCULATE]) == [CALCULATE]
    assert NATIVE.instructions([CALCULATE]) == ""


def test_the_first_line_of_the_system_message_fits_the_tiny_policy():
    assert len(SYSTEM.splitlines()[0]) <= 160
    assert ToolCallAgent("").messages(["hi"], []) == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "content",
    [
        '<tool_call>\n{"name": "calculate", "arguments": {"expression": "1\n</tool_call>',
        '<tool_call>{"name": "calculate"',
        'so {"name": "x"}</tool_call>',
    ],
)
def test_a_call_that_the_server_could_not_read_is_a_parse_failure(content):
    failed = NATIVE.action(said(content))
    assert isinstance(failed, ParseFailure)
    assert failed.message.startswith("got 0 actions, expected <tool_call>")
    again = NATIVE.messages(["hi", failed.message], [said(content)])
    assert again[-1] == {"role": "user", "content": failed.message}


def test_thoughts_call_nothing_and_are_not_said():
    thinking = '<think>maybe <tool_call>{"name": "x"}</tool_call></think>\n\n391'
    assert acted(NATIVE, said(thinking)) == Reply("391")
    assert acted(TEXT, said(thinking)) == Reply("391")
    assert acted(TEXT, said("already open</think>391")) == Reply("391")
    assert acted(TEXT, said("<think>never closed <code>1</code>")) == Reply("")


def test_text_describes_its_tools_and_offers_none():
    assert TEXT.tools([CALCULATE]) == []
    words = TEXT.instructions([CALCULATE, PYTHON])
    for tool in (CALCULATE, PYTHON):
        assert json.dumps(tool["function"]) in words
    assert "<code>" in words
    assert "<code>" not in TEXT.instructions([CALCULATE])
    assert TEXT.instructions([]) == ""


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "python", "arguments": {"code": "1\\n2"}}</tool_call>',
        '<tool_call>\n{\n  "name": "python",\n  "arguments": {"code": "1\\n2"}\n}\n</tool_call>',
        '<tool_call>{"name": "python", "arguments": {"code": "1\n2"}}</tool_call>',
        '<tool_call>```json\n{"name": "python", "arguments": {"code": "1\\n2"}}\n```</tool_call>',
        '<tool_call>{"name": "python", "arguments": "{\\"code\\": \\"1\\\\n2\\"}"}</tool_call>',
        "<code>1\n2</code>",
        "<code>\n```python\n1\n2\n```\n</code>",
        "Let me see.\n```python\n1\n2\n```\nso",
        "```py\n1\n2\n```",
        text_call("python", code="1\n2"),
    ],
)
def test_a_call_in_the_text_is_read_in_every_form(text):
    """Section 4.5 of the reference's defects: each line break became \\n, so pretty JSON broke."""
    assert called(text) == [("python", {"code": "1\n2"})]


def test_calls_in_a_text_keep_their_order_and_what_is_said_around_them():
    text = f"First {text_call('a', x=1)} then <code>2</code>{text_call('b')} end"
    reply = acted(TEXT, said(text))
    assert [call.name for call in reply.calls] == ["a", "python", "b"]
    assert len({call.id for call in reply.calls}) == 3
    assert reply.content.split() == ["First", "then", "end"]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>calculate(1)</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>["a"]</tool_call>',
        '<tool_call>{"name": 5}</tool_call>',
        "<tool_call></tool_call>",
        '<tool_call>{"name": "a"}',
        "</tool_call>",
        f"{text_call('a')} <tool_call>broken",
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
    ],
)
def test_a_broken_call_in_the_text_is_a_parse_failure_that_comes_back(text):
    failed = TEXT.action(said(text))
    assert isinstance(failed, ParseFailure)
    assert len(failed.message) < 500
    last = TEXT.messages(["hi", failed.message], [said(text)])[-1]
    assert last == {"role": "user", "content": failed.message}


def test_results_of_calls_in_the_text_come_back_in_their_tags():
    reply = said(f"{text_call('calculate', expression='1')}\n<code>2</code>")
    observation = encode_results(acted(TEXT, reply).calls, ["1", "2"])
    last = TEXT.messages(["hi", observation], [reply])[-1]
    assert last == {
        "role": "user",
        "content": "<tool_response>\n1\n</tool_response>\n<interpreter>\n2\n</interpreter>",
    }
    spoken = TEXT.messages(["hi", "[1, 2]"], [said("hello")])[-1]
    assert spoken == {"role": "user", "content": "[1, 2]"}


def test_an_answer_with_code_in_another_language_is_said():
    text = "```bash\nls\n```"
    assert acted(TEXT, said(text)) == Reply(text)


def test_messages_only_grow():
    """What the model read once stays as it was: prompts extend each other."""
    replies = [said(text_call("a")), said("x"), said("<tool_call>")]
    seen = ["hi", encode_results(acted(TEXT, replies[0]).calls, ["1"]), "go on", "broken"]
    whole = TEXT.messages(seen, replies)
    for turns in range(len(replies)):
        part = TEXT.messages(seen[: turns + 1], replies[:turns])
        assert whole[: len(part)] == part


def test_a_prompt_is_templated_once():
    """Section 4.5 of the reference's defects: a templated prompt was put into a template again."""
    for agent in (NATIVE, TEXT):
        messages = agent.messages(["What is 17 * 23?"], [])
        assert messages[-1] == {"role": "user", "content": "What is 17 * 23?"}
        assert "<|im_start|>" not in json.dumps(messages)


TRACEBACK = (
    'before\nTraceback (most recent call last):\n  File "<code 1>", line 2, in <module>\n'
    "    1 / 0\n    ~~^~~\nZeroDivisionError: division by zero"
)


@pytest.mark.parametrize(
    ("name", "result", "value"),
    [
        ("calculate", "391", 1),
        ("calculate", failure("calculate", "division by zero"), -1),
        ("read_file", failure("read_file", "File not found: a"), -1),
        ("read_file", "a story about an error", 1),
        ("fly", failure("fly", "there is no such tool; tools: a"), -1),
        ("python", TRACEBACK, -1),
        ("python", TRACEBACK.removeprefix("before\n"), -1),
        ("python", "x\n(stopped: it took too long)", -1),
        (
            "python",
            "(stopped: it took too long)\n(the interpreter was stopped: its variables are lost)",
            -1,
        ),
        (
            "python",
            "(stopped: it ended by itself, perhaps out of memory: its variables are lost)",
            -1,
        ),
        ("python", "(no output)", 1),
    ],
)
def test_the_rule_judge_reads_what_comes_back(name, result, value):
    rules = ToolRules(shipped_rules())
    reply = said(None, (name, "{}"))
    [(call, text)] = results_by_call(reply, [{"tool_call_id": "c1", "content": result}])
    assert rules.find(text, call, marked=True).value == value


def test_the_rule_judge_reads_a_parse_failure():
    rules = ToolRules(shipped_rules())
    reply = said("<tool_call>broken</tool_call>")
    call, text = shown_output(reply, narrow.failure(TEXT.action(reply)).message)
    assert rules.find(text, call).value == -1
