"""A divergence over the K likeliest tokens holds hardly more memory than the plain log-probs.

Bytes of all tensors that live at once are counted, not measured, over a forward and a backward pass
of a model with a vocabulary of real size.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from clawrl_gym.trainers.models.distillation import topk_divergence, topk_logprobs
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from tests.reference.tiny_model import make_samples, write_tiny_qwen3

V, K = 151_936, 20


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that operations made and that are still alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self._now += size
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self._now -= size


def peak(loss: Callable[[], Tensor]) -> int:
    with LiveBytes() as live:
        loss().backward()
    return int(live.peak)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PackedModel:
    folder = tmp_path_factory.mktemp("model")
    return PackedModel(write_tiny_qwen3(folder, vocab=V), "cpu", temperature=0.6)


def test_topk_distillation_needs_at_most_1_3_times_the_memory(model: PackedModel) -> None:
    (pack,) = make_packs(make_samples([40, 40, 30]), 1024)
    count = len(pack.targets_M)
    ids_MK = np.random.default_rng(0).integers(0, V, (count, K))
    wide = replace(pack, topk_ids_MK=ids_MK)

    def plain() -> Tensor:
        return model.score(pack).logprobs_M.sum()

    def with_topk() -> Tensor:
        scores = model.score(wide)
        assert scores.topk_MK is not None
        teacher_MK = scores.topk_MK.detach() - 0.1
        divergence_M = topk_divergence(scores.topk_MK, teacher_MK, "reverse")
        return scores.logprobs_M.sum() + divergence_M.sum()

    assert peak(plain) >= 3 * 4 * count * V  # logits and their gradient are seen at all
    assert peak(with_topk) <= 1.3 * peak(plain)


def test_the_count_sees_a_copy_of_the_logits_for_each_token() -> None:
    """The reference's way holds K of them; a count that missed that would prove nothing."""
    logits = torch.randn(8, V, requires_grad=True)

    def together() -> Tensor:
        return topk_logprobs(logits, logits.logsumexp(-1), torch.arange(8 * K).view(8, K)).sum()

    def one_by_one() -> Tensor:
        return torch.stack([logits.clone().log_softmax(-1)[:, k] for k in range(K)]).sum()

    assert peak(one_by_one) > 4 * peak(together)
