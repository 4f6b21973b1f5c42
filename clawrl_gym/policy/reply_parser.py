"""One reply inside vLLM's process: the engine's outputs as events, read by vLLM's own parsers.

What the parsers make of a reply does not depend on how it is asked for: a stream and a reading of
finished ids take the same steps. Nothing of a reply is lost: what a streaming parser held back
(a tool call that turned out to be none) comes with the last step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

from clawrl_gym.policy.continued_text import ContinuedText
from clawrl_gym.policy.vllm_objects import (
    ChatCompletionRequest,
    CompletionOutput,
    DeltaMessage,
    FunctionCall,
    OnlineRenderer,
    OutputProcessor,
    Parser,
    RequestOutput,
    SampleLogprobs,
)

Event = dict[str, Any]
"""A JSON object between this process and the policy's client."""

_MISSING_LOGPROB = -9999.0  # vLLM's word for none


class ReplyParser:
    """vLLM's tool and reasoning parsers over one reply."""

    def __init__(
        self, renderer: OnlineRenderer, request: ChatCompletionRequest, prompt_ids: list[int]
    ) -> None:
        """A call that the client demands is read like one that it allows: the policy is sampled as
        it is, and never forced into a form."""
        if request.tools and request.tool_choice != "none":
            request.tool_choice = "auto"
        self._renderer = renderer
        self._request = request
        self._prompt_ids = prompt_ids
        self._tokenizer = renderer.renderer.get_tokenizer()
        self._parser = self._new_parser()
        self._text = ""
        self._content = ""
        self._has_calls = False
        self._ids: list[int] = []

    @cached_property
    def skips_special(self) -> bool:
        """Whether the text must come without special tokens; some parsers look for them."""
        skips: bool = self._parser.adjust_request(self._request).skip_special_tokens
        return skips

    def read(self, text: str, ids: list[int], *, last: bool) -> Event:
        """What the next text adds to the message, in the OpenAI wire form."""
        self._text += text
        self._ids += ids
        message = self._parser.parse_delta(
            text, ids, self._request, prompt_token_ids=self._prompt_ids, finished=last
        )
        delta = self._delta(message)
        self._content += delta.get("content", "")
        self._has_calls = self._has_calls or "tool_calls" in delta
        return self._with_rest(delta) if last else delta

    def replay(
        self, ids: list[int], *, visible: int, stop_text: str | None = None
    ) -> Iterator[Event]:
        """The deltas of a whole reply's ids, one by one; those after `visible` add no
        text."""
        texts = self._texts(ids[:visible]) + [""] * (len(ids) - visible)
        if stop_text:
            texts = _cut(texts, "".join(texts).find(stop_text))
        for at, (token, text) in enumerate(zip(ids, texts, strict=True), 1):
            yield self.read(text, [token], last=at == len(ids))

    def _new_parser(self) -> Parser:
        return self._renderer.parser(
            self._tokenizer,
            self._request.tools,
            chat_template_kwargs=self._renderer.effective_chat_template_kwargs(self._request),
            model_config=self._renderer.model_config,
        )

    def _delta(self, message: DeltaMessage) -> Event:
        if message is None:
            return {}
        delta = {"content": message.content, "reasoning_content": message.reasoning}
        calls = [
            call.model_dump(exclude_none=True)
            for call in message.tool_calls or []
            if call.index == 0 or self._request.parallel_tool_calls is not False
        ]
        return {key: value for key, value in (delta | {"tool_calls": calls}).items() if value}

    def _with_rest(self, delta: Event) -> Event:
        """The last delta, with what vLLM finds in the whole text and its stream held back."""
        if self._has_calls or self._content == self._text:
            return delta
        parser = self._new_parser()
        parser.set_prompt_token_ids(self._prompt_ids)
        _, content, calls = parser.parse(
            self._text, self._request, enable_auto_tools=True, model_output_token_ids=self._ids
        )
        if calls:
            return delta | {"tool_calls": [_whole_call(i, call) for i, call in enumerate(calls)]}
        if content and content.startswith(self._content) and content != self._content:
            rest = content[len(self._content) :]
            return delta | {"content": delta.get("content", "") + rest}
        return delta

    def _texts(self, ids: list[int]) -> list[str]:
        from vllm.tokenizers.detokenizer_utils import (
            convert_prompt_ids_to_tokens,
            detokenize_incrementally,
        )

        skips = self.skips_special
        tokens, prefix, read = convert_prompt_ids_to_tokens(
            self._tokenizer, self._prompt_ids, skip_special_tokens=skips
        )
        texts = []
        for token in ids:
            new, text, prefix, read = detokenize_incrementally(
                self._tokenizer, [token], tokens, prefix, read, skip_special_tokens=skips
            )
            tokens = (tokens + new)[prefix:]
            prefix, read = 0, read - prefix
            texts.append(text)
        return texts


