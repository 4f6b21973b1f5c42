"""Frozen weights in 4 bits: what is learned beside them is written with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.models import adapter, nf4
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3

LENGTHS = [5, 30, 17, 4]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip(nf4.PACKAGE)
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def make_learner(model_dir: str, **learner: object) -> Learner:
    config = LearnerConfig.model_validate(
        {"lr": 1e-2, "base": "nf4", "adapter": AdapterConfig(rank=4, alpha=8)} | learner
    )
    return Learner(TrainerConfig(steps=10, kl_coef=0.1), config, model_dir, 0, "cpu")


def logprobs(model: PackedModel, samples: list[Sample]) -> torch.Tensor:
    (pack,) = make_packs(samples, 10_000)
    with torch.no_grad():
        return model.score(pack).logprobs_M


@pytest.mark.parametrize("modules", ["all-linear", ("q_proj", "down_proj")])
@pytest.mark.parametrize("checkpoint_layers", [False, True])
def test_it_learns_beside_weights_in_4_bits(
    model_dir: str, checkpoint_layers: bool, modules: object
) -> None:
    form = AdapterConfig.model_validate({"rank": 4, "alpha": 8, "modules": modules})
    learner = make_learner(model_dir, checkpoint_layers=checkpoint_layers, adapter=form)
    samples = make_samples(LENGTHS)
    begun = logprobs(learner.model, samples)
    for version in range(2):
        stats = learner.step(samples, version)
        assert stats.metrics["learner/grad_norm"] > 0
    assert not torch.allclose(begun, logprobs(learner.model, samples), atol=1e-3)
    assert learner.first is not None
    assert torch.equal(begun, logprobs(learner.first, samples)), "the reference is the base"
    assert {str(p.dtype) for p in learner.model.net.parameters() if p.requires_grad} == {
        "torch.float32"
    }


def test_what_is_written_is_the_rounded_model_with_its_adapter(
    model_dir: str, tmp_path: Path
) -> None:
    learner = make_learner(model_dir, adapter=AdapterConfig(rank=4, modules=("q_proj", "o_proj")))
    samples = make_samples(LENGTHS)
    for version in range(3):
        learner.step(samples, version)
    shutil.copytree(model_dir, tmp_path / "whole")
    learner.save_weights(str(tmp_path / "whole"))
    names = load_file(tmp_path / "whole" / "model.safetensors").keys()
    assert names == load_file(Path(model_dir) / "model.safetensors").keys()
    whole = logprobs(PackedModel(str(tmp_path / "whole"), "cpu"), samples)
    own = logprobs(learner.model, samples)
    plain = logprobs(PackedModel(model_dir, "cpu"), samples)
    assert float((whole - own).abs().mean()) < 0.05, "bfloat16 against float32 of the same weights"
    assert float((whole - own).abs().mean()) < 0.3 * float((plain - own).abs().mean())


def test_it_goes_on_from_a_checkpoint_bit_by_bit(model_dir: str, tmp_path: Path) -> None:
    samples = make_samples(LENGTHS)
    learner = make_learner(model_dir)
    learner.step(samples, 0)
    learner.save_checkpoint(str(tmp_path / "000001"))
    again = make_learner(model_dir)
    again.load_checkpoint(str(tmp_path / "000001"))
    for each in (learner, again):
        each.step(samples, 1)
    own = adapter.trained(learner.model.net)
    assert all(torch.equal(t, own[n]) for n, t in adapter.trained(again.model.net).items())


def resident_bytes(file: Path) -> int:
    """What is in memory of a file that this process has mapped."""
    mappings = Path("/proc/self/smaps").read_text().split("VmFlags:")
    own = (mapping for mapping in mappings if str(file) in mapping)
    return sum(1024 * int(mapping.split("Rss:")[1].split()[0]) for mapping in own)


def test_what_was_read_to_be_rounded_does_not_stay_in_memory(tmp_path: Path) -> None:
    pytest.importorskip(nf4.PACKAGE)
    from transformers import Qwen3Config, Qwen3ForCausalLM

    wide = Qwen3Config(
        vocab_size=64, hidden_size=256, intermediate_size=2048, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    Qwen3ForCausalLM(wide).bfloat16().save_pretrained(tmp_path)
    learner = LearnerConfig(adapter=AdapterConfig(rank=4), base="nf4")
    model = PackedModel(str(tmp_path), "cpu", learner=learner)
    file = tmp_path / "model.safetensors"
    logprobs(model, make_samples(LENGTHS))  # what is not rounded is read from the file
    assert 0 < resident_bytes(file) < 0.2 * file.stat().st_size


def test_without_the_package_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nf4, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match="expected the package no_such"):
        nf4.check_installed()
