"""A real pretrained model, from the package index to an update: `policy=smollm2`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clawrl_gym.inference.models.resolve import find_model, resolve_model
from clawrl_gym.store import StoreReader
from tests.e2e import runs

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.ray, pytest.mark.timeout(1500)]

SMALL = (
    "policy=smollm2", "policy.max_model_len=512", "policy.kv_cache_gb=0.25",
    "policy.sampling.max_tokens=24", "env=gym", "env.target=tests.e2e.guess_env:TellEnv",
    "env.max_turns=2", "trainer.steps=1", "rollout.groups=2", "rollout.group_size=4",
    "eval.ends=false", "eval.every=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Fetched and converted, in a cache of its own."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    try:
        assert find_model("smollm2") is None
        yield resolve_model("smollm2")
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


def test_its_first_words_are_those_of_a_chat_model(model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        reply = net.generate(**prompt, max_new_tokens=24, do_sample=False)[0]
    said = tokenizer.decode(reply[prompt["input_ids"].shape[1] :])
    assert "Paris" in said
    assert said.endswith("<|im_end|>"), "it ends its reply by itself"


def test_it_is_served_and_trained_on_its_own_ids(model: Path, tmp_path: Path) -> None:
    """Prompts and the first version's log-probs are those of transformers; a conversation is one
    sequence, though the template writes a system message that nobody sent."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "run"
    runs.train(folder, *SMALL, timeout_s=1200)
    row = runs.metrics(folder)[-1]
    assert (row["step"], row["batch/samples"]) == (1, 8)
    assert row["learner/grad_norm"] > 0
    store = StoreReader(folder)
    try:
        played = [store.turns_of(session.id) for session in store.sessions()]
        samples = store.samples_of_update(1)
    finally:
        store.close()
    episodes = [turns for turns in played if len(turns) == 2]  # others were begun in vain
    assert len(episodes) >= 8
    tokenizer = AutoTokenizer.from_pretrained(model)
    for first, second in episodes:
        expected = tokenizer.apply_chat_template(
            first.messages, add_generation_prompt=True, return_dict=False
        )
        assert first.prompt_ids_T == expected
        assert "You are a helpful AI assistant named SmolLM" in tokenizer.decode(expected)
        used = first.prompt_ids_T + first.sampled_ids_T
        assert second.prompt_ids_T[: len(used)] == used
    assert len(samples) == 8, "both turns of an episode are one sequence"
    first = episodes[0][0]
    ids = first.prompt_ids_T + first.sampled_ids_T
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        logits = net(torch.tensor([ids])).logits[0, len(first.prompt_ids_T) - 1 : -1]
    expected = torch.log_softmax(logits, -1)[range(len(logits)), first.sampled_ids_T]
    assert first.logprobs_T == pytest.approx(expected.tolist(), abs=2e-3)
