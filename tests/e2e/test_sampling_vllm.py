"""Log-probs that vLLM reports are those of the distribution that was sampled, whatever was asked:
each setting is carried out once more here, on the logits of transformers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clawrl_gym.core.errors import RequestError
from clawrl_gym.inference.generation import Piece
from clawrl_gym.inference.vllm.client import Generation, PolicyClient, Sampling
from tests.e2e.served import Served
from tests.support.tiny_models import make_random_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPT = [5, 6, 7, 8]
LENGTH = 24
WITHIN = 2e-3
Process = Callable[[Tensor, list[int], list[int]], Tensor]
"""Logits at temperature one, the prompt and what was sampled before: those that were sampled from,
before the temperature."""


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


def asked(
    served: Served, loop: asyncio.AbstractEventLoop, work: Callable[[PolicyClient], Any]
) -> Any:
    async def go() -> Any:
        client = served.client()
        try:
            await client.set_version(served.version, 30.0)
            return await work(client)
        finally:
            await client.close()

    return loop.run_until_complete(go())


def sampled(
    served: Served, loop: asyncio.AbstractEventLoop, sampling: Sampling, prompt: list[int] = PROMPT
) -> Generation:
    made: Generation = asked(
        served, loop, lambda client: client.generate(prompt, sampling, version=served.version)
    )
    return made


def logits_of(model: Path, generation: Generation) -> Tensor:
    from transformers import Qwen3ForCausalLM

    net = Qwen3ForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = generation.prompt_ids_T + generation.sampled_ids_T
    with torch.no_grad():
        logits: Tensor = net(torch.tensor([ids])).logits[0, len(generation.prompt_ids_T) - 1 : -1]
    return logits


def expected(
    model: Path, generation: Generation, temperature: float, process: Process
) -> list[float]:
    """What the sampled ids have under the softmax of the processed logits."""
    logprobs = []
    for at, logits_V in enumerate(logits_of(model, generation)):
        before = generation.sampled_ids_T[:at]
        changed_V = process(logits_V.clone(), generation.prompt_ids_T, before)
        logprobs_V = torch.log_softmax(changed_V / temperature, -1)
        logprobs.append(logprobs_V[generation.sampled_ids_T[at]].item())
    return logprobs


def plain(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    return logits_V


def kept(logits_V: Tensor, keep_V: Tensor) -> Tensor:
    return logits_V.masked_fill(~keep_V, -torch.inf)


def of_top_k(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    return kept(logits_V, logits_V >= logits_V.topk(5).values[-1])


def of_top_p(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    """The temperature that is asked for below."""
    probs, order = torch.softmax(logits_V / 0.8, -1).sort(descending=True)
    keep_V = torch.zeros(len(logits_V), dtype=torch.bool)
    keep_V[order[probs.cumsum(0) - probs < 0.6]] = True
    return kept(logits_V, keep_V)


def of_min_p(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    probs_V = torch.softmax(logits_V, -1)
    return kept(logits_V, probs_V >= 0.5 * probs_V.max())


def counts(ids: list[int], size: int) -> Tensor:
    return torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=size).float()


def of_penalties(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    counts_V = counts(before, len(logits_V))
    return logits_V - 1.5 * counts_V - 0.7 * (counts_V > 0)


def of_repetition(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    met_V = counts(prompt + before, len(logits_V)) > 0
    return torch.where(met_V, torch.where(logits_V > 0, logits_V / 1.7, logits_V * 1.7), logits_V)


def of_bias(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    logits_V[[40, 41]] += torch.tensor([3.0, -5.0])
    return logits_V


def of_allowed(logits_V: Tensor, prompt: list[int], before: list[int]) -> Tensor:
    keep_V = torch.zeros(len(logits_V), dtype=torch.bool)
    keep_V[30:60] = True
    return kept(logits_V, keep_V)


CASES: dict[str, tuple[dict[str, Any], float, Process]] = {
    "plain": ({}, 1.0, plain),
    "temperature": ({"temperature": 0.3}, 0.3, plain),
    "hot": ({"temperature": 1.8}, 1.8, plain),
    "seed": ({"seed": 3}, 1.0, plain),
    "top_k": ({"top_k": 5}, 1.0, of_top_k),
    "top_k and temperature": ({"top_k": 5, "temperature": 0.5}, 0.5, of_top_k),
    "top_p": ({"top_p": 0.6, "temperature": 0.8}, 0.8, of_top_p),
    "min_p": ({"min_p": 0.5}, 1.0, of_min_p),
    "penalties": ({"presence_penalty": 0.7, "frequency_penalty": 1.5}, 1.0, of_penalties),
    "repetition_penalty": ({"repetition_penalty": 1.7}, 1.0, of_repetition),
    "logit_bias": ({"logit_bias": ((40, 3.0), (41, -5.0))}, 1.0, of_bias),
    "allowed_token_ids": ({"allowed_token_ids": tuple(range(30, 60))}, 1.0, of_allowed),
}


@pytest.mark.parametrize("name", CASES)
def test_log_probs_are_those_of_what_was_sampled_from(
    served: Served, loop: asyncio.AbstractEventLoop, model: Path, name: str
) -> None:
    wishes, temperature, process = CASES[name]
    sampling = Sampling(**{"temperature": 1.0, "top_p": 1.0, "max_tokens": LENGTH, **wishes})
    generation = sampled(served, loop, sampling)
    assert generation.logprobs_T == pytest.approx(
        expected(model, generation, temperature, process), abs=WITHIN
    )
    assert bool(sampling.untrainable) == (process is not plain)
    if sampling.untrainable:  # and otherwise they differ: such a turn is rightly left out
        free = expected(model, generation, temperature, plain)
        assert generation.logprobs_T != pytest.approx(free, abs=WITHIN)


def test_a_greedy_reply_has_the_log_probs_of_temperature_one(
    served: Served, loop: asyncio.AbstractEventLoop, model: Path
) -> None:
    """They are not those of what was done, whose log-prob is 0: it is never trained on."""
    sampling = Sampling(0.0, 1.0, LENGTH)
    generation = sampled(served, loop, sampling)
    assert generation.sampled_ids_T == logits_of(model, generation).argmax(-1).tolist()
    assert generation.logprobs_T == pytest.approx(
        expected(model, generation, 1.0, plain), abs=WITHIN
    )
    assert sampling.untrainable == "temperature"


def test_a_stop_id_ends_a_reply_and_its_distribution_stays(
    served: Served, loop: asyncio.AbstractEventLoop, model: Path
) -> None:
    first = sampled(served, loop, Sampling(1.0, 1.0, LENGTH, seed=11))
    stop = first.sampled_ids_T[3]
    length = first.sampled_ids_T.index(stop) + 1
    again = sampled(served, loop, Sampling(1.0, 1.0, LENGTH, seed=11, stop_token_ids=(stop,)))
    assert again.sampled_ids_T == first.sampled_ids_T[:length]
    assert (again.finish_reason, again.stop_text) == ("stop", None)
    assert again.logprobs_T == pytest.approx(first.logprobs_T[:length], abs=WITHIN)


def test_no_reply_ends_before_its_least_length(
    served: Served, loop: asyncio.AbstractEventLoop, model: Path
) -> None:
    (favourite,) = logits_of(model, sampled(served, loop, Sampling(0.0, 1.0, 1))).argmax(-1)
    wishes: dict[str, Any] = {
        "stop_token_ids": (int(favourite),),
        "logit_bias": ((int(favourite), 50.0),),
    }
    short = sampled(served, loop, Sampling(1.0, 1.0, LENGTH, **wishes))
    long = sampled(served, loop, Sampling(1.0, 1.0, LENGTH, min_tokens=6, **wishes))
    assert (len(short.sampled_ids_T), len(long.sampled_ids_T)) == (1, 7)
    assert int(favourite) not in long.sampled_ids_T[:-1]
    assert Sampling(1.0, 1.0, LENGTH, min_tokens=6).untrainable == "min_tokens"


def test_bad_words_are_not_said(
    served: Served, loop: asyncio.AbstractEventLoop, model: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    word = next(w for w in ("the", "a", "e", "x") if len(tokenizer.encode(w)) == 1)
    (token,) = tokenizer.encode(word)
    loud: dict[str, Any] = {"logit_bias": ((token, 20.0),)}
    assert token in sampled(served, loop, Sampling(1.0, 1.0, LENGTH, **loud)).sampled_ids_T
    silent = sampled(served, loop, Sampling(1.0, 1.0, LENGTH, bad_words=(word,), **loud))
    assert token not in silent.sampled_ids_T


def test_an_id_outside_of_the_vocabulary_is_the_requests_fault(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    beyond: list[dict[str, Any]] = [
        {"logit_bias": ((10**8, 1.0),)},
        {"allowed_token_ids": (10**8,)},
    ]
    for wishes in beyond:
        with pytest.raises(RequestError):
            sampled(served, loop, Sampling(1.0, 1.0, LENGTH, **wishes))


@pytest.mark.parametrize("name", ["plain", "temperature", "top_k", "min_p", "repetition_penalty"])
def test_a_reply_that_another_server_began_goes_on_with_the_same_distribution(
    served: Served, loop: asyncio.AbstractEventLoop, model: Path, name: str
) -> None:
    wishes, temperature, process = CASES[name]
    sampling = Sampling(**{"temperature": 1.0, "top_p": 1.0, "max_tokens": LENGTH, **wishes})
    assert sampling.can_go_on

    async def in_two(client: PolicyClient) -> Generation:
        version = served.version
        first = [p async for p in client.stream(PROMPT, sampling, None, version=version)]
        begun: list[Piece] = [piece for piece in first[:9] if piece.generation is None]
        rest = client.stream(PROMPT, sampling, None, version=version, resume_from=begun)
        generation = [piece async for piece in rest][-1].generation
        assert generation is not None
        return generation

    generation = asked(served, loop, in_two)
    assert len(generation.sampled_ids_T) > 9
    assert generation.logprobs_T == pytest.approx(
        expected(model, generation, temperature, process), abs=WITHIN
    )


def test_what_looks_back_at_the_reply_is_not_gone_on_with() -> None:
    settings: list[dict[str, Any]] = [
        {"presence_penalty": 0.5},
        {"frequency_penalty": -1.0},
        {"bad_words": ("x",)},
    ]
    for wishes in settings:
        assert not Sampling(1.0, 1.0, LENGTH, **wishes).can_go_on
