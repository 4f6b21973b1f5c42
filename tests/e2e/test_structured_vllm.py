"""A form on a real vLLM: what is sampled takes it, and the log-probs are those of the softmax over
the allowed ids alone, computed here once more from the logits of transformers. Forms that no reply
can take end their own request and nothing else."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from clawrl_gym.core.errors import RequestError
from clawrl_gym.core.types import ChatBody
from clawrl_gym.inference.generation import Piece, message_of
from clawrl_gym.inference.structured import Structured
from clawrl_gym.inference.vllm.client import Generation, PolicyClient, Sampling
from tests.e2e.served import Served
from tests.e2e.test_sampling_vllm import PROMPT, WITHIN, asked, logits_of, sampled
from tests.support.tiny_models import make_random_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

ARGUMENTS = {
    "type": "object",
    "properties": {"at": {"enum": ["a", "b"]}},
    "required": ["at"],
    "additionalProperties": False,
}
LOOK: Any = {
    "type": "function",
    "function": {"name": "look", "parameters": ARGUMENTS, "strict": True},
}
CHOICES = ("red", "green", "grey", "blue")
PAIRS = tuple("".join(p) + "c" for n in (2, 3) for p in itertools.product("ab", repeat=n))
FORMS: dict[str, tuple[Structured, tuple[str, ...]]] = {
    "choice": (Structured.of("guided_choice", "choice", [*CHOICES]), CHOICES),
    "regex": (Structured.of("structured_outputs", "regex", "[ab]{2,3}c"), PAIRS),
    "json": (
        Structured.of("response_format", "json", {"enum": [*CHOICES, 7]}),
        (*(json.dumps(one) for one in CHOICES), "7"),
    ),
    "grammar": (
        Structured.of("structured_outputs", "grammar", 'root ::= "x" | "x" "y" | "xyz"'),
        ("x", "xy", "xyz"),
    ),
}
"""Forms, and every text that takes each."""


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random_model(tmp_path_factory.mktemp("model"), max_len=1024)


@pytest.fixture(scope="module")
def served(
    loop: asyncio.AbstractEventLoop, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    served = Served(model, tmp_path_factory.mktemp("served"))
    loop.run_until_complete(served.server.start())
    yield served
    loop.run_until_complete(served.server.stop())


@cache
def vocabulary(model: Path) -> tuple[dict[int, str], int]:
    """The text of each id that is no special token, and the id that ends a reply."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = set(range(len(tokenizer))) - {*tokenizer.all_special_ids}
    return {one: tokenizer.decode([one]) for one in ids}, tokenizer.eos_token_id


def allowed(model: Path, texts: tuple[str, ...], said: str) -> list[int]:
    """Ids with which the reply can still become one of the texts."""
    spelled, end = vocabulary(model)
    more = [
        one
        for one, text in spelled.items()
        if text and any(whole.startswith(said + text) for whole in texts)
    ]
    return [*more, *([end] if said in texts else [])]


def masked(
    model: Path, generation: Generation, texts: tuple[str, ...], temperature: float
) -> list[float]:
    """Log-probs of the sampled ids under the softmax over the allowed ones."""
    spelled, _ = vocabulary(model)
    logprobs, said = [], ""
    for logits_V, token in zip(logits_of(model, generation), generation.sampled_ids_T, strict=True):
        ids = torch.tensor(allowed(model, texts, said))
        assert token in ids
        logprobs_A = torch.log_softmax(logits_V[ids] / temperature, -1)
        logprobs.append(logprobs_A[ids == token].item())
        said += spelled.get(token, "")
    return logprobs


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probs_are_those_of_the_softmax_over_the_allowed_ids(
    served: Served, loop: asyncio.AbstractEventLoop, model: Path, name: str, temperature: float
) -> None:
    form, texts = FORMS[name]
    said = set()
    for seed in range(6):
        sampling = Sampling(temperature, 1.0, 32, seed=seed, structured=form)
        generation = sampled(served, loop, sampling)
        assert generation.finish_reason == "stop"
        assert generation.text in texts
        said.add(generation.text)
        assert generation.logprobs_T == pytest.approx(
            masked(model, generation, texts, temperature), abs=WITHIN
        )
        free = torch.log_softmax(logits_of(model, generation) / temperature, -1)
        ids = torch.tensor(generation.sampled_ids_T)[:, None]
        assert generation.logprobs_T != pytest.approx(
            free.gather(1, ids)[:, 0].tolist(), abs=WITHIN
        ), "a learner without the mask would compute something else"
        assert sampling.untrainable == form.field
    assert len(said) > 1


