"""Every field of a request for a reply is honoured, refused by name, or has no effect by nature.

The lists are held against the request classes of vLLM and of OpenAI's client: a field that a later
version adds fails here until it is decided on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params

from clawrl_gym.config import SamplingConfig
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.request_fields import REFUSED, TEMPLATE_ARGUMENTS, WITHOUT_EFFECT
from clawrl_gym.gateway.wire.requests import ChatRequest, CompletionRequest, parse_as
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.vllm.wire import sampling_params
from tests.support.gateway_rig import HELLO, Bench, text_of

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RUN = SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=64)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    await bench.start()
    yield bench
    await bench.stop()


def openai_fields(params: Any) -> set[str]:
    kinds = (params.CompletionCreateParamsNonStreaming, params.CompletionCreateParamsStreaming)
    return {name for kind in kinds for name in get_type_hints(kind)}


VLLM_FIELDS = """
import json
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
print(json.dumps([[*kind.model_fields] for kind in (ChatCompletionRequest, CompletionRequest)]))
"""
"""In a process of its own: importing vLLM changes the one that does."""


def test_every_field_of_openai_and_vllm_is_decided_on() -> None:
    command = [sys.executable, "-c", VLLM_FIELDS]
    told = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    of_chat, of_text = json.loads(told.stdout.splitlines()[-1])
    assert (len(of_chat), len(of_text)) > (60, 40)
    decided = REFUSED.keys() | WITHOUT_EFFECT
    for ours, theirs in (
        (ChatRequest, openai_fields(chat_params).union(of_chat)),
        (CompletionRequest, openai_fields(text_params).union(of_text)),
    ):
        assert theirs - decided - ours.model_fields.keys() == set()


def test_a_field_has_one_fate() -> None:
    honoured = ChatRequest.model_fields.keys() | CompletionRequest.model_fields.keys()
    assert REFUSED.keys() & WITHOUT_EFFECT == set()
    assert REFUSED.keys() & honoured == set()
    assert WITHOUT_EFFECT & honoured == set()


WANTED: dict[str, Any] = {
    "add_generation_prompt": False, "audio": {"voice": "x", "format": "mp3"}, "best_of": 2,
    "chat_template": "x", "continue_final_message": True, "echo": True,
    "ec_transfer_params": {"a": 1}, "function_call": {"name": "f"}, "functions": [{"name": "f"}],
    "include_reasoning": False, "include_stop_str_in_output": True,
    "kv_transfer_params": {"a": 1}, "length_penalty": 1.5, "logprob_token_ids": [1],
    "logprobs": True, "media_io_kwargs": {"a": {}}, "mm_payload": "none",
    "mm_processor_kwargs": {"a": 1}, "modalities": ["text", "audio"], "moderation": {"model": "m"},
    "n": 2, "prompt_embeds": "x", "prompt_logprobs": 0,
    "repetition_detection": {"max_pattern_size": 3},
    "return_mm_kwargs": True, "return_prompt_text": True, "return_token_ids": True,
    "return_token_offsets": True, "return_tokens_as_token_ids": True,
    "routed_experts_prompt_start": 3, "spaces_between_special_tokens": False,
    "suffix": "x", "thinking_token_budget": 10, "top_logprobs": 2, "truncate_prompt_tokens": 10,
    "truncation_side": "left", "use_beam_search": True, "verbosity": "low",
    "vllm_xargs": {"a": 1}, "watermarking": True, "web_search_options": {},
}  # fmt: skip
"""A value of each refused field that asks for something."""
OF_OTHER_SERVERS = (
    "do_sample", "dry_multiplier", "dynatemp_range", "ebnf", "epsilon_cutoff", "eta_cutoff",
    "extra_body", "format", "generation_config", "grammar", "guided_decoding_backend",
    "guided_whitespace_pattern", "json_schema", "logit_processors", "logits_processors",
    "maxTokens", "max_completion_length", "max_length", "max_new_tokens", "max_output_tokens",
    "mirostat", "n_predict", "no_repeat_ngram_size", "num_beams", "num_predict", "options",
    "parameters", "penalty_alpha", "random_seed", "regex", "repeat_penalty", "samplers",
    "sampling_params", "smoothing_factor", "stop_sequences", "stop_strings", "structural_tag",
    "tfs_z", "topK", "topP", "top_a", "top_n_sigma", "typical_p", "xtc_probability",
)  # fmt: skip
WANTED |= dict.fromkeys(OF_OTHER_SERVERS, 7)


def test_each_refused_field_is_tried() -> None:
    assert WANTED.keys() == REFUSED.keys()


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_what_is_not_offered_is_refused_by_name(bench: Bench, name: str, path: str) -> None:
    asked: dict[str, Any] = {"messages": HELLO} if path == CHAT else {"prompt": "x"}
    for stream in (False, True):
        body = asked | {name: WANTED[name], "stream": stream}
        status, answer, _ = await bench.post(path, body)
        assert (status, answer["error"]["param"]) == (400, name)
        assert answer["error"]["message"].startswith(f"got {name}=")
        assert REFUSED[name].why in answer["error"]["message"]
    assert bench.policy.samplings == []
    for neutral in (None, *REFUSED[name].neutral):
        status, answer, headers = await bench.post(path, asked | {name: neutral})
        assert (status, headers.get("X-Without-Effect")) == (200, None), answer


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", 0),
        ("logprobs", 1),
        ("n", True),
        ("n", 0),
        ("echo", 1),
        ("length_penalty", 0),
        ("best_of", "2"),
    ],
)
def test_other_values_of_refused_fields_are_refused_too(name: str, value: Any) -> None:
    with pytest.raises(Refusal) as refused:
        parse_as(ChatRequest, {"messages": HELLO, name: value})
    assert (refused.value.status, refused.value.param) == (400, name)


HONOURED: dict[str, tuple[Any, str, Any]] = {
    "temperature": (0.3, "temperature", 0.3),
    "top_p": (0.9, "top_p", 0.9),
    "max_tokens": (7, "max_tokens", 7),
    "seed": (5, "seed", 5),
    "stop": (["x", "y"], "stop", ["x", "y"]),
    "stop_token_ids": ([3, 4], "stop_token_ids", [3, 4]),
    "ignore_eos": (True, "ignore_eos", True),
    "min_tokens": (2, "min_tokens", 2),
    "top_k": (20, "top_k", 20),
    "min_p": (0.1, "min_p", 0.1),
    "presence_penalty": (-0.5, "presence_penalty", -0.5),
    "frequency_penalty": (1.5, "frequency_penalty", 1.5),
    "repetition_penalty": (1.2, "repetition_penalty", 1.2),
    "logit_bias": ({"50": 3, "51": -100}, "logit_bias", {"50": 3.0, "51": -100.0}),
    "allowed_token_ids": ([1, 2], "allowed_token_ids", [1, 2]),
    "bad_words": (["no"], "bad_words", ["no"]),
    "skip_special_tokens": (False, "skip_special_tokens", False),
}


@pytest.mark.parametrize("name", HONOURED)
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_changes_sampling_reaches_the_engine(
    bench: Bench, name: str, path: str, stream: bool
) -> None:
    value, param, sent = HONOURED[name]
    body: dict[str, Any] = {"messages": HELLO} if path == CHAT else {"prompt": "x"}
    async with bench.http.post(path, json=body | {name: value, "stream": stream}) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
    (sampling,) = bench.policy.samplings
    assert sampling_params(sampling)[param] == sent


def test_what_is_not_asked_for_is_not_sent() -> None:
    assert sampling_params(Sampling(1.0, 1.0, 8)) == {
        "temperature": 1.0, "top_p": 1.0, "max_tokens": 8, "logprobs": 0
    }  # fmt: skip


def test_pictures_places_are_never_said_whatever_a_client_wants() -> None:
    sampling = Sampling(1.0, 1.0, 8, logit_bias=((7, 100.0), (8, 1.0)))
    assert sampling_params(sampling, [7])["logit_bias"] == {"7": -100.0, "8": 1.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_k", -2), ("top_k", 1.5), ("min_p", 1.1), ("min_p", -0.1), ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1), ("repetition_penalty", 0), ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": 101}), ("logit_bias", {"-1": 1}), ("logit_bias", [1]),
        ("allowed_token_ids", [-1]), ("allowed_token_ids", "1"), ("bad_words", [""]),
        ("bad_words", "x"), ("stop_token_ids", [2**31]), ("min_tokens", -1), ("min_tokens", "a"),
        ("ignore_eos", 3), ("skip_special_tokens", "x"), ("reasoning_effort", "extreme"),
        ("documents", "x"), ("documents", [3]),
        ("stream_options", {"continuous_usage_stats": True}),
        *(("chat_template_kwargs", {name: True}) for name in sorted(TEMPLATE_ARGUMENTS)),
    ],
)  # fmt: skip
def test_values_beyond_their_limits_are_told_by_name(field: str, value: Any) -> None:
    with pytest.raises(Refusal, match=field) as refused:
        parse_as(ChatRequest, {"messages": HELLO, field: value})
    assert refused.value.status == 400


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
async def test_what_has_no_effect_by_nature_is_taken_and_not_named(bench: Bench, name: str) -> None:
    value: Any = {"a": "b"} if name in ("metadata", "prediction", "prompt_cache_options") else "x"
    for path, asked in ((CHAT, {"messages": HELLO}), (TEXT, {"prompt": "x"})):
        status, answer, headers = await bench.post(path, {**asked, name: value})
        assert (status, headers.get("X-Without-Effect")) == (200, None), answer
    assert bench.gateway.stats.unread == 0


async def test_a_field_that_nobody_knows_is_named_to_its_client_and_counted(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    fields: dict[str, Any] = {
        "temprature": 0.1,
        "thinking": {"type": "enabled"},
        "enable_thinking": None,
    }
    for _ in range(2):
        status, _, headers = await bench.chat(HELLO, **fields)
        assert (status, headers["X-Without-Effect"]) == (200, "temprature, thinking")
    async with bench.stream(HELLO, **fields) as answer:
        assert answer.headers["X-Without-Effect"] == "temprature, thinking"
    assert bench.gateway.stats.unread == 6
    told = [record.getMessage() for record in caplog.records if "no effect" in record.message]
    assert told == [
        "a request has 'temprature', which has no effect (logged once)",
        "a request has 'thinking', which has no effect (logged once)",
    ]
    async with bench.http.get("/metrics") as metrics:
        assert "clawrl_unread_total 6.0" in await metrics.text()


async def test_what_is_unknown_inside_of_a_field_is_named_too(bench: Bench) -> None:
    tool = {"type": "function", "function": {"name": "f", "strict": True}}
    _, _, headers = await bench.chat(HELLO, tools=[tool], stream_options={"every_word": True})
    assert headers["X-Without-Effect"] == "stream_options.every_word, tools.function.strict"
    off = {"type": "function", "function": {"name": "f", "strict": False}}
    _, _, headers = await bench.chat(HELLO, tools=[off], stream_options={"every_word": None})
    assert "X-Without-Effect" not in headers


async def test_odd_names_of_fields_cannot_break_the_answer(bench: Bench) -> None:
    names: dict[str, Any] = {"a\r\nX-Evil: 1": 1, "\u4f60": 1, "x" * 500: 1, "": 1} | {
        f"f{n}": 1 for n in range(50)
    }
    status, _, headers = await bench.chat(HELLO, **names)
    assert status == 200
    assert "X-Evil" not in headers
    assert len(headers["X-Without-Effect"]) < 2000
    assert bench.gateway.stats.unread == 54


async def test_what_the_template_reads_is_handed_to_it(bench: Bench) -> None:
    documents = [{"title": "a", "text": "b"}]
    await bench.say(HELLO, reasoning_effort="low", documents=documents)
    assert bench.policy.bodies == [
        {"messages": HELLO, "reasoning_effort": "low", "documents": documents}
    ]
    (turn,) = await bench.store.turns_of("s1")
    assert turn.template == {"reasoning_effort": "low", "documents": documents}


@pytest.mark.parametrize(
    ("fields", "untrainable"),
    [
        ({}, ""),
        ({"temperature": 0.3}, ""),
        ({"temperature": 1.7, "seed": 3, "stop": "x", "max_tokens": 9}, ""),
        ({"stop_token_ids": [3], "ignore_eos": True, "skip_special_tokens": False}, ""),
        ({"top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1, "min_tokens": 0}, ""),
        ({"top_k": -1, "presence_penalty": 0, "logit_bias": {}, "bad_words": []}, ""),
        ({"temperature": 0}, "temperature"),
        ({"temperature": 0.05}, "temperature"),
        ({"top_p": 0.9}, "top_p"),
        ({"top_k": 1}, "top_k"),
        ({"min_p": 0.01}, "min_p"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"frequency_penalty": -0.1}, "frequency_penalty"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"logit_bias": {"3": 1}}, "logit_bias"),
        ({"allowed_token_ids": [3]}, "allowed_token_ids"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"response_format": {"type": "text"}}, ""),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"structured_outputs": {"regex": "a+"}, "top_k": 3}, "top_k structured_outputs"),
        ({"guided_choice": ["a", "b"]}, "guided_choice"),
        ({"temperature": 0, "top_p": 0.5, "top_k": 3}, "temperature top_p top_k"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_says_by_what_it_cannot_be_trained_on(
    bench: Bench, fields: dict[str, Any], untrainable: str, stream: bool
) -> None:
    if stream:
        assert text_of(await bench.events(HELLO, **fields)) == "ok"
    else:
        assert (await bench.say(HELLO, **fields))["content"] == "ok"
    (turn,) = await bench.store.turns_of("s1")
    assert turn.untrainable == untrainable
    assert turn.temperature == fields.get("temperature", 0.7)
    shown = (await bench.get("/v1/sessions/s1"))[1]["turns"][0]
    assert (shown["untrainable"], shown["temperature"]) == (untrainable, turn.temperature)
    assert bench.gateway.stats.untrainable == dict.fromkeys(untrainable.split(), 1)


@pytest.mark.parametrize(
    ("fields", "goes_on"),
    [
        ({}, True),
        ({"temperature": 0.5, "top_k": 3, "min_tokens": 3, "repetition_penalty": 1.2}, True),
        ({"presence_penalty": 0.5}, False),
        ({"frequency_penalty": 0.5}, False),
        ({"bad_words": ["x"]}, False),
        ({"response_format": {"type": "json_object"}}, False),
    ],
)
async def test_a_reply_goes_on_elsewhere_only_where_its_settings_stay_right(
    bench: Bench, fields: dict[str, Any], goes_on: bool
) -> None:
    bench.policy.dies_after = 1
    events = await bench.events(HELLO, **fields)
    assert any("error" in event for event in events) is not goes_on
    said = [event for event in events if "error" not in event]
    assert text_of(said) == ("ok" if goes_on else "o")
    (turn,) = await bench.store.turns_of("s1")
    assert turn.finish_reason == ("stop" if goes_on else "interrupted")


async def test_a_reply_of_which_nothing_was_sampled_is_always_tried_again(bench: Bench) -> None:
    bench.policy.down = 1
    assert (await bench.say(HELLO, presence_penalty=1.0))["content"] == "ok"


def test_the_rest_of_a_reply_is_asked_for_with_what_is_left() -> None:
    sampling = Sampling(1.0, 1.0, 20, seed=3, min_tokens=8, top_k=4).after(5)
    assert (sampling.max_tokens, sampling.min_tokens, sampling.seed) == (15, 3, None)
    assert Sampling(1.0, 1.0, 4, min_tokens=2).after(9).max_tokens == 1
    assert Sampling(1.0, 1.0, 4, min_tokens=2).after(9).min_tokens == 0
    assert sampling.top_k == 4
