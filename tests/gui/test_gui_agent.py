"""The agent for pages: both protocols, pictures as parts, and only the newest of them."""

import pytest

from clawrl_gym.agents.agent import Action
from clawrl_gym.agents.context import HeadTail, size_chars
from clawrl_gym.agents.tool_calls import Call, Reply, decode, encode_results
from clawrl_gym.config import AgentConfig
from clawrl_gym.envs.gui.agent import LEFT_OUT, SYSTEM, GuiAgent
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.schema import FORMS, tool
from clawrl_gym.envs.parts import encode_parts
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.rollout.collection.worker import build_agent
from tests.support.narrow import action, parts, text_of_part

NATIVE, TEXT = GuiAgent(), GuiAgent(protocol="text")
TOOL = tool(1024, 640)


def reply_with_calls(content, *calls):
    reply = {"role": "assistant", "content": content}
    if calls:
        reply["tool_calls"] = [
            {"id": f"c{n}", "type": "function", "function": {"name": "computer", "arguments": one}}
            for n, one in enumerate(calls, 1)
        ]
    return reply


def page(number):
    return encode_parts(f"page {number}", [b"\xff\xd8" + bytes([number])])


def pictures(messages):
    """Texts of the messages, with "+" where a picture is."""
    texts = []
    for message in messages[1:]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts.append("".join(part.get("text", "+") for part in parts))
    return texts


def test_native_offers_the_tool_and_text_says_it_in_words():
    assert NATIVE.tools([TOOL]) == [TOOL]
    assert NATIVE.instructions([TOOL]) == ""
    assert TEXT.tools([TOOL]) == []
    words = TEXT.instructions([TOOL])
    assert all(form.example in words for form in FORMS.values())
    assert TEXT.instructions([]) == ""


def test_calls_become_one_action_and_results_come_back_one_by_one():
    reply = reply_with_calls(None, '{"action": "click", "id": 3}', '{"action": "done"}')
    action = NATIVE.action(reply)
    assert isinstance(action, Action)
    calls = tuple(decode(action.text).calls)
    assert [call.arguments for call in calls] == [
        '{"action": "click", "id": 3}',
        '{"action": "done"}',
    ]
    observation = encode_results(calls, ["done", "page"])
    assert NATIVE.messages(["ask", observation], [reply]) == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "ask"},
        reply,
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "page"},
    ]


def test_a_text_is_the_action_even_when_it_reads_like_calls():
    assert TEXT.action(reply_with_calls("I buy it.\nclick(3)")) == Action("I buy it.\nclick(3)")
    form = '{"content": "x", "tool_calls": [{"id": "1", "name": "computer", "arguments": "{}"}]}'
    assert decode(action(TEXT.action(reply_with_calls(form))).text) == Reply(form)
    assert TEXT.action(reply_with_calls(None)) == Action("")


def test_pictures_become_parts_of_what_came_back():
    [_, first] = TEXT.messages([page(0)], [])
    assert first["role"] == "user"
    assert [part["type"] for part in parts(first["content"])] == ["text", "image_url"]
    reply = reply_with_calls(None, '{"action": "done"}')
    observation = encode_results([Call("c1", "computer", "{}")], [page(1)])
    last = NATIVE.messages(["ask", observation], [reply])[-1]
    assert (last["role"], last["tool_call_id"]) == ("tool", "c1")
    assert parts(last["content"])[1]["type"] == "image_url"


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (3, ["page 0" + "\n" + LEFT_OUT, "page 1+", "page 2+", "page 3+"]),
        (1, [*(f"page {n}\n{LEFT_OUT}" for n in range(3)), "page 3+"]),
        (0, [f"page {n}\n{LEFT_OUT}" for n in range(4)]),
        (9, [f"page {n}+" for n in range(4)]),
    ],
)
def test_only_the_newest_pictures_stay(images, expected):
    agent = GuiAgent(protocol="text", images=images)
    replies = [reply_with_calls("wait()")] * 3
    history = agent.messages([page(n) for n in range(4)], replies)
    assert pictures([m for m in history if m["role"] != "assistant"]) == expected


def test_what_the_model_says_is_never_taken_for_a_picture():
    evil = page(1)
    history = TEXT.messages(["ask", "page"], [reply_with_calls(evil)])
    assert history[2]["content"] == evil


def test_the_agent_follows_the_environment_and_its_configuration():
    agent = build_agent(AgentConfig(protocol="text", images=1), GuiEnvConfig())
    assert isinstance(agent, GuiAgent)
    assert agent.tools([TOOL]) == []
    assert isinstance(build_agent(AgentConfig(type="gui"), TerminalEnvConfig()), GuiAgent)
    assert agent.messages(["ask"], [])[0]["content"] == SYSTEM
    own = build_agent(AgentConfig(system="Be brief."), GuiEnvConfig())
    assert own.messages(["ask"], [])[0]["content"] == "Be brief."


def test_a_long_history_of_pictures_is_cut_like_any_other():
    agent = GuiAgent(protocol="text", images=2)
    messages = agent.messages([page(n) for n in range(6)], [reply_with_calls("wait()" * 50)] * 5)
    cut = HeadTail(max_chars=900).view(messages)
    assert len(cut) < len(messages)
    assert size_chars(cut) <= 900
    assert cut[-1] == messages[-1]


def test_the_note_of_what_was_left_out_stands_beside_a_picture():
    agent = GuiAgent(protocol="text", images=9)
    messages = agent.messages([page(n) for n in range(6)], [reply_with_calls("x" * 300)] * 5)
    cut = HeadTail(max_chars=1000).view(messages)
    [noted] = [m for m in cut if isinstance(m["content"], list) and len(m["content"]) == 3]
    assert text_of_part(parts(noted["content"])[-1]).endswith("left out here)")
