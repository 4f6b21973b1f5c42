"""What vLLM's kernels for the CPU make of tokens without an adapter beside tokens with one."""

from __future__ import annotations

import pytest


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")  # of vLLM, while it is imported
def test_a_token_without_an_adapter_gets_nothing_of_the_last_slots() -> None:
    import torch

    from clawrl_gym.inference.vllm.cpu_worker import shrink

    slots, tokens, width, rank = 3, 2, 8, 4
    lora_a = torch.ones(slots, rank, width)
    shrunk = torch.full((tokens, rank), 9.0)
    shrink(torch.ones(tokens, width), lora_a, shrunk, torch.tensor([-1, 0]), 0.5)
    assert shrunk.tolist() == [[0.0] * rank, [0.5 * width] * rank]
