"""The model reads packs exactly as transformers reads each sequence alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.models.logprobs import MAX_LOGITS
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from tests.reference.tiny_model import make_samples, write_tiny_qwen3

LENGTHS = [5, 30, 17, 4, 17, 60, 9, 28]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def reference_logprobs(model_dir: str, sample: Sample, temperature: float) -> list[float]:
    """Plain transformers, one sequence, all logits."""
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = net(torch.tensor([sample.ids_T])).logits[0] / temperature
    logprobs = logits.log_softmax(-1)
    return [float(logprobs[i - 1, sample.ids_T[i]]) for i, m in enumerate(sample.mask_T) if m]


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_packed_and_padded_and_one_by_one_agree_with_transformers(
    model_dir: str, layout: str, temperature: float
) -> None:
    samples = make_samples(LENGTHS)
    expected = sorted(p for s in samples for p in reference_logprobs(model_dir, s, temperature))
    model = PackedModel(model_dir, "cpu", temperature)
    if layout == "padded":
        model.layout = "padded"
        net: Any = model.net
        net.set_attn_implementation("sdpa")
    for max_tokens in (128, 64, 1):  # 1: every sequence alone
        packs = make_packs(samples, max_tokens)
        with torch.no_grad():
            got = sorted(p for pack in packs for p in model.score(pack).logprobs_M.tolist())
        assert got == pytest.approx(expected, abs=2e-5)


def test_gradients_do_not_depend_on_the_packing(model_dir: str) -> None:
    samples = make_samples(LENGTHS)
    gradients = []
    for max_tokens in (256, 64, 1):
        model = PackedModel(model_dir, "cpu")
        for pack in make_packs(samples, max_tokens):
            model.score(pack).logprobs_M.sum().backward()
        gradients.append(
            torch.cat([p.grad.flatten() for p in model.net.parameters() if p.grad is not None])
        )
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], rtol=1e-3, atol=2e-4)


def test_no_token_sees_another_sequence(model_dir: str) -> None:
    model = PackedModel(model_dir, "cpu")
    first, second = make_samples([20, 16])
    changed = replace(second, ids_T=[(i + 1) % 64 for i in second.ids_T])
    with torch.no_grad():
        one = model.score(make_packs([first, second], 128)[0]).logprobs_M
        other = model.score(make_packs([first, changed], 128)[0]).logprobs_M
    sampled = sum(first.mask_T)
    assert torch.equal(one[:sampled], other[:sampled])
    assert not torch.equal(one[sampled:], other[sampled:])


def test_entropy_is_that_of_the_whole_distribution(model_dir: str) -> None:
    from transformers import AutoModelForCausalLM

    (sample,) = make_samples([25])
    net = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = net(torch.tensor([sample.ids_T])).logits[0]
        scores = PackedModel(model_dir, "cpu").score(make_packs([sample], 64)[0])
    entropies = torch.distributions.Categorical(logits=logits).entropy()
    expected = [float(entropies[i - 1]) for i, m in enumerate(sample.mask_T) if m]
    assert scores.entropies_M.tolist() == pytest.approx(expected, abs=1e-4)


def test_logits_in_pieces_give_the_same_gradient(model_dir: str) -> None:
    (pack,) = make_packs(make_samples([60]), 64)
    gradients = []
    for limit in (MAX_LOGITS, 64 * 7):
        model = PackedModel(model_dir, "cpu")
        model.max_logits = limit
        model.score(pack).logprobs_M.sum().backward()
        gradients.append([p.grad for p in model.net.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_tokens_to_compare_are_scored_beside_the_sampled_one(model_dir: str) -> None:
    (sample,) = make_samples([25])
    (plain,) = make_packs([sample], 64)
    model = PackedModel(model_dir, "cpu", 0.6)
    everything = np.tile(np.arange(64), (len(plain.targets_M), 1))
    pack = replace(plain, topk_ids_MK=everything)
    scores = model.score(pack)
    assert scores.topk_MK is not None
    assert torch.equal(scores.logprobs_M, model.score(plain).logprobs_M)
    torch.testing.assert_close(scores.topk_MK.exp().sum(-1), torch.ones(len(everything)))
    sampled = scores.topk_MK[torch.arange(len(everything)), torch.from_numpy(pack.targets_M)]
    assert torch.equal(sampled, scores.logprobs_M)


@pytest.mark.parametrize("limit", [MAX_LOGITS, 64 * 7])
def test_a_look_names_the_most_likely_tokens(model_dir: str, limit: int) -> None:
    (pack,) = make_packs(make_samples([60]), 64)
    model = PackedModel(model_dir, "cpu")
    model.max_logits = limit
    pack = replace(pack, topk_ids_MK=np.tile(np.arange(64), (len(pack.targets_M), 1)))
    whole = model.score(pack)
    assert whole.topk_MK is not None
    for width in (64, 50):
        look = model.look(pack, 5, width)
        expected = whole.topk_MK.detach()[:, :width].topk(5)
        assert torch.equal(look.best_ids_MK, expected.indices)
        torch.testing.assert_close(look.best_MK, expected.values)
        torch.testing.assert_close(look.logprobs_M, whole.logprobs_M.detach())
        assert not look.best_MK.requires_grad
    assert model.look(pack, 99, 64).best_MK.shape == (len(pack.targets_M), 64)