def test_a_streamed_form_is_the_whole_one(served: Served, loop: asyncio.AbstractEventLoop) -> None:
    sampling = Sampling(1.0, 1.0, 32, seed=5, structured=FORMS["regex"][0])
    body: ChatBody = {"messages": [{"role": "user", "content": "say"}]}

    async def both(client: PolicyClient) -> tuple[Any, list[Piece]]:
        whole = await client.generate_chat(body, sampling, version=served.version)
        pieces = client.stream_chat(body, sampling, version=served.version)
        return whole.whole, [piece async for piece in pieces]

    (generation, message), pieces = asked(served, loop, both)
    streamed = pieces[-1].generation
    assert streamed.sampled_ids_T == generation.sampled_ids_T
    assert streamed.logprobs_T == pytest.approx(generation.logprobs_T, abs=WITHIN)
    assert message_of(piece.delta for piece in pieces) == message
    assert message["content"] in PAIRS


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
def test_a_demanded_call_is_made(
    served: Served, loop: asyncio.AbstractEventLoop, choice: Any
) -> None:
    body: ChatBody = {
        "messages": [{"role": "user", "content": "say"}],
        "tools": [LOOK],
        "tool_choice": choice,
        "parallel_tool_calls": False,
    }
    form = Structured.of("tool_choice", "tool_call", choice)

    async def both(client: PolicyClient) -> list[Any]:
        made = []
        for seed in range(4):
            sampling = Sampling(0.7, 1.0, 500, seed=seed, structured=form)
            whole = await client.generate_chat(body, sampling, version=served.version)
            pieces = client.stream_chat(body, sampling, version=served.version)
            made.append((whole.whole, message_of([p.delta async for p in pieces])))
        return made

    for (generation, message), streamed in asked(served, loop, both):
        assert generation.finish_reason == "stop"
        (call,), (again,) = message["tool_calls"], streamed["tool_calls"]
        assert call["function"]["name"] == "look"
        assert json.loads(call["function"]["arguments"])["at"] in ("a", "b")
        assert call["function"] == again["function"]
        assert not message.get("unread_calls")


HOSTILE = {
    "regex that is none": ("regex", "(a"),
    "regex that looks ahead": ("regex", "(?=a)b"),
    "grammar that is none": ("grammar", "root :: x"),
    "grammar without a root": ("grammar", 'x ::= "a"'),
    "grammar that says nothing": ("grammar", "root ::= x\nx ::= x"),
    "type that is none": ("json", {"type": "foo"}),
    "reference to nothing": ("json", {"$ref": "#/$defs/x"}),
    "number beyond all": ("json", {"type": "integer", "minimum": 10**30}),
    "nothing at all": ("json", {"type": "object", "properties": {"a": False}, "required": ["a"]}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_form_that_no_reply_can_take_is_the_requests_fault_alone(
    served: Served, loop: asyncio.AbstractEventLoop, name: str
) -> None:
    kind, value = HOSTILE[name]
    form = Structured.of("structured_outputs", kind, value)  # type: ignore[arg-type]
    with pytest.raises(RequestError):
        sampled(served, loop, Sampling(1.0, 1.0, 16, structured=form))
    assert len(sampled(served, loop, Sampling(1.0, 1.0, 4, ignore_eos=True)).sampled_ids_T) == 4


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("regex", "((a{1,50}){1,50}){1,50}"),
        ("regex", "a{1,100000}"),
        ("regex", "(a|aa|aaa)*" * 8),
        ("json", {"type": "string", "maxLength": 10**6}),
        ("json", {"type": "array", "items": {"type": "integer"}, "maxItems": 10**12}),
        ("choice", [f"choice {n}" for n in range(3000)]),
    ],
)
def test_a_large_form_does_not_hold_the_engine_up(
    served: Served, loop: asyncio.AbstractEventLoop, kind: Any, value: Any
) -> None:
    """A request beside it is answered; the time limit of the test is its own."""
    large = Sampling(1.0, 1.0, 16, structured=Structured.of("structured_outputs", kind, value))

    async def both(client: PolicyClient) -> list[Any]:
        short = Sampling(1.0, 1.0, 4, ignore_eos=True)
        requests = [client.generate(PROMPT, one, version=0) for one in (large, short)]
        return await asyncio.gather(*requests)

    with_form, beside = asked(served, loop, both)
    assert with_form.sampled_ids_T
    assert len(beside.sampled_ids_T) == 4
