"""What simulated users say is read by the rule judge as they mean it."""

import asyncio
from pathlib import Path

import pytest
import yaml

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.types import FunctionCall, Message, ToolCall
from clawrl_gym.envs.conversation.tools import Workspace, arguments_of
from clawrl_gym.envs.showcase.conversation.personas import HELDOUT_PERSONAS, PERSONAS
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.rules import RuleJudge

MEANT = {"dislike": -1, "wrong": -1, "missing": -1, "leave": -1, "thanks": 1, "save": 1}
SAID = [
    (persona.name, act, form.format(target="answers/12.txt"))
    for persona in PERSONAS.values()
    for act in MEANT
    for form in getattr(persona, act)
]
RULES = Path(__file__).parents[2] / "conf" / "judge" / "rule.yaml"


def verdict(reply: Message, *next_state: Message) -> int | None:
    judge = RuleJudge(JudgeConfig.model_validate(yaml.safe_load(RULES.read_text())))
    request = "help me with this: Tom has 3 apples and gets 4 more. How many apples is that?"
    return asyncio.run(judge.judge(Case(1, request, reply, list(next_state)))).value


@pytest.mark.parametrize(("persona", "act", "sentence"), SAID)
def test_every_sentence_of_every_persona_is_understood(
    persona: str, act: str, sentence: str
) -> None:
    reply: Message = {"role": "assistant", "content": "**Final answer: 7**"}
    assert verdict(reply, {"role": "user", "content": sentence}) == MEANT[act]


@pytest.mark.parametrize(("persona", "act", "sentence"), SAID)
def test_every_complaint_of_every_persona_teaches_its_own_words(
    persona: str, act: str, sentence: str
) -> None:
    rules = JudgeConfig.model_validate(yaml.safe_load(RULES.read_text()))
    case = Case(1, "what is 3 and 4?", {"role": "assistant", "content": "**7**"},
                [{"role": "user", "content": sentence}])  # fmt: skip
    taught = asyncio.run(RuleJudge(rules, hints=True).judge(case)).hints
    teaches = MEANT[act] == -1 and act != "leave"  # who gives up does not say what was wished
    assert taught == ((f"The user said: {sentence}",) if teaches else ())


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (
            Call("1", "read", arguments_of(path="homework/1.txt")),
            None,
        ),  # contents say nothing
        (Call("1", "write", arguments_of(path="a.txt", content="its 7")), 1),
        (Call("1", "read", arguments_of(path="nothing.txt")), -1),
        (Call("1", "read", "not json"), -1),
        (Call("1", "sing", "{}"), -1),
    ],
)
def test_results_of_tools_are_understood(call: Call, value: int | None) -> None:
    files = Workspace({"homework/1.txt": "Tom has 3 apples ..."}, frozenset({"read", "write"}))
    function: FunctionCall = {"name": call.name, "arguments": call.arguments}
    called: ToolCall = {"id": call.id, "type": "function", "function": function}
    reply: Message = {"role": "assistant", "content": None, "tool_calls": [called]}
    content = files.result(call)
    assert verdict(reply, {"role": "tool", "tool_call_id": "1", "content": content}) == value


@pytest.mark.parametrize(
    ("persona", "read", "praise"),
    [("student", 18, 0), ("teacher", 7, 1), ("engineer", 4, 1), ("child", 7, 0), ("clerk", 5, 0)],
)
def test_so_many_held_out_complaints_are_read(persona: str, read: int, praise: int) -> None:
    """The figures of docs/conversation.md; the rules were written without these sentences."""
    reply: Message = {"role": "assistant", "content": "**Final answer: 7**"}
    said = HELDOUT_PERSONAS[persona].dislike
    values = [verdict(reply, {"role": "user", "content": sentence}) for sentence in said]
    assert (values.count(-1), values.count(1)) == (read, praise)
