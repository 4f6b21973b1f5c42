"""An adapter learns as all weights do, leaves the weights alone, and is one of PEFT's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.weights.adapter_files import ADAPTER
from clawrl_gym.inference.weights.whole_model import whole_model
from clawrl_gym.trainers.models import adapter
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3

LENGTHS = [5, 30, 17, 4]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_learner(model_dir: str, trainer: object = None, **learner: object) -> Learner:
    settings = TrainerConfig.model_validate({"steps": 10, **(trainer or {})})  # type: ignore[dict-item]
    config = LearnerConfig.model_validate(
        {"lr": 1e-2, "adapter": AdapterConfig(rank=4, alpha=8)} | learner
    )
    return Learner(settings, config, model_dir, 0, "cpu")


def logprobs(model: PackedModel, samples: list[Sample]) -> torch.Tensor:
    (pack,) = make_packs(samples, 10_000)
    with torch.no_grad():
        return model.score(pack).logprobs_M


def rewarded(samples: list[Sample], learner: Learner) -> list[Sample]:
    """Every other sample is good, and all are as if the learner had sampled them."""
    known = iter(logprobs(learner.model, samples).tolist())
    return [
        replace(
            sample,
            advantages_T=[(1.0 if n % 2 else -1.0) if m else 0.0 for m in sample.mask_T],
            logprobs_T=[next(known) if m else 0.0 for m in sample.mask_T],
        )
        for n, sample in enumerate(samples)
    ]


def train(learner: Learner, samples: list[Sample], versions: range = range(3)) -> None:
    for version in versions:
        learner.step(rewarded(samples, learner), version)


@pytest.mark.parametrize("checkpoint_layers", [False, True])
def test_it_begins_as_the_model_and_learns_what_is_rewarded(
    model_dir: str, checkpoint_layers: bool
) -> None:
    learner = make_learner(model_dir, checkpoint_layers=checkpoint_layers)
    samples = make_samples(LENGTHS)
    before = logprobs(learner.model, samples)
    assert torch.equal(before, logprobs(PackedModel(model_dir, "cpu"), samples))
    stats = learner.step(rewarded(samples, learner), 0)
    assert stats.metrics["learner/grad_norm"] > 0
    train(learner, samples, range(1, 4))
    good = torch.tensor([n % 2 == 1 for n, s in enumerate(samples) for m in s.mask_T if m])
    gain = logprobs(learner.model, samples) - before
    assert float(gain[good].sum()) > 1.0
    assert float(gain[~good].sum()) < -1.0


def test_layers_that_are_made_again_change_no_gradient(model_dir: str) -> None:
    gradients = []
    for checkpoint_layers in (False, True):
        learner = make_learner(model_dir, checkpoint_layers=checkpoint_layers)
        learner.step(rewarded(make_samples(LENGTHS), learner), 0)
        gradients.append(adapter.trained(learner.model.net))
    for name, tensor in gradients[0].items():
        assert torch.allclose(tensor, gradients[1][name], atol=1e-6), name


def test_only_the_adapter_moves_and_the_first_model_is_at_hand(model_dir: str) -> None:
    learner = make_learner(model_dir, {"kl_coef": 0.1})
    samples = make_samples(LENGTHS)
    original = logprobs(PackedModel(model_dir, "cpu"), samples)
    train(learner, samples)
    assert learner.first is not None
    assert learner.first.net is learner.model.net
    assert torch.equal(logprobs(learner.first, samples), original)
    assert not torch.allclose(logprobs(learner.model, samples), original, atol=1e-2)
    tensors = load_file(Path(model_dir) / "model.safetensors")
    kept = {
        name.replace(".base_layer.", "."): t for name, t in learner.model.net.state_dict().items()
    }
    assert all(torch.equal(kept[name], tensor) for name, tensor in tensors.items())
    trained = {name for name, p in learner.model.net.named_parameters() if p.requires_grad}
    assert trained
    assert all(".lora_" in name for name in trained)


def test_what_is_published_is_what_was_trained(model_dir: str, tmp_path: Path) -> None:
    learner = make_learner(model_dir)
    samples = make_samples(LENGTHS)
    train(learner, samples)
    learner.save_checkpoint(str(tmp_path / "000003"))
    merged = PackedModel(str(whole_model(tmp_path / "000003", Path)), "cpu")
    assert torch.allclose(logprobs(merged, samples), logprobs(learner.model, samples), atol=1e-5)
    published = tmp_path / "served"
    learner.save_weights(str(published))
    names = load_file(published / "model.safetensors").keys()
    assert names == load_file(Path(model_dir) / "model.safetensors").keys()


def test_peft_itself_loads_the_adapter_of_a_checkpoint(model_dir: str, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    learner = make_learner(model_dir)
    train(learner, make_samples(LENGTHS))
    learner.save_checkpoint(str(tmp_path / "000003"))
    ids = torch.tensor([make_samples([30])[0].ids_T])
    base = AutoModelForCausalLM.from_pretrained(model_dir)
    peft = PeftModel.from_pretrained(base, str(tmp_path / "000003" / ADAPTER)).eval()
    plain = AutoModelForCausalLM.from_pretrained(whole_model(tmp_path / "000003", Path)).eval()
    with torch.no_grad():
        assert torch.allclose(peft(ids).logits, plain(ids).logits, atol=1e-4)
        assert not torch.allclose(
            AutoModelForCausalLM.from_pretrained(model_dir).eval()(ids).logits,
            plain(ids).logits, atol=1e-2,
        )  # fmt: skip


@pytest.mark.parametrize("base", ["float32", "bfloat16"])
def test_it_goes_on_from_a_checkpoint_bit_by_bit(model_dir: str, tmp_path: Path, base: str) -> None:
    form = {"adapter": AdapterConfig(rank=4, alpha=8), "base": base}
    samples = make_samples(LENGTHS)
    learner = make_learner(model_dir, **form)
    train(learner, samples, range(2))
    learner.save_checkpoint(str(tmp_path / "000002"))
    train(learner, samples, range(2, 4))
    again = make_learner(model_dir, **form)
    again.load_checkpoint(str(tmp_path / "000002"))
    train(again, samples, range(2, 4))
    for name, tensor in adapter.trained(learner.model.net).items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, adapter.trained(again.model.net)[name]), name


def test_frozen_weights_of_half_the_size_teach_the_same(model_dir: str) -> None:
    half = make_learner(model_dir, adapter=AdapterConfig(rank=4), base="bfloat16")
    sizes = {p.dtype for p in half.model.net.parameters() if not p.requires_grad}
    assert sizes == {torch.bfloat16}
    samples = make_samples(LENGTHS)
    before = logprobs(half.model, samples)
    assert torch.allclose(before, logprobs(PackedModel(model_dir, "cpu"), samples), atol=0.1)
    train(half, samples)
    good = torch.tensor([n % 2 == 1 for n, s in enumerate(samples) for m in s.mask_T if m])
    gain = logprobs(half.model, samples) - before
    assert float(gain[good].sum()) > 0.3 > -0.3 > float(gain[~good].sum())


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"adapter": {"modules": ["query"]}}, "with query, expected linear layers of the model"),
        ({"adapter": {"modules": ["q_proj", "lm_head"]}}, "lm_head, expected .* q_proj"),
    ],
)
def test_modules_that_the_model_has_not_are_refused(
    model_dir: str, form: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_learner(model_dir, **form)


def test_a_checkpoint_of_another_form_is_refused(model_dir: str, tmp_path: Path) -> None:
    of_adapter, of_weights = str(tmp_path / "a"), str(tmp_path / "w")
    make_learner(model_dir).save_checkpoint(of_adapter)
    make_learner(model_dir, adapter=None).save_checkpoint(of_weights)
    other = make_learner(model_dir, adapter={"rank": 8})
    with pytest.raises(TrainerError, match=r"rank 4, .*, expected the run's own: rank 8, alpha"):
        other.load_checkpoint(of_adapter)
    louder = make_learner(model_dir, adapter={"rank": 4, "alpha": 16})
    with pytest.raises(TrainerError, match=r"alpha 8 on .* own: rank 4, alpha 16 on down_proj,"):
        louder.load_checkpoint(of_adapter)
    fewer = make_learner(model_dir, adapter={"rank": 4, "alpha": 8, "modules": ["q_proj"]})
    with pytest.raises(TrainerError, match=r"alpha 8 on down_proj.* own: rank 4, alpha 8 on q_pr"):
        fewer.load_checkpoint(of_adapter)
    with pytest.raises(TrainerError, match="without an adapter"):
        other.load_checkpoint(of_weights)
    with pytest.raises(TrainerError, match="learner=lora"):
        make_learner(model_dir, adapter=None).load_checkpoint(of_adapter)


def test_an_adapter_of_another_model_is_refused(model_dir: str, tmp_path: Path) -> None:
    """It has the same rank and layers, but a tensor has no place, or another shape."""
    learner = make_learner(model_dir)
    folder = tmp_path / "adapter"
    adapter.write_adapter(learner.model.net, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    first = min(tensors)
    for changed in ({}, {first: tensors[first].repeat(1, 2)}):
        rest = {name: tensor for name, tensor in tensors.items() if name != first}
        save_file(rest | changed, folder / "adapter_model.safetensors")
        with pytest.raises(
            TrainerError, match=r"of another model .*layers\.0\..* is missing or of"
        ):
            adapter.read_adapter(learner.model.net, folder)
