"""One reply inside vLLM's process: the engine's outputs as events, read into a message.

A reply is read id by id, in order, whatever the engine merged: what is made of it does not depend
on how it came or was asked for. Reasoning is told apart by vLLM's parsers, tool calls by
`call_text.py`, or by vLLM where that does not know the format. Text goes out as it comes. Calls go
out with the last step, when all of them can be read whole. vLLM's parser reads the whole reply,
too, and what it reads otherwise is noted.
"""

from __future__ import annotations

import copy
import json
import math
import secrets
import string
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from clawrl_gym.inference.generation import Delta, message_of
from clawrl_gym.inference.vllm.call_text import FORMATS, CallReading, CallText, MarkedJson
from clawrl_gym.inference.vllm.objects import (
    ChatCompletionRequest,
    CompletionOutput,
    OnlineRenderer,
    OutputProcessor,
    Parser,
    RequestOutput,
    SampleLogprobs,
)
from clawrl_gym.inference.vllm.reply_text import ReplyText, Step, reply_text

Event = dict[str, Any]
"""A JSON object between this process and the policy's client."""

_MISSING_LOGPROB = -9999.0  # vLLM's word for none
_ID_BYTES = 12
_SHOWN = 100
"""Characters of a call in a note."""
_MISTRAL_ID_LENGTH = 9
"""Mistral's chat template takes no other."""


