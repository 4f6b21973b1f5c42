"""The routes inside vLLM's process: what they ask of vLLM, and what they answer. Its own objects
are stood in for; that they are like these is tested on a real one (tests/e2e)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.vllm.middleware import PolicyRoutes
from tests.inference.test_reply_parser import Halves, Letters, result

pytest.importorskip("starlette")
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
GENERATE = {"request_id": "r", "cache_salt": "v3", "sampling_params": {}}


class Asked(SimpleNamespace):
    """A request as vLLM's protocols make it."""

    def __init__(self, **fields: Any) -> None:
        usual = {"tools": None, "tool_choice": None, "parallel_tool_calls": None, "stream": False}
        super().__init__(**usual | {"skips": False, "rest": None, "form": None} | fields)


class Refused:
    """vLLM's answer to what it does not take."""

    def __init__(self, message: str = "no") -> None:
        self.error = SimpleNamespace(message=message)

    def model_dump(self) -> dict[str, Any]:
        return {"error": {"message": self.error.message, "code": 422}}


class Failed(Refused):
    """What vLLM makes of an exception."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")

    def model_dump(self) -> dict[str, Any]:
        return {"error": {"message": self.error.message, "code": 400}}


def _detokenized(
    tokenizer: Any, new: list[int], tokens: list[str], prefix: int, read: int, **more: Any
) -> tuple[list[str], str, int, int]:
    """Each id is a letter."""
    assert read == len(tokens)
    return ["t"], chr(new[0]), prefix, read + 1


FAKES: dict[str, dict[str, Any]] = {
    "entrypoints.scale_out.token_in_token_out.protocol": {"GenerateRequest": Asked},
    "entrypoints.serve.engine.protocol": {"ErrorResponse": Refused},
    "entrypoints.openai.chat_completion.protocol": {"ChatCompletionRequest": Asked},
    "entrypoints.serve": {"create_error_response": Failed},
    "entrypoints.serve.utils.api_utils": {
        "with_cancellation": lambda handler: lambda body, raw_request: handler(body, raw_request)
    },
    "inputs": {"TextPrompt": dict},
    "sampling_params": {"SamplingParams": SimpleNamespace},
    "v1.engine.detokenizer": {
        "IncrementalDetokenizer": SimpleNamespace(
            from_new_request=lambda tokenizer, asked: Letters("".join(asked.sampling_params.stop))
        )
    },
    "tokenizers.detokenizer_utils": {
        "convert_prompt_ids_to_tokens": lambda tokenizer, ids, **more: (
            ["p"] * len(ids),
            0,
            len(ids),
        ),
        "detokenize_incrementally": _detokenized,
    },
}


class Renderer:
    """vLLM's renderer and chat: `hi` is [5, 6]."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(max_model_len=9)
        self.renderer = self
        self.made: list[Halves] = []
        self.chats: list[Any] = []
        self.texts: list[str] = []
        self.refuses = False

    def get_tokenizer(self) -> Any:
        return TOKENIZER

    async def render_chat_request(self, request: Any) -> Any:
        self.chats.append(request)
        if self.refuses:
            return Refused("too much")
        text = "".join(message["content"] for message in request.messages)
        return "x", [{"prompt": text, "prompt_token_ids": (5, 6)}]

    async def render_cmpl_async(self, prompts: list[Any]) -> list[Any]:
        self.texts += [prompt["prompt"] for prompt in prompts]
        return [{"prompt_token_ids": (7, 8)}]

    def effective_chat_template_kwargs(self, request: Any) -> dict[str, Any]:
        return {}

    def parser(self, *arguments: Any, **more: Any) -> Any:
        return Ours(self.made, *arguments, **more)


class Ours(Halves):
    """It does not look at the prompt."""

    def parse_delta(self, text: str, ids: list[int], request: Any, **more: Any) -> Any:
        return super().parse_delta(text, ids, request, **{**more, "prompt_token_ids": [1, 2]})

    def parse(self, text: str, request: Any, **more: Any) -> tuple[None, str | None, list[Any]]:
        return None, text, []


