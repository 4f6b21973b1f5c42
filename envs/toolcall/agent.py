"""The tool-call agent: a reply's calls become one action, their results come back one by one.

`native`: the policy server's own tool calls. `text`: the tools are described in the system message
and called in the reply's text, as <tool_call>{JSON}</tool_call>, or as Python in <code> or a block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.agents.tool_calls import Call, Reply, calls_of, decode, encode, results_of
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, Tool
from clawrl_gym.envs.conversation.agent import ConversationAgent

Protocol = Literal["native", "text"]

SYSTEM = "You solve tasks with tools. Call a tool when it helps. When you know the answer, say it."
FORM = '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'
PYTHON = "python"
"""The tool that runs <code> and Python blocks."""

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_FENCE = re.compile(r"```\w*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_CALL = re.compile(
    r"<tool_call>(?P<call>.*?)</tool_call>"
    r"|<code>(?P<code>.*?)</code>"
    r"|```(?:python|py)[ \t]*\n(?P<block>.*?)\n?```",
    re.DOTALL,
)
_LEFT = re.compile(r"</?tool_call>")


@dataclass(frozen=True, slots=True)
class _TextCall:
    """One call in a text."""

    call: Call
    is_code: bool
    """Written as <code> or a block: its result comes back as an interpreter's."""


class ToolCallAgent(ConversationAgent):
    """Observations are what the user says, or the results of the reply's calls."""

    def __init__(self, system: str | None = None, protocol: Protocol = "native") -> None:
        super().__init__(SYSTEM if system is None else system)
        self._is_text = protocol == "text"

    @classmethod
    def from_config(cls, config: AgentConfig) -> Self:
        return cls(config.system, config.protocol)

    def tools(self, env_tools: Sequence[Tool]) -> list[Tool]:
        return [] if self._is_text else list(env_tools)

    def instructions(self, env_tools: Sequence[Tool]) -> str:
        """End of the system message: protocol `text` describes the tools there."""
        if not self._is_text or not env_tools:
            return ""
        schemas = "\n".join(json.dumps(tool.get("function", tool)) for tool in env_tools)
        description = (
            f"<tools>\n{schemas}\n</tools>\nCall a tool by writing {FORM}; several at once are "
            "allowed. Results come back in <tool_response>."
        )
        names = [tool.get("function", tool).get("name") for tool in env_tools]
        if PYTHON in names:
            description += (
                " Python may be called as <code>...</code> too; its result is in <interpreter>."
            )
        return description

    def action(self, reply: Message) -> Action | ParseFailure:
        text = _visible_text(reply)
        if not self._is_text:
            if _LEFT.search(text):
                return _failure("a tool call in the text that is no valid JSON")
            return Action(encode(Reply(text, calls_of(reply))))
        text_calls = _calls_in(text)
        if isinstance(text_calls, ParseFailure):
            return text_calls
        content = _CALL.sub("", text).strip() if text_calls else text
        return Action(encode(Reply(content, tuple(text_call.call for text_call in text_calls))))

    def reply(self, action: str) -> Message:
        """The reply that asks for an action; inverse of `action`, for demonstrations."""
        if not self._is_text:
            return super().reply(action)
        decoded = decode(action)
        calls = [
            f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
            "</tool_call>"
            for call in decoded.calls
        ]
        said = "\n".join(filter(None, [decoded.content, *calls]))
        return {"role": "assistant", "content": said}

    def _messages_after(self, reply: Message, observation: str) -> list[Message]:
        text_calls = (
            () if reply.get("tool_calls") or not self._is_text else _calls_in(_visible_text(reply))
        )
        if isinstance(text_calls, ParseFailure) or not text_calls:
            return super()._messages_after(reply, observation)
        results = results_of(observation, len(text_calls))
        blocks = [
            _result_block(text_call, result)
            for text_call, result in zip(text_calls, results, strict=True)
        ]
        return [{"role": "user", "content": "\n".join(blocks)}]


def reply_text(reply: Reply) -> str:
    """The reply in the text protocol; inverse of `ToolCallAgent.action` there."""
    forms = (f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
             for call in reply.calls)  # fmt: skip
    calls = [f"<tool_call>{form}</tool_call>" for form in forms]
    return "\n".join(part for part in (reply.content, *calls) if part)


def _visible_text(reply: Message) -> str:
    """Text of a reply; thoughts call nothing and are left out."""
    text = text_of(reply)
    _, closing, after = text.rpartition("</think>")
    return _THINKING.sub("", after if closing else text).strip()


def _calls_in(text: str) -> tuple[_TextCall, ...] | ParseFailure:
    text_calls = []
    for number, match in enumerate(_CALL.finditer(text), 1):
        call_text = match["call"]
        if call_text is None:
            code = match["block"] if match["code"] is None else _unfenced(match["code"])
            call = Call(f"call-{number}", PYTHON, json.dumps({"code": code.strip("\n")}))
            text_calls.append(_TextCall(call, is_code=True))
            continue
        parsed = _parsed(call_text, f"call-{number}")
        if isinstance(parsed, ParseFailure):
            return parsed
        text_calls.append(_TextCall(parsed, is_code=False))
    if _LEFT.search(_CALL.sub("", text)):
        return _failure("a <tool_call> that is not closed")
    return tuple(text_calls)


def _parsed(text: str, call_id: str) -> Call | ParseFailure:
    """A call written as JSON, in one line or many; a text in it may hold bare line breaks."""
    try:
        form = json.loads(_unfenced(text.strip()), strict=False)
    except (ValueError, RecursionError) as error:
        return _failure(f"a <tool_call> that is no JSON ({error})"[:200])
    if not isinstance(form, dict) or not isinstance(form.get("name"), str):
        return _failure('a <tool_call> without a "name"')
    arguments = form.get("arguments", form.get("parameters", {}))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return Call(call_id, form["name"], arguments)


def _unfenced(text: str) -> str:
    fenced = _FENCE.fullmatch(text.strip())
    return fenced[1] if fenced else text


def _failure(problem: str) -> ParseFailure:
    return ParseFailure(f"got 0 actions, expected {FORM}: there was {problem}")


def _result_block(text_call: _TextCall, result: str) -> str:
    tag = "interpreter" if text_call.is_code else "tool_response"
    return f"<{tag}>\n{result}\n</{tag}>"
