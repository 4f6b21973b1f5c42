"""A learner's step on the GPU is the CPU's: in float32 to its rounding, in bfloat16 as far as
bfloat16 matrix products allow.

The bounds of the latter: the same comparison with bfloat16 on the CPU gave differences of log-probs
of 0.12 at most and 0.034 on average, updates with a cosine of 0.98 and gradient norms 0.8 % apart.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.inference.models.shipped import shipped_dir
from tests.reference.tiny_model import make_samples

if TYPE_CHECKING:
    from clawrl_gym.core.types import Sample
    from clawrl_gym.trainers.updates.learner import Learner

pytestmark = pytest.mark.gpu
LENGTHS = [5, 30, 17, 60, 9, 28] * 4


def make_learner(device: Literal["cpu", "cuda"], **form: object) -> Learner:
    from clawrl_gym.trainers.updates.learner import Learner

    config = LearnerConfig.model_validate({"lr": 1e-3, "warmup_steps": 0} | form)
    unbounded = {"token_ratio_max": None, "sequence_ratio_max": None}  # the samples are random
    trainer = TrainerConfig.model_validate(
        {"steps": 10, "token_ratio_min": 0, "sequence_ratio_min": 0} | unbounded
    )
    return Learner(trainer, config, str(shipped_dir()), 0, device)


def on_policy(learner: Learner) -> list[Sample]:
    """Samples as if the learner itself had sampled them."""
    import torch

    from clawrl_gym.trainers.models.packing import make_packs

    samples = []
    for sample in make_samples(LENGTHS):
        (pack,) = make_packs([sample], 10_000)
        with torch.no_grad():
            known = iter(learner.model.score(pack).logprobs_M.tolist())
        samples.append(
            replace(sample, logprobs_T=[next(known) if m else 0.0 for m in sample.mask_T])
        )
    return samples


@pytest.mark.parametrize(
    ("precision", "most", "mean", "norm", "cosine"),
    [("auto", 1e-3, 1e-4, 1e-3, 0.99), ("bfloat16", 0.5, 0.1, 0.05, 0.9)],
)
def test_logprobs_and_updates_are_those_of_the_cpu(
    precision: str, most: float, mean: float, norm: float, cosine: float
) -> None:
    """The shipped model is float32, and so is `auto` then; TF32 alone would be 1e-2 apart."""
    import torch

    cpu, cuda = make_learner("cpu"), make_learner("cuda", precision=precision)
    assert {p.device.type for p in cuda.model.net.parameters()} == {"cuda"}
    samples = on_policy(cpu)
    logprobs = [
        torch.tensor([p for s in each for p, m in zip(s.logprobs_T, s.mask_T, strict=True) if m])
        for each in (samples, on_policy(cuda))
    ]
    apart = (logprobs[0] - logprobs[1]).abs()
    assert apart.max() < most
    assert apart.mean() < mean
    moves, norms = [], []
    for learner in (cpu, cuda):
        before = {name: tensor.clone() for name, tensor in learner.model.state().items()}
        norms.append(learner.step(samples, 0).metrics["learner/grad_norm"])
        after = learner.model.state().items()
        moves.append(torch.cat([(t - before[name]).flatten().cpu() for name, t in after]))
    assert norms[1] == pytest.approx(norms[0], rel=norm)
    # Adam's first step has one size whatever the gradient's: signs of the smallest ones are noise
    assert torch.nn.functional.cosine_similarity(moves[0], moves[1], dim=0) > cosine


def test_a_checkpoint_from_the_gpu_goes_on_there_and_loads_on_the_cpu(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    first = make_learner("cuda")
    first.step(on_policy(first), 0)
    first.save_checkpoint(str(tmp_path / "000001"))
    second = make_learner("cuda")
    second.load_checkpoint(str(tmp_path / "000001"))
    for name, tensor in first.model.state().items():
        assert torch.equal(second.model.state()[name], tensor), name
    moments = [s["exp_avg"] for s in second.weights.optimizer.state.values()]
    assert {moment.device.type for moment in moments} == {"cuda"}
    net = AutoModelForCausalLM.from_pretrained(tmp_path / "000001").state_dict()
    for name, tensor in first.model.state().items():
        assert torch.equal(net[name], tensor.cpu()), name
    second.step(on_policy(second), 1)
    assert second.updates == 2


FORMS: dict[str, dict[str, object]] = {
    "adapter": {"adapter": {"rank": 8}, "base": "bfloat16"},
    "nf4": {"adapter": {"rank": 8}, "base": "nf4"},
    "offload": {"offload": True},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("checkpoint_layers", [False, True])
def test_large_models_forms_learn(form: str, checkpoint_layers: bool) -> None:
    """The weights beside an adapter stay; of all weights only those in bfloat16 are on the GPU."""
    import torch

    if form == "nf4":
        pytest.importorskip("bitsandbytes")
    learner = make_learner("cuda", checkpoint_layers=checkpoint_layers, **FORMS[form])
    samples = on_policy(learner)
    before = {name: tensor.clone() for name, tensor in learner.model.state().items()}
    for version in range(2):
        assert learner.step(samples, version).metrics["learner/grad_norm"] > 0
    after = learner.model.state()
    assert any(not torch.equal(tensor, after[name]) for name, tensor in before.items())
    trained = learner.weights.optimizer.param_groups[0]["params"]
    assert {p.device.type for p in trained} == {"cpu" if form == "offload" else "cuda"}
    assert {p.dtype for p in trained} == {torch.float32}


@pytest.mark.nightly
@pytest.mark.parametrize("checkpoint_layers", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_memory_is_that_of_the_arithmetic(
    form: str, checkpoint_layers: bool, tmp_path: Path
) -> None:
    """Four layers of Qwen3-0.6B, two steps of two packs; CUDA's own is not in it."""
    import torch

    from bench.learner_memory import samples, write_model
    from clawrl_gym.inference.models.shape import shape_of_folder
    from clawrl_gym.trainers.models.memory import GIB, learner_memory
    from clawrl_gym.trainers.updates.learner import Learner

    write_model(str(tmp_path), layers=4)
    config = LearnerConfig.model_validate(FORMS[form] | {"checkpoint_layers": checkpoint_layers})
    trainer = TrainerConfig(max_tokens_per_pack=4096)
    learner = Learner(trainer, config, str(tmp_path), 0, "cuda")
    torch.cuda.reset_peak_memory_stats()
    for version in range(2):
        learner.step(samples(2 * 4096), version)
    measured = torch.cuda.max_memory_allocated() / GIB
    expected = learner_memory(trainer, config, shape_of_folder(tmp_path), "cuda").total
    assert measured == pytest.approx(expected, rel=0.15)
