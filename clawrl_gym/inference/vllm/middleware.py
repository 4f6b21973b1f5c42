"""ASGI middleware inside vLLM's process (`--middleware`), for the one client that the gateway is.

Every route asks for the key, not only those below /v1: vLLM itself leaves its development routes
(pause, reload, remote calls) open to any local user. And there are routes of ours:

    POST /clawrl/stream     generates: an event a step with ids, log-probs, versions and the delta;
                            renders the chat first, where the prompt's ids are not given
    POST /clawrl/reply      the same in one answer: the whole reply, read by the same steps
    POST /clawrl/render     prompt ids of a chat; special tokens inside its texts stay text
    POST /clawrl/tokenize   ids of a text; special tokens in it stay text

vLLM's own streams send either the ids or the message, and its streaming derender reads the whole
reply again at every step; its whole replies take three requests and tell log-probs as objects.
Engine, chat template and parsers are vLLM's; nothing of it is imported before the first request.
"""

from __future__ import annotations

import asyncio
import copy
import hmac
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, TypeVar

from clawrl_gym.inference.models.special_tokens import SpecialTokenMask, Tokenizer
from clawrl_gym.inference.vllm.multimodal import PreparedInputs, RenderedPrompt, expanded, urls_of
from clawrl_gym.inference.vllm.objects import (
    ChatCompletionRequest,
    EngineOutputs,
    GenerateRequest,
    Request,
    RequestOutput,
    ServerState,
)
from clawrl_gym.inference.vllm.reply_parser import EngineEvents, Event, ReplyParser, whole_reply
from clawrl_gym.inference.vllm.reply_text import ReplyText, reply_text

T = TypeVar("T")
_PREFIX = "/clawrl/"
_SET_VERSION = "/update_weight_version"
_GENERATING = (_PREFIX + "stream", _PREFIX + "reply", "/inference/v1/generate")
_TEXTS = ("messages", "tools", "chat_template_kwargs", "documents")
"""The parts of a chat that hold texts of others."""


Scope = MutableMapping[str, Any]
"""Type of ASGI, as are those below; its contents depend on its type."""
Message = Scope
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Handler = Callable[[Event], Awaitable[Event]]
"""A handler of a route of ours that answers whole."""


class RequireKey:
    """Answer 401 unless the request carries `Authorization: Bearer $VLLM_API_KEY`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ['VLLM_API_KEY']}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._allows(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"the key is missing or wrong"})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _allows(self, scope: Scope) -> bool:
        headers = scope["headers"]
        authorization = next((value for name, value in headers if name == b"authorization"), b"")
        return hmac.compare_digest(authorization, self._expected)


class PolicyRoutes:
    """The middleware: answers what is below /clawrl, passes everything else on.

    Nothing is generated before the weights have a version: such tokens could not be told apart.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._routes: RouteHandlers | None = None
        self._has_version = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path in _GENERATING and not self._has_version:
            return await _refuse_for_now(send)
        if not path.startswith(_PREFIX):
            await self._app(scope, receive, send)
            self._has_version = self._has_version or path == _SET_VERSION
            return None
        from starlette.requests import Request
        from starlette.responses import JSONResponse, Response, StreamingResponse

        self._routes = self._routes or RouteHandlers(scope["app"].state)
        name = path.removeprefix(_PREFIX)
        try:
            request = Request(scope, receive)
            body = await request.json()
            if name == "stream":
                lines = _lines(self._routes.events(body))
                answer: Response = StreamingResponse(lines, media_type="text/event-stream")
            else:
                plain = await _unless_gone(self._routes.plain[name], body, request)
                if plain is None:
                    return None
                answer = JSONResponse(plain, plain.get("error", {}).get("code", 200))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client shall read it
            refusal = _error(error)
            answer = JSONResponse(refusal, refusal["error"]["code"])
        await answer(scope, receive, send)
        return None