class Tokens:
    """vLLM's token server: it samples `he` and the end."""

    def __init__(self, renderer: Renderer) -> None:
        self.online_renderer: Any = renderer
        self.asked: list[Any] = []
        self.results = [
            result([ord("h")], "h"), result([], ""), result([ord("e")], "e"),
            result([2], "", finish_reason="stop"),
        ]  # fmt: skip
        self.refuses = self.breaks = False
        self.ended: list[bool] = []

    async def serve_tokens_stream_generator(self, *of: Any) -> Any:
        raise AssertionError("ours takes the outputs as they are")

    serve_tokens_full_generator = serve_tokens_stream_generator

    async def serve_tokens(self, request: Any) -> Any:
        self.asked.append(request)
        if self.refuses:
            return Refused("full")
        if request.stream:
            return self.serve_tokens_stream_generator(request, self._outputs(), "more")
        return await self.serve_tokens_full_generator(request, self._whole(), "more")

    async def _outputs(self) -> AsyncIterator[Any]:
        try:
            for one in self.results:
                yield one
                if self.breaks:
                    raise RuntimeError("the engine died")
            self.ended.append(False)
        finally:
            self.ended.append(True)

    async def _whole(self) -> AsyncIterator[Any]:
        yield result([1])
        yield result([104, 101, 2], "he", finish_reason="stop")


class Vllm:
    """The application that the routes are in."""

    def __init__(self) -> None:
        self.renderer = Renderer()
        self.tokens = Tokens(self.renderer)
        processor = SimpleNamespace(external_req_ids={}, request_states={})
        state = SimpleNamespace(
            engine_client=SimpleNamespace(output_processor=processor),
            openai_serving_chat=self.renderer,
            online_renderer=self.renderer,
            serving_tokens=self.tokens,
        )
        self._app = SimpleNamespace(state=state)
        self._routes = PolicyRoutes(self._answer)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        pass

    async def ask(self, name: str, body: Any) -> tuple[int, Any]:
        """Status and body; of a stream the events."""
        sent: list[Any] = []
        waiting = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive() -> Any:
            return waiting.pop() if waiting else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        for path in ("/update_weight_version", f"/clawrl/{name}"):
            scope = {
                "type": "http", "method": "POST", "path": path, "headers": [], "app": self._app,
                "query_string": b"", "asgi": {"spec_version": "2.4"},
            }  # fmt: skip
            await self._routes(scope, receive, send)
        text = b"".join(part.get("body", b"") for part in sent[1:]).decode()
        if name != "stream":
            return sent[0]["status"], json.loads(text)
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        return sent[0]["status"], [json.loads(line) for line in lines]


TOKENIZER: Any = None


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Vllm:
    from transformers import AutoTokenizer

    global TOKENIZER
    TOKENIZER = TOKENIZER or AutoTokenizer.from_pretrained(shipped_dir())
    for name, members in FAKES.items():
        module = ModuleType(f"vllm.{name}")
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return Vllm()


def with_ids(*ids: int, **more: Any) -> dict[str, Any]:
    return {"generate": {**GENERATE, "token_ids": list(ids)}, "parse": False, **more}


async def test_a_reply_to_ids_is_what_was_sampled(vllm: Vllm) -> None:
    status, reply = await vllm.ask("reply", with_ids(5, 6))
    assert (status, reply["ids"], reply["text"]) == (200, [104, 101, 2], "he")
    assert (reply["prompt_ids"], reply["prefix_matched"]) == ([], True)
    assert reply["finish_reason"] == "stop"
    (asked,) = vllm.tokens.asked
    assert (asked.token_ids, asked.stream, asked.request_id) == ([5, 6], False, "r")
    assert vllm.renderer.chats == []


async def test_a_reply_to_a_chat_renders_it_and_reads_it(vllm: Vllm) -> None:
    body = {"generate": GENERATE, "chat": CHAT, "parse": True}
    _, reply = await vllm.ask("reply", body)
    assert reply["prompt_ids"] == []
    assert reply["deltas"] == [{"content": "h"}, {"content": "e"}]
    (asked,) = vllm.tokens.asked
    assert asked.token_ids == [5, 6]
    assert asked.sampling_params == {"skip_special_tokens": False}
    assert vllm.renderer.chats[0].messages == CHAT["messages"]


async def test_a_chat_that_goes_on_from_known_ids_sends_the_new_ones_alone(vllm: Vllm) -> None:
    body = {"generate": GENERATE, "chat": CHAT, "parse": False}
    _, reply = await vllm.ask("reply", {**body, "required_prefix": [5]})
    assert (reply["prompt_ids"], reply["prefix_matched"]) == ([6], True)
    assert (await vllm.ask("reply", {**body, "required_prefix": [6]}))[1] == {
        "prompt_ids": [5, 6], "prefix_matched": False,
    }  # fmt: skip
    assert len(vllm.tokens.asked) == 1
    _, events = await vllm.ask("stream", {**body, "required_prefix": [6]})
    assert events == [{"prompt_ids": [5, 6], "prefix_matched": False}]
    _, events = await vllm.ask("stream", {**body, "required_prefix": [5, 6]})
    assert events[0] == {"prompt_ids": [5, 6], "prefix_matched": True}
    assert len(events) == 4