class ReplyParser:
    """Reads one reply."""

    def __init__(
        self, renderer: OnlineRenderer, request: ChatCompletionRequest, prompt_ids: list[int]
    ) -> None:
        """A call that the client demands is read like one that it allows, in the policy's syntax;
        where vLLM demands it as plain JSON, vLLM reads it."""
        self._renderer = renderer
        self._request = request
        self._prompt_ids = prompt_ids
        self._tokenizer = renderer.renderer.get_tokenizer()
        self._may_call = bool(request.tools) and request.tool_choice != "none"
        is_forced = self._may_call and request.tool_choice not in (None, "auto")
        self._forced = request.tool_choice if is_forced else None
        is_json = is_forced and self._adjusted.structured_outputs.json is not None
        if self._may_call and not is_json:
            request.tool_choice = "auto"
        self._format = FORMATS.get(self._parser_name) if self._may_call and not is_json else None
        self._parser = self._new_parser(reads_calls=self._may_call and self._format is None)
        self._text = ""
        self._ids: list[int] = []
        self._content = ""
        """The content that was sent."""
        self._pending = ""
        """Content that may belong to a call."""
        self._streamed: list[Delta] = []
        """Calls as vLLM's stream tells them."""

    @cached_property
    def skips_special(self) -> bool:
        """Whether the text must come without special tokens; some parsers look for them."""
        skips: bool = self._adjusted.skip_special_tokens
        return skips

    def constrain(self, generate: Event) -> None:
        """Have the engine sample in the form that is asked for, from where vLLM begins it: behind
        the reasoning."""
        params: Event = generate["sampling_params"]
        if self._forced is None and "structured_outputs" not in params:
            return
        form = self._adjusted.structured_outputs
        params["structured_outputs"] = {
            name: value
            for name, value in vars(form).items()
            if value is not None and not name.startswith("_")
        }
        generate["reasoning_ended"] = self._adjusted.resolve_reasoning_ended(
            self._whole_parser, self._prompt_ids
        )
        if getattr(self._renderer.parser, "reasoning_parser_cls", None) is not None:
            kwargs = self._renderer.effective_chat_template_kwargs(self._request)
            generate["reasoning_parser_kwargs"] = {"chat_template_kwargs": kwargs}

    def text(self, stop: Sequence[str] = (), min_tokens: int = 0) -> ReplyText:
        """The text of a reply that is about to be read."""
        return reply_text(
            self._tokenizer,
            self._prompt_ids,
            stop,
            skips_special=self.skips_special,
            min_tokens=min_tokens,
        )

    def read(self, steps: Sequence[Step], *, last: bool) -> Event:
        """The next ids' addition to the message, in the OpenAI wire form."""
        deltas = [
            self._read(text, [token], last=False) for token, text in steps[: -1 if last else None]
        ]
        if last:
            token, text = steps[-1] if steps else (None, "")
            deltas.append(self._read(text, [] if token is None else [token], last=True))
            deltas.append(self._rest())
        return _joined(deltas)

    def replay(
        self, ids: list[int], *, visible: int, stop_text: str | None = None
    ) -> Iterator[Event]:
        """The deltas of a whole reply's ids, one by one; those after `visible` add no
        text."""
        text = self.text([stop_text] if stop_text else [])
        for at, token in enumerate(ids, 1):
            is_last, steps = at == len(ids), [(token, "")]
            if not text.is_stopped:
                steps = text.next(token, says_nothing=at > visible, is_last=is_last)
            yield self.read(steps, last=is_last)

    @property
    def _parser_name(self) -> str:
        """Name of the class of vLLM's tool parser; empty where there is none."""
        parser_class = getattr(self._renderer.parser, "tool_parser_cls", None)
        name: str = getattr(parser_class, "__name__", "")
        return name

    @cached_property
    def _adjusted(self) -> ChatCompletionRequest:
        """The request as vLLM changes it for its engine. Raises ValueError where a call that is
        demanded would not be."""
        if self._forced is None:
            return self._whole_parser.adjust_request(self._request)
        request = self._whole_parser.adjust_request(copy.copy(self._request))
        if getattr(request, "structured_outputs", None) is None:
            raise ValueError(
                "got a tool_choice that demands a call, which "
                f"{self._parser_name or 'a policy without policy.tool_parser'} cannot, expected "
                "tool_choice 'auto' or 'none'"
            )
        return request

    @cached_property
    def _whole_parser(self) -> Parser:
        """vLLM's own, for the reply that has ended: some take megabytes each, for ever."""
        return self._new_parser(reads_calls=True)

    def _new_parser(self, *, reads_calls: bool) -> Parser:
        """vLLM's own. Without calls it tells reasoning from content, and content stays as it is."""
        parser_class = self._renderer.parser
        if not reads_calls and getattr(parser_class, "tool_parser_cls", None) is not None:
            parser_class = _without_calls(parser_class)
        return parser_class(
            self._tokenizer,
            self._request.tools,
            chat_template_kwargs=self._renderer.effective_chat_template_kwargs(self._request),
            model_config=self._renderer.model_config,
        )

    def _read(self, text: str, ids: list[int], *, last: bool) -> Delta:
        """The addition of one id; calls are held back."""
        self._text += text
        self._ids += ids
        message = self._parser.parse_delta(
            text, ids, self._request, prompt_token_ids=self._prompt_ids, finished=last
        )
        delta = Delta()
        if message is None:
            return delta
        if message.reasoning:
            delta["reasoning_content"] = message.reasoning
        content = self._said(message.content or "")
        if content:
            delta["content"] = content
        calls = [call.model_dump(exclude_none=True) for call in message.tool_calls or []]
        if calls:
            self._streamed.append({"tool_calls": calls})
        return delta

    def _said(self, content: str) -> str:
        """The part of the content that can be sent with its next piece."""
        if self._format is None:
            self._content += content
            return content
        self._pending += content
        if self._format.starts(self._pending):
            return ""
        is_first = not self._content
        length = self._format.said_before_calls(self._pending, is_first=is_first)
        said, self._pending = self._pending[:length], self._pending[length:]
        self._content += said
        return said

    def _rest(self) -> Delta:
        """The last delta: calls, and what the stream held back."""
        if not self._may_call:
            whole = "" if self._content == self._text else self._whole_reading()[0]
            rest_text = whole[len(self._content) :] if whole.startswith(self._content) else ""
            return {"content": rest_text} if rest_text else {}
        reading = self._by_format() if self._format is not None else self._by_vllm()
        if self._request.parallel_tool_calls is False:
            left, reading.calls = reading.calls[1:], reading.calls[:1]
            reading.notes += [
                f"one call a reply is allowed, {call.name} {call.arguments} was left out"
                for call in left
            ]
        rest: Delta = {}
        if reading.said:
            rest["content"] = "".join(reading.said)
        if reading.calls:
            rest["tool_calls"] = [
                {"index": at, "id": call.id or self._new_call_id(), "type": "function",
                 "function": {"name": call.name, "arguments": call.arguments}}
                for at, call in enumerate(reading.calls)
            ]  # fmt: skip
        if reading.failures:
            rest["unread_calls"] = reading.failures
        if reading.notes:
            rest["reading_notes"] = reading.notes
        return rest

    def _by_format(self) -> CallReading:
        assert self._format is not None
        if self._format.starts(self._pending):
            reading = self._format.read(self._pending, self._arguments)
        else:
            reading = CallReading(said=[self._pending] if self._pending else [])
        theirs = reading.calls if reading.failures else self._whole_reading()[1]
        if [*map(_meaning, theirs)] != [*map(_meaning, reading.calls)]:
            reading.notes.append(
                f"vLLM's parser reads {_names(theirs)} in the whole reply, "
                f"expected {_names(reading.calls)}"
            )
        return reading

    def _by_vllm(self) -> CallReading:
        """vLLM's own parse of the whole text, with the content that its stream held back."""
        reading = CallReading()
        content, whole = self._whole_reading()
        wires = message_of(self._streamed).get("tool_calls") or []
        streamed = [
            CallText(w["function"]["name"], str(w["function"]["arguments"] or "{}"), w["id"])
            for w in wires
        ]
        reading.calls = whole or streamed
        if [*map(_meaning, whole)] != [*map(_meaning, streamed)]:
            reading.notes.append(
                f"vLLM's parser reads {_names(whole)} in the whole reply "
                f"and {_names(streamed)} in its stream"
            )
        if content.startswith(self._content):
            reading.say(content[len(self._content) :])
        return reading

    def _whole_reading(self) -> tuple[str, list[CallText]]:
        """Content and calls, as vLLM's parser finds them in the whole text."""
        self._whole_parser.set_prompt_token_ids(self._prompt_ids)
        _, content, calls = self._whole_parser.parse(
            self._text, self._request, enable_auto_tools=True, model_output_token_ids=self._ids
        )
        read = [CallText(c.name, c.arguments or "{}", c.id or "") for c in calls or []]
        return content or "", read

    def _arguments(self, call: str) -> str | None:
        """One call's arguments, typed by its tool's schema."""
        parser = self._new_parser(reads_calls=True).tool_parser
        found = parser.extract_tool_calls(call, self._request)
        calls = found.tool_calls if found.tools_called else []
        return calls[0].function.arguments if len(calls) == 1 else None

    def _new_call_id(self) -> str:
        if isinstance(self._format, MarkedJson):
            letters = string.ascii_letters + string.digits
            return "".join(secrets.choice(letters) for _ in range(_MISTRAL_ID_LENGTH))
        return f"call_{secrets.token_hex(_ID_BYTES)}"


