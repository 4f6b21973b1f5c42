"""Adam's moments in 8 bits: nearly the same steps, and going on bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.trainers.models import nf4
from clawrl_gym.trainers.models.optimizer import make_optimizer, optimizer_step
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples

LENGTHS = [5, 30, 17, 4]
FORMS: dict[str, dict[str, object]] = {
    "weights": {},
    "offloaded": {"offload": True},
    "adapter": {"adapter": AdapterConfig(rank=64)},
}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Wide enough that its matrices are not left in float32."""
    pytest.importorskip(nf4.PACKAGE)
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    config = Qwen3Config(
        vocab_size=64, hidden_size=96, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=512,
        initializer_range=0.2, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def make_learner(model_dir: str, bits: int, **learner: object) -> Learner:
    config = LearnerConfig.model_validate({"moment_bits": bits, "lr": 1e-3} | learner)
    return Learner(TrainerConfig(steps=10), config, model_dir, 0, "cpu")


def weights(learner: Learner) -> torch.Tensor:
    """A copy of all that the optimizer steps on."""
    groups = learner.optimizer.param_groups
    return torch.cat([p.detach().flatten() for group in groups for p in group["params"]]).clone()


@pytest.mark.parametrize("form", FORMS)
def test_its_steps_are_nearly_those_of_moments_in_float32(model_dir: str, form: str) -> None:
    samples, steps = make_samples(LENGTHS), []
    for bits in (32, 8):
        learner = make_learner(model_dir, bits, **FORMS[form])
        before = weights(learner)
        for version in range(4):
            learner.step(samples, version)
        steps.append(weights(learner) - before)
    exact, rounded = steps
    assert not torch.equal(exact, rounded)
    assert (
        float(exact @ rounded / (exact.norm() * rounded.norm())) > 0.9
    )  # of the offloaded, rounding moves gradients, too
    assert float(rounded.norm() / exact.norm()) == pytest.approx(1, abs=0.1)


def test_moments_take_a_quarter(model_dir: str) -> None:
    sizes = []
    for bits in (32, 8):
        learner = make_learner(model_dir, bits)
        learner.step(make_samples(LENGTHS), 0)
        states = learner.optimizer.state.values()
        sizes.append(
            sum(t.nbytes for s in states for t in s.values() if torch.is_tensor(t) and t.dim())
        )
    assert sizes[1] < 0.3 * sizes[0]


@pytest.mark.parametrize("form", FORMS)
def test_it_goes_on_from_a_checkpoint_bit_by_bit(model_dir: str, tmp_path: Path, form: str) -> None:
    samples = make_samples(LENGTHS)
    learner, again = (make_learner(model_dir, 8, **FORMS[form]) for _ in range(2))
    learner.step(samples, 0)
    learner.save_checkpoint(str(tmp_path / "000001"))
    again.load_checkpoint(str(tmp_path / "000001"))
    for each in (learner, again):
        each.step(samples, 1)
    assert torch.equal(weights(learner), weights(again))


def test_users_who_take_turns_keep_their_moments(model_dir: str) -> None:
    samples, others = make_samples(LENGTHS), make_samples(LENGTHS, seed=1)
    alone, turns = (make_learner(model_dir, 8, **FORMS["adapter"]) for _ in range(2))
    for version in range(2):
        alone.step(samples, version)
        turns.step(samples, version)
        turns.use("anna", None)
        turns.step(others, version)
        turns.use("", None)
    assert torch.equal(weights(alone), weights(turns))


def test_steps_of_weak_evidence_are_as_short_as_with_moments_in_float32() -> None:
    pytest.importorskip(nf4.PACKAGE)
    draw = torch.Generator().manual_seed(0)
    batches = [(strength, torch.randn(64, 128, generator=draw)) for strength in (1, 0.1, 0.1, 1)]
    steps: dict[int, list[torch.Tensor]] = {32: [], 8: []}
    for bits, moved in steps.items():
        parameter = torch.nn.Parameter(torch.zeros(64, 128))
        config = LearnerConfig.model_validate({"moment_bits": bits})
        optimizer = make_optimizer([parameter], config)
        for strength, gradient in batches:
            before = parameter.detach().clone()
            parameter.grad = strength * gradient
            optimizer_step(optimizer, 1e-3, strength, 1e9)
            moved.append(parameter.detach() - before)
    for exact, rounded in zip(*steps.values(), strict=True):
        assert float((rounded - exact).norm() / exact.norm()) < 0.1


@pytest.mark.parametrize(("written", "read"), [(8, 32), (32, 8)])
def test_a_checkpoint_of_other_moments_is_refused(
    model_dir: str, tmp_path: Path, written: int, read: int
) -> None:
    learner = make_learner(model_dir, written)
    learner.step(make_samples(LENGTHS), 0)
    learner.save_checkpoint(str(tmp_path / "000001"))
    with pytest.raises(TrainerError, match=f"resume with learner.moment_bits={written}"):
        make_learner(model_dir, read).load_checkpoint(str(tmp_path / "000001"))


def test_without_the_package_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nf4, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match=r"learner\.moment_bits=8, expected the package no_such"):
        make_optimizer([torch.nn.Parameter(torch.zeros(2, 2))], LearnerConfig(moment_bits=8))