class RouteHandlers:
    """Handlers of the routes, on the objects that vLLM keeps in its application's state."""

    def __init__(self, state: ServerState) -> None:
        self.plain = {
            "render": self._render,
            "reply": self._reply,
            "tokenize": self._tokenize,
        }
        self._engine = state.engine_client
        self._chat = state.openai_serving_chat
        self._renderer = state.online_renderer
        # vLLM checks a request and starts it; the engine's outputs come out as they are
        self._tokens = copy.copy(state.serving_tokens)
        self._tokens.serve_tokens_stream_generator = lambda request, outputs, *rest: outputs
        self._tokens.serve_tokens_full_generator = _last_of
        self._ready = self._tokens.online_renderer = PreparedInputs(self._renderer)
        self._tokenizer = self._renderer.renderer.get_tokenizer()
        self._specials = _special_token_mask(self._tokenizer)

    async def events(self, body: Event) -> AsyncIterator[Event]:
        """Events of /clawrl/stream."""
        from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        generate, prompt = await self._begun(body)
        generate["stream"] = True
        if "required_prefix" in body:
            ids = generate["token_ids"]
            prefix_matched = _begins(ids, body["required_prefix"])
            yield {"prompt_ids": ids, "prefix_matched": prefix_matched}
            if not prefix_matched:
                return
        reader = self._reader(body, generate)
        text = self._text(body.get("resume_from"), generate, reader)
        outputs = await self._serve(GenerateRequest(**generate), prompt)
        if isinstance(outputs, ErrorResponse):
            yield outputs.model_dump()
            return
        steps = EngineEvents(self._engine.output_processor, reader, text)
        async with aclosing(outputs):
            async for result in outputs:
                _check_form(generate, result)
                event = steps.event(result)
                if event is not None:
                    yield event
                if text is not None and text.is_stopped:
                    return

    async def _begun(self, body: Event) -> tuple[Event, RenderedPrompt | None]:
        """vLLM's request to generate, and its prompt as far as it is rendered here: where its ids
        are not given, or it has pictures."""
        generate = {**body["generate"]}
        if "token_ids" in generate:
            seen = body.get("seen")
            return generate, None if seen is None else await self._rendered(seen)
        prompt = await self._rendered(body["chat"])
        return generate | {"token_ids": prompt.ids}, prompt

    def _reader(self, body: Event, generate: Event) -> ReplyParser | None:
        """Parser of a reply that is about to be generated; None where the text is all there is. A
        form that is asked for begins where vLLM would begin it."""
        params: Event = generate["sampling_params"]
        form = {name: params[name] for name in ("structured_outputs",) if name in params}
        if not body["parse"]:
            generate |= {"reasoning_ended": True} if form else {}
            return None
        request = _chat_request(body["chat"] | form)
        request.skip_special_tokens = params.get("skip_special_tokens", True)
        reader = ReplyParser(self._renderer, request, generate["token_ids"])
        reader.constrain(generate)
        params["skip_special_tokens"] = reader.skips_special
        return reader

    def _text(
        self, resume_from: list[int] | None, generate: Event, reader: ReplyParser | None
    ) -> ReplyText | None:
        """The text of a reply that is read, or that another server began: it is read up to where it
        broke off, and its stop texts are looked for here. None: the text is the engine's own."""
        params: Event = generate["sampling_params"]
        if reader is None and not resume_from:
            return None
        text = reply_text(
            self._tokenizer,
            generate["token_ids"],
            params.get("stop", []),
            skips_special=params.get("skip_special_tokens", True),
            min_tokens=params.get("min_tokens", 0),
        )
        if resume_from:
            params.pop("stop", None)
            generate["token_ids"] = generate["token_ids"] + resume_from
        for token in resume_from or []:
            steps = text.next(token)
            if reader is not None:
                reader.read(steps, last=False)
        return text

    async def _reply(self, body: Event) -> Event:
        from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        generate, prompt = await self._begun(body)
        ids: list[int] = generate["token_ids"]
        known: list[int] = body.get("required_prefix", ids)
        if not _begins(ids, known):
            return {"prompt_ids": ids, "prefix_matched": False}
        reader = self._reader(body, generate)
        result = await self._serve(GenerateRequest(**generate), prompt)
        if isinstance(result, ErrorResponse):
            refusal: Event = result.model_dump()
            return refusal
        _check_form(generate, result)
        reply = whole_reply(result)
        if reader is not None:
            stop = reply["stop_reason"]
            stop_text = stop if isinstance(stop, str) else None
            ended_by_token = reply["finish_reason"] == "stop" and stop_text is None
            spoken = len(reply["ids"]) - ended_by_token
            reply["deltas"] = await _replayed(reader, reply["ids"], spoken, stop_text)
        return {"prompt_ids": ids[len(known) :], "prefix_matched": True, **reply}

    async def _serve(
        self, request: GenerateRequest, prompt: RenderedPrompt | None
    ) -> EngineOutputs:
        """The engine's outputs for a request, or vLLM's refusal."""
        if prompt is None or prompt.inputs is None:
            return await self._tokens.serve_tokens(request)
        inputs = prompt.behind(request.token_ids).salted(request.cache_salt)
        self._ready.put(request.request_id, inputs)
        try:
            return await self._tokens.serve_tokens(request)
        finally:
            self._ready.drop(request.request_id)

    async def _render(self, body: Event) -> Event:
        return {"token_ids": (await self._rendered(body["chat"])).ids}

    async def _tokenize(self, body: Event) -> Event:
        from vllm.inputs import TextPrompt

        masks: dict[str, str] = {}
        text = self._masked(body["text"], masks)
        # by vLLM even when it is done again: beside the loop, and no more than the context holds
        (prompt,) = await self._renderer.renderer.render_cmpl_async([TextPrompt(prompt=text)])
        if not masks:
            return {"token_ids": list(prompt["prompt_token_ids"])}
        before = self._tokenizer.encode("")  # what the tokenizer begins every text with
        return {"token_ids": before + self._plain_ids(text, masks)}

    async def _rendered(self, chat: Event) -> RenderedPrompt:
        """The prompt of a chat; ValueError when vLLM refuses it."""
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        masks: dict[str, str] = {}
        texts = {name: chat[name] for name in _TEXTS if name in chat}
        request = _chat_request(chat | self._masked(texts, masks))
        urls = urls_of(chat["messages"])
        if urls:  # what is only rendered must not count as something that the engine was sent
            result = await self._renderer.render_chat(request, skip_mm_cache=True)
        else:
            result = await self._chat.render_chat_request(request)
        if isinstance(result, ErrorResponse):
            raise ValueError(result.error.message)
        _, (prompt,) = result
        if urls:
            pictured = await expanded(
                self._renderer, self._plain_ids(prompt["prompt"], masks), urls
            )
            self._check_length(pictured.ids)
            return pictured
        if masks:
            return RenderedPrompt(self._plain_ids(prompt["prompt"], masks), None)
        return RenderedPrompt([*prompt["prompt_token_ids"]], None)

    def _masked(self, json_value: T, masks: dict[str, str]) -> T:
        return json_value if self._specials is None else self._specials.mask(json_value, masks)

    def _plain_ids(self, text: str, masks: dict[str, str]) -> list[int]:
        assert self._specials is not None
        ids = self._specials.ids(text, masks)
        self._check_length(ids)
        return ids

    def _check_length(self, ids: list[int]) -> None:
        limit = self._renderer.model_config.max_model_len
        if len(ids) >= limit:
            raise ValueError(f"got {len(ids)} tokens, the maximum context length is {limit}")