async def test_a_stream_has_an_event_for_each_step_that_brings_something(vllm: Vllm) -> None:
    status, events = await vllm.ask("stream", with_ids(5))
    assert status == 200
    assert [event["ids"] for event in events] == [[104], [101], [2]]
    assert [event.get("delta") for event in events] == [{"content": "h"}, {"content": "e"}, None]
    assert events[-1]["finish_reason"] == "stop"
    assert vllm.tokens.asked[0].stream is True


async def test_a_stream_goes_on_behind_what_another_server_sampled(vllm: Vllm) -> None:
    body = with_ids(5, chat=CHAT, resume_from=[ord("<"), ord("f")])
    _, events = await vllm.ask("stream", {**body, "parse": True})
    assert vllm.tokens.asked[0].token_ids == [5, ord("<"), ord("f")]
    assert [event["delta"] for event in events] == [{}, {}, {"content": "<fhe"}]
    await vllm.ask("stream", body)
    assert vllm.tokens.asked[1].token_ids == [5, ord("<"), ord("f")]


async def test_a_stop_text_that_another_server_began_ends_the_stream_here(vllm: Vllm) -> None:
    """The engine is not asked to look for it, and is not waited for."""
    asks = {**GENERATE, "token_ids": [5], "sampling_params": {"stop": ["Oh"], "seed": 1}}
    body = {"generate": asks, "parse": False, "resume_from": [ord("n"), ord("O")]}
    _, (event,) = await vllm.ask("stream", body)
    assert (event["ids"], event["stop_reason"]) == ([ord("h")], "Oh")
    assert "delta" not in event, "the other server has sent what is before"
    assert vllm.tokens.asked[0].sampling_params == {"seed": 1}
    assert vllm.tokens.ended == [True]


async def test_what_vllm_refuses_is_told_as_it_says_it(vllm: Vllm) -> None:
    vllm.tokens.refuses = True
    refusal = {"error": {"message": "full", "code": 422}}
    assert await vllm.ask("reply", with_ids(5)) == (422, refusal)
    assert await vllm.ask("stream", with_ids(5)) == (200, [refusal])
    vllm.renderer.refuses = True
    status, answer = await vllm.ask("render", {"chat": CHAT})
    assert (status, answer["error"]["message"]) == (400, "ValueError: too much")


async def test_what_fails_is_told(vllm: Vllm) -> None:
    status, answer = await vllm.ask("reply", {})
    assert (status, answer["error"]["message"]) == (400, "KeyError: 'generate'")
    status, answer = await vllm.ask("nothing", {})
    assert (status, answer["error"]["message"]) == (400, "KeyError: 'nothing'")


async def test_a_stream_that_breaks_says_why(vllm: Vllm) -> None:
    vllm.tokens.breaks = True
    _, events = await vllm.ask("stream", with_ids(5))
    assert events[0]["ids"] == [104]
    assert events[1]["error"]["message"] == "RuntimeError: the engine died"


async def test_special_tokens_in_texts_stay_text_and_prompts_have_a_longest_length(
    vllm: Vllm,
) -> None:
    assert (await vllm.ask("render", {"chat": CHAT}))[1] == {"token_ids": [5, 6]}
    assert (await vllm.ask("tokenize", {"text": "plain"}))[1] == {"token_ids": [7, 8]}
    assert vllm.renderer.texts == ["plain"]
    (mark,) = TOKENIZER.all_special_tokens[:1]
    (number,) = TOKENIZER.convert_tokens_to_ids([mark])
    _, answer = await vllm.ask("tokenize", {"text": mark})
    assert answer["token_ids"]
    assert number not in answer["token_ids"]
    assert TOKENIZER.decode(answer["token_ids"]) == mark
    assert mark not in vllm.renderer.texts[1]
    evil = {"messages": [{"role": "user", "content": mark}]}
    _, rendered = await vllm.ask("render", {"chat": evil})
    assert rendered["token_ids"] == answer["token_ids"]
    length = len(answer["token_ids"])
    for room, status in ((length + 1, 200), (length, 400)):
        vllm.renderer.model_config.max_model_len = room
        assert (await vllm.ask("render", {"chat": evil}))[0] == status
    message = (await vllm.ask("tokenize", {"text": mark}))[1]["error"]["message"]
    assert f"got {length} tokens, the maximum context length is {length}" in message
