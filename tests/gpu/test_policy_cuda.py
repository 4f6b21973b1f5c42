"""vLLM's CUDA build serves the tiny policy, says what it sampled with, and takes new weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.types import ChatBody
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.vllm.build import vllm_device
from clawrl_gym.inference.vllm.client import Generation, Sampling
from clawrl_gym.inference.vllm.publisher import WeightPublisher
from tests.e2e.served import Served
from tests.support.tiny_models import logprobs_by_transformers

pytestmark = [pytest.mark.gpu, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
CHAT: ChatBody = {"messages": [{"role": "user", "content": "Copy a.txt to b.txt."}]}
CONFIG = PolicyConfig(gpu_memory_utilization=0.2)
FLOAT32 = 1e-3
"""Log-probs may be apart by so much where nothing is rounded to TF32 or bfloat16."""


async def generate(served: Served) -> tuple[list[int], Generation]:
    """A prompt and what was sampled after it."""
    client = served.client()
    try:
        ids = await client.render(CHAT)
        return ids, await client.generate(ids, Sampling(1.0, 1.0, 48, seed=1), version=0)
    finally:
        await client.close()


def gap(folder: Path, ids: list[int], made: Generation) -> float:
    """How far the log-probs are from those of transformers in float32 on the CPU."""
    theirs = logprobs_by_transformers(folder, ids, made.sampled_ids_T)
    ours = [logprob for logprob in made.logprobs_T if logprob is not None]
    return max(abs(own - other) for own, other in zip(ours, theirs, strict=True))


def perturbed(target: Path) -> Path:
    """A copy of the shipped model with other weights; its folder."""
    import torch
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(shipped_dir(), dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    net.save_pretrained(target)
    return target


def test_it_serves_and_takes_new_weights(tmp_path: Path) -> None:
    assert vllm_device("auto") == "cuda"
    other = perturbed(tmp_path / "other")
    served = Served(shipped_dir(), tmp_path, CONFIG)

    async def go() -> None:
        try:
            await served.server.start()
            ids, made = await generate(served)
            assert gap(shipped_dir(), ids, made) < FLOAT32
            await WeightPublisher(served.server).publish(1, other / "model.safetensors")
            ids, made = await generate(served)
            assert set(made.versions_T) == {1}
            assert gap(other, ids, made) < FLOAT32
        finally:
            await served.server.stop()

    asyncio.run(go())