async def _unless_gone(handler: Handler, body: Event, request: Request) -> Event | None:
    """The answer of a handler; when the client leaves it is cancelled, and the answer is None."""
    from vllm.entrypoints.serve.utils.api_utils import with_cancellation

    async def handled(body: Event, raw_request: Request) -> Event:
        return await handler(body)

    answer: Event | None = await with_cancellation(handled)(body, request)
    return answer


async def _last_of(
    request: GenerateRequest, outputs: EngineOutputs, *rest: object
) -> RequestOutput:
    """The engine's last output, which of a request that is not streamed is the only one."""
    results = [result async for result in outputs]
    return results[-1]


def _check_form(generate: Event, result: RequestOutput) -> None:
    """Raise ValueError for a form that the engine could not keep to: it would not another time."""
    has_form = "structured_outputs" in generate["sampling_params"]
    if has_form and result.outputs[0].finish_reason == "error":
        raise ValueError(
            "got a form (response_format, structured_outputs or tool_choice) that no reply can "
            "take, or that is too large to be kept to: the engine's log says why"
        )


async def _replayed(
    reader: ReplyParser, ids: list[int], spoken: int, stop_text: str | None
) -> list[Event]:
    """All deltas of a whole reply; those that are nothing left out."""
    deltas = []
    for delta in reader.replay(ids, visible=spoken, stop_text=stop_text):
        if delta:
            deltas.append(delta)
        await asyncio.sleep(0)  # others continue: a long reply takes a while
    return deltas


def _begins(ids: list[int], required_prefix: list[int]) -> bool:
    return ids[: len(required_prefix)] == required_prefix


def _chat_request(chat: Event) -> ChatCompletionRequest:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(**chat)


def _special_token_mask(tokenizer: Tokenizer) -> SpecialTokenMask | None:
    """None for tokenizers that never read a special token in a message's text (Mistral's own)."""
    from transformers import PreTrainedTokenizerBase

    return SpecialTokenMask(tokenizer) if isinstance(tokenizer, PreTrainedTokenizerBase) else None


async def _refuse_for_now(send: Send) -> None:
    await send({"type": "http.response.start", "status": 503, "headers": []})
    body = b'{"error": {"message": "the weights have no version yet: the server is starting"}}'
    await send({"type": "http.response.body", "body": body})


async def _lines(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            yield b"data: %b\n\n" % json.dumps(event).encode()
    except Exception as error:  # noqa: BLE001 - whatever it is, the client shall read it
        yield b"data: %b\n\n" % json.dumps(_error(error)).encode()
    yield b"data: [DONE]\n\n"


def _error(error: Exception) -> Event:
    from vllm.entrypoints.serve import create_error_response

    refusal: Event = create_error_response(error).model_dump()
    return refusal
