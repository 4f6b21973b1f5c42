"""No memory left, or numbers that are none: what is said, and that the weights stay."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.limits import FiniteGradients, memory_errors
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3

LENGTHS = [5, 30, 17, 4]
FORMS: dict[str, dict[str, object]] = {
    "full": {}, "lora": {"adapter": AdapterConfig(rank=4)}, "offload": {"offload": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def make_learner(model_dir: str, form: str, **learner: object) -> Learner:
    config = LearnerConfig.model_validate(FORMS[form] | learner)
    return Learner(TrainerConfig(steps=10, max_tokens_per_pack=128), config, model_dir, 0, "cpu")


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in learner.model.state().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def broken(samples: list[Sample]) -> list[Sample]:
    """With an advantage that overflows."""
    return [replace(s, advantages_T=[math.inf if m else 0.0 for m in s.mask_T]) for s in samples]


class Full(torch.nn.Module):
    """A layer for which there is no memory from its second pass on."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.passes = 0

    def forward(self, *inputs: object, **more: object) -> object:
        self.passes += 1
        if self.passes > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB\nmore")
        return self.layer(*inputs, **more)


@pytest.mark.parametrize("form", FORMS)
def test_without_memory_the_weights_stay_and_it_is_said_what_to_lower(
    model_dir: str, form: str
) -> None:
    """In the second pack: gradients of the first are dropped, too."""
    learner = make_learner(model_dir, form)
    samples = make_samples([40, 90, 60, 100])
    learner.step(samples, 0)
    before = weights(learner)
    body: Any = learner.model.net.base_model
    norm = body.norm
    body.norm = Full(norm)
    with pytest.raises(TrainerError, match=r"no more memory in a pack of [\d]+ tokens") as caught:
        learner.step(samples, 1)
    body.norm = norm
    assert same(before, weights(learner))
    words = str(caught.value)
    assert "\n" not in words, "one line is what comes through from another process"
    assert "trainer.max_tokens_per_pack=128" in words
    assert ("learner.base=nf4" in words) == (form == "lora")
    assert ("learner.offload=true" in words) == (form == "full")
    again = make_learner(model_dir, form)
    again.step(samples, 0)
    for each in (learner, again):
        each.step(samples, 1)
    assert same(weights(learner), weights(again)), "nothing of it is left"


@pytest.mark.parametrize("form", FORMS)
def test_steps_without_numbers_are_left_out_recorded_and_end_a_run(
    model_dir: str, form: str
) -> None:
    learner = make_learner(model_dir, form, max_skipped=3)
    samples = make_samples(LENGTHS)
    learner.step(samples, 0)
    before = weights(learner)
    for version, skipped in ((1, 1.0), (2, 2.0)):
        stats = learner.step(broken(samples), version)
        assert stats.metrics["learner/skipped"] == skipped
    assert same(before, weights(learner))
    assert learner.step(samples, 3).metrics["learner/skipped"] == 2.0, "a good one in between"
    before = weights(learner)
    for version in (4, 5):
        learner.step(broken(samples), version)
    with pytest.raises(TrainerError, match="not finite in 3 steps in a row"):
        learner.step(broken(samples), 6)
    assert same(before, weights(learner))


@pytest.mark.parametrize(
    ("error", "is_of_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("shape '[3]' is invalid"), False),
    ],
)
def test_only_what_is_of_memory_is_called_so(error: Exception, is_of_memory: bool) -> None:
    expected = TrainerError if is_of_memory else RuntimeError
    with (
        pytest.raises(expected),
        memory_errors("for nothing", TrainerConfig(), LearnerConfig()),
    ):
        raise error


def test_a_model_that_does_not_fit_names_the_part(
    model_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to(self: torch.nn.Module, *_: object, **__: object) -> torch.nn.Module:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch.nn.Module, "to", to)
    with pytest.raises(TrainerError, match="no more memory for the learner's weights"):
        make_learner(model_dir, "lora")


def test_good_steps_begin_the_count_anew() -> None:
    gradients = FiniteGradients(2)
    for finite in (False, True, False, True):
        gradients.saw(finite)
    gradients.saw(False)
    with pytest.raises(TrainerError, match=r"learner\.max_skipped"):
        gradients.saw(False)


def test_a_loss_of_ones_own_is_named_as_a_possible_cause() -> None:
    with pytest.raises(TrainerError, match=r"or correct the loss my_pkg\.losses:mine"):
        FiniteGradients(1, "my_pkg.losses:mine").saw(False)
    with pytest.raises(TrainerError) as ours:
        FiniteGradients(1, "cispo").saw(False)
    assert "correct the loss" not in str(ours.value)
