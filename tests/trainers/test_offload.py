"""All weights in bfloat16 on the device learn as float32 ones do, and go on bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3

LENGTHS = [5, 30, 17, 4]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def make_learner(model_dir: str, pack: int = 10_000, **learner: object) -> Learner:
    config = LearnerConfig.model_validate({"offload": True} | learner)
    return Learner(TrainerConfig(steps=10, max_tokens_per_pack=pack), config, model_dir, 0, "cpu")


def moved(learner: Learner, before: list[torch.Tensor]) -> torch.Tensor:
    pairs = zip(learner.weights.optimizer.param_groups[0]["params"], before, strict=False)
    return torch.cat([(now.detach() - then).flatten() for now, then in pairs])


@pytest.mark.parametrize("pack", [10_000, 128])
def test_its_steps_are_those_of_float32(model_dir: str, pack: int) -> None:
    """In packs of their own, too: gradients are added up away from the device."""
    samples = make_samples([40, 90, 60, 100])
    steps = []
    for offload in (False, True):
        learner = make_learner(model_dir, pack, offload=offload, lr=1e-3)
        before = [p.detach().clone() for p in learner.weights.optimizer.param_groups[0]["params"]]
        for version in range(2):
            learner.step(samples, version)
        steps.append(moved(learner, before))
    assert float(steps[0] @ steps[1] / (steps[0].norm() * steps[1].norm())) > 0.9
    assert float(steps[1].norm() / steps[0].norm()) == pytest.approx(1, abs=0.05)


def test_the_device_has_half_precision_and_no_gradient(model_dir: str) -> None:
    learner = make_learner(model_dir)
    learner.step(make_samples(LENGTHS), 0)
    parameters = list(learner.model.net.parameters())
    assert {parameter.dtype for parameter in parameters} == {torch.bfloat16}
    assert all(parameter.grad is None for parameter in parameters)
    whole = learner.weights.optimizer.param_groups[0]["params"]
    assert {parameter.dtype for parameter in whole} == {torch.float32}


def test_steps_too_small_for_half_precision_are_not_lost(model_dir: str) -> None:
    learner = make_learner(model_dir, lr=1e-5, warmup_steps=0, schedule="constant")
    before = [p.detach().clone() for p in learner.weights.optimizer.param_groups[0]["params"]]
    for version in range(4):
        learner.step(make_samples(LENGTHS), version)
    assert float(moved(learner, before).abs().max()) == pytest.approx(4e-5, rel=0.2)
    rounded = next(p for p in learner.weights.parameters if p.dim() >= 2)
    assert torch.equal(rounded, learner.weights.optimizer.param_groups[0]["params"][0].bfloat16())


def test_it_goes_on_from_a_checkpoint_bit_by_bit(model_dir: str, tmp_path: Path) -> None:
    samples = make_samples(LENGTHS)
    learner = make_learner(model_dir)
    learner.step(samples, 0)
    learner.save_checkpoint(str(tmp_path / "000001"))
    again = make_learner(model_dir)
    again.load_checkpoint(str(tmp_path / "000001"))
    for each in (learner, again):
        each.step(samples, 1)
    first, second = (each.weights.optimizer.param_groups[0]["params"] for each in (learner, again))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    served, same = learner.model.state(), again.model.state()
    assert all(torch.equal(served[name], same[name]) for name in served)