class EngineEvents:
    """The engine's outputs for one request, one after the other."""

    def __init__(
        self,
        output_processor: OutputProcessor,
        reader: ReplyParser | None,
        text: ReplyText | None = None,
    ) -> None:
        """`reader` None: the text is the message's content. `text`: of the reply, made from its
        ids; None, where there is no reader: the text is the engine's own."""
        self._processor = output_processor
        self._reader = reader
        self._text = text
        self._starts: list[tuple[str, int]] | None = None
        self._count = 0

    def event(self, result: RequestOutput) -> Event | None:
        """The event of one output; None when it has none."""
        output = result.outputs[0]
        said, steps = output.text, list[Step]()
        if self._text is not None:
            output, steps = self._text.read(output)
            said = "".join(text for _, text in steps)
        ids, last = list(output.token_ids), output.finish_reason is not None
        if not (ids or said or last):
            return None
        event: Event = {"ids": ids, "logprobs": _logprobs(ids, output.logprobs)}
        event["versions"] = self._versions(result.request_id, len(ids))
        if self._reader is not None:
            event["delta"] = self._reader.read(steps, last=last)
        elif said:
            event["delta"] = {"content": said}
        if last:
            event |= _end(output)
        if self._text is not None and self._text.is_stopped:
            event["weight_versions"] = self._spans(output)
        return event

    def _spans(self, output: CompletionOutput) -> list[Event]:
        """Version spans as vLLM has them in its last output, of all ids up to a stop text that it
        does not know of."""
        told = [(span.version, span.start) for span in output.weight_versions or []]
        starts = [span for span in self._starts or told if span[1] < self._count]
        return [
            {"version": version, "start": start, "end": end}
            for (version, start), (_, end) in pairwise([*starts, ("", self._count)])
        ]

    def _versions(self, request_id: str, new: int) -> list[str]:
        """Versions of the new tokens, counted as vLLM does for the spans in its last output."""
        if self._starts is None:
            internal_ids = self._processor.external_req_ids.get(request_id, ())
            states = [self._processor.request_states.get(internal) for internal in internal_ids]
            self._starts = next((s.weight_version_starts for s in states if s is not None), [])
        positions = range(self._count, self._count + new)
        self._count += new
        return [_version_at(at, self._starts) for at in positions] if self._starts else []


def whole_reply(result: RequestOutput) -> Event:
    """The whole reply of a request that is not streamed."""
    output = result.outputs[0]
    ids = list(output.token_ids)
    logprobs = _logprobs(ids, output.logprobs)
    return {"ids": ids, "logprobs": logprobs, "text": output.text, **_end(output)}


def _end(output: CompletionOutput) -> Event:
    """Why a generation ended, and which weights sampled it."""
    return {
        "weight_versions": [vars(span) for span in output.weight_versions or []],
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
    }


def _version_at(position: int, starts: list[tuple[str, int]]) -> str:
    return next(version for version, start in reversed(starts) if start <= position)


def _logprobs(ids: list[int], steps: SampleLogprobs) -> list[float | None]:
    """Log-probs of the sampled ids; None where vLLM does not know them."""
    if steps is None:
        return [None] * len(ids)
    entries = [step.get(token) if step else None for token, step in zip(ids, steps, strict=True)]
    values = [math.nan if entry is None else entry.logprob for entry in entries]
    return [value if value > _MISSING_LOGPROB else None for value in values]


@cache
def _without_calls(parser_class: Parser) -> Parser:
    """One class for all replies."""
    return type("ReasoningOnly", (parser_class,), {"tool_parser_cls": None})


def _joined(deltas: Iterable[Delta]) -> Event:
    """Deltas as one; each kind of content in its order."""
    joined: Event = {}
    for delta in deltas:
        for kind, added in delta.items():
            joined[kind] = joined[kind] + added if kind in joined else added
    return joined


def _meaning(call: CallText) -> tuple[str, str]:
    """Name and arguments of a call, however its JSON is spelt."""
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.arguments


def _names(calls: list[CallText]) -> str:
    written = [f"{call.name} {call.arguments}"[:_SHOWN] for call in calls]
    return f"the calls {written}" if calls else "no call"