class EngineEvents:
    """The engine's outputs for one request, one after the other."""

    def __init__(
        self,
        output_processor: OutputProcessor,
        reader: ReplyParser | None,
        continued: ContinuedText | None = None,
    ) -> None:
        """`reader` None: the text is the message's content. `continued`: of a reply that another
        server began; None: the text is the engine's own."""
        self._processor = output_processor
        self._reader = reader
        self._continued = continued
        self._starts: list[tuple[str, int]] | None = None
        self._count = 0

    def event(self, result: RequestOutput) -> Event | None:
        """What one output brings; None when it brings nothing."""
        output = result.outputs[0]
        if self._continued is not None:
            output = self._continued.read(output)
        ids, last = list(output.token_ids), output.finish_reason is not None
        if not (ids or output.text or last):
            return None
        event: Event = {"ids": ids, "logprobs": _logprobs(ids, output.logprobs)}
        event["versions"] = self._versions(result.request_id, len(ids))
        if self._reader is not None:
            event["delta"] = self._reader.read(output.text, ids, last=last)
        elif output.text:
            event["delta"] = {"content": output.text}
        if last:
            event |= _end(output)
        if self._continued is not None and self._continued.is_stopped:
            event["weight_versions"] = self._spans(output)
        return event

    def _spans(self, output: CompletionOutput) -> list[Event]:
        """As vLLM has them in its last output, of all ids up to a stop text that it does not know
        of."""
        told = [(span.version, span.start) for span in output.weight_versions or []]
        starts = [span for span in self._starts or told if span[1] < self._count]
        return [
            {"version": version, "start": start, "end": end}
            for (version, start), (_, end) in pairwise([*starts, ("", self._count)])
        ]

    def _versions(self, request_id: str, new: int) -> list[str]:
        """Of the new tokens, as vLLM counts them for the spans that only its last output has."""
        if self._starts is None:
            internal_ids = self._processor.external_req_ids.get(request_id, ())
            states = [self._processor.request_states.get(internal) for internal in internal_ids]
            self._starts = next((s.weight_version_starts for s in states if s is not None), [])
        positions = range(self._count, self._count + new)
        self._count += new
        return [_version_at(at, self._starts) for at in positions] if self._starts else []


def whole_reply(result: RequestOutput) -> Event:
    """What a request that is not streamed has sampled."""
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
    """Of the sampled ids; None for what vLLM does not know."""
    if steps is None:
        return [None] * len(ids)
    entries = [step.get(token) if step else None for token, step in zip(ids, steps, strict=True)]
    values = [math.nan if entry is None else entry.logprob for entry in entries]
    return [value if value > _MISSING_LOGPROB else None for value in values]


def _whole_call(index: int, call: FunctionCall) -> Event:
    function = {"name": call.name, "arguments": call.arguments}
    call_id = call.id or _new_call_id()
    return {"index": index, "id": call_id, "type": "function", "function": function}


def _new_call_id() -> str:
    from vllm.renderers.chat_utils import make_tool_call_id

    return str(make_tool_call_id())


def _cut(texts: list[str], length: int) -> list[str]:
    """Texts that together are at most `length` characters; all of them when it is -1."""
    if length < 0:
        return texts
    left, cut = length, []
    for text in texts:
        cut.append(text[:left])
        left -= len(cut[-1])
    return cut
