"""Every objective on every learner has the loss and the gradient of its equation, which stands here
a second time: token by token, in float64, on whole logits of plain transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.weights.adapter_files import BEFORE_NAMES
from clawrl_gym.trainers.models import adapter, nf4
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import write_tiny_qwen3
from tests.trainers.distill_samples import draw_ids, one_turn, two_turns

RANK, ALPHA, TEMPERATURE, DECAY, K = 4, 8, 0.8, 0.6, 5
STEPS = 2
"""Before the one that is compared, so that no two of policy, first weights and average are one."""
LEARNERS: dict[str, dict[str, object]] = {
    "weights": {},
    "adapter": {"adapter": {"rank": RANK, "alpha": ALPHA}},
    "layers made again": {
        "adapter": {"rank": RANK, "alpha": ALPHA}, "checkpoint_layers": True,
    },
}  # fmt: skip
ROUNDED: dict[str, dict[str, object]] = {
    "offloaded": {"offload": True, "checkpoint_layers": True},
    "4 bits": {"adapter": {"rank": RANK, "alpha": ALPHA}, "base": "nf4"},
}
"""Those that compute in bfloat16."""
TOPK = [("student", "reverse"), ("teacher", "forward"), ("student", "js"), ("teacher", "reverse")]
OBJECTIVES: dict[str, dict[str, Any]] = {
    "grpo": {"algorithm": "grpo"},
    "binary": {"algorithm": "binary"},
    "grpo by sequences": {"algorithm": "grpo", "reduction": "sequence_mean"},
    "grpo, kl": {"algorithm": "grpo", "kl_coef": 0.3},
    "grpo, corrected kl": {"algorithm": "grpo", "kl_coef": 0.3, "kl_correction": True},
    "hybrid, sapo": {
        "algorithm": "hybrid", "distillation": {"form": "sampled"}, "loss": {"type": "sapo"},
    },
    **{
        f"hybrid, dppo, {kind}": {
            "algorithm": "hybrid", "kl_coef": 0.3, "distillation": {"form": "sampled"},
            "loss": {
                "type": "dppo",
                "options": {"divergence": kind, "threshold": 0.01, "ratio_cap": None},
            },
        }
        for kind in ("tv", "kl")
    },
    **{
        f"{algorithm}, {teacher}": {
            "algorithm": algorithm,
            "distillation": {"form": "sampled", "teacher": teacher, "average_decay": DECAY},
        }
        for algorithm in ("opd", "hybrid")
        for teacher in ("policy", "frozen", "average")
    },
    **{
        f"{algorithm}, topk, {of}, {kind}": {
            "algorithm": algorithm,
            "distillation": {
                "form": "topk", "top_k": K, "top_k_of": of, "divergence": kind,
                "teacher": "frozen" if kind == "js" else "average",
                "average_decay": DECAY,
            },
        }
        for algorithm in ("opd", "hybrid")
        for of, kind in TOPK
    },
    "hybrid, kl": {
        "algorithm": "hybrid", "kl_coef": 0.3, "opd_weight": 0.5,
        "distillation": {"form": "sampled"},
    },
}  # fmt: skip
NO_MASKS = {
    "token_ratio_min": 0, "token_ratio_max": None,
    "sequence_ratio_min": 0, "sequence_ratio_max": None,
}  # fmt: skip
Weights = Mapping[str, Tensor]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def make_learner(model_dir: str, learner: str, objective: str, **more: object) -> Learner:
    options = {"steps": 10, **NO_MASKS, **OBJECTIVES[objective], **more}
    form = (LEARNERS | ROUNDED)[learner]
    config = {"lr": 1e-2, "warmup_steps": 0, "max_grad_norm": 1e9} | form
    trainer = TrainerConfig.model_validate(options)
    return Learner(trainer, LearnerConfig.model_validate(config), model_dir, 0, "cpu", TEMPERATURE)


def batch(algorithm: str, seed: int) -> list[Sample]:
    """Rewards where the algorithm has them, distillation targets where it follows them; both in one
    sample."""
    hint, reply = (draw_ids(9, 100 + seed),), draw_ids(11, seed)
    rewarded = [
        one_turn(draw_ids(6 + n, 10 * seed + n), advantage=advantage)
        for n, advantage in enumerate((1.0, -0.7, 0.4))
    ]
    taught = [one_turn(reply, hint, distill=0.8), two_turns()]
    if algorithm == "opd":
        return taught
    if algorithm == "hybrid":
        return [*rewarded, *taught, one_turn(reply[::-1], hint, advantage=-1.0)]
    return rewarded


def trained(learner: Learner) -> dict[str, Tensor]:
    """A copy of what the learner steps on."""
    net = learner.model.net
    tensors = adapter.trained(net) if learner.model.adapted else dict(net.named_parameters())
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def whole(model_dir: str, own: Weights, begun: Weights | None = None) -> Any:
    """A plain model of the trained weights, or of the first ones with the adapter's added.

    `begun`: the first ones, where they are not as in the files.
    """
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64).eval()
    state = net.state_dict()
    with torch.no_grad():
        for name, tensor in (begun or {}).items():
            state[name].copy_(tensor)
        for name, tensor in own.items():
            if ".lora_A." in name:
                B, target = own[name.replace("lora_A", "lora_B")].double(), _weight_of(name)
                state[target] += ALPHA / RANK * B @ tensor.double()
            elif ".lora_" not in name:
                state[name].copy_(tensor)
    return net


def _weight_of(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".lora_A.", ".").replace(".lora_B.", ".")


def distributions(net: Any, ids: list[int]) -> Tensor:
    """(T, V) log-probs of the token after each."""
    logits: Tensor = net(torch.tensor([ids])).logits[0].double() / TEMPERATURE
    return logits.log_softmax(-1)


def equation(
    config: TrainerConfig, samples: list[Sample], student: Any, teacher: Any, first: Any
) -> Tensor:
    """The loss, with gradient for the student alone."""
    means, everything = [], []
    for sample in samples:
        student_TV = distributions(student, sample.ids_T)
        with torch.no_grad():
            first_TV = distributions(first, sample.ids_T)
        values = [
            _of_token(config, sample, at, student_TV[at - 1], teacher, first_TV[at - 1])
            for at, sampled in enumerate(sample.mask_T)
            if sampled
        ]
        everything += values
        means.append(torch.stack(values).mean())
    by_sequences = config.reduction == "sequence_mean"
    return torch.stack(means if by_sequences else everything).mean()


def _of_token(
    config: TrainerConfig, sample: Sample, at: int, lp_V: Tensor, teacher: Any, first_V: Tensor
) -> Tensor:
    token = sample.ids_T[at]
    lp, old = lp_V[token], lp_V[token].detach()
    importance = (old - sample.logprobs_T[at]).exp().clamp(max=config.tis_cap)
    ratio = (lp - old).exp()
    value = _pushed(config, lp, old, sample.logprobs_T[at], sample.advantages_T[at])
    if sample.distill_T and sample.distill_T[at]:
        told_V = _taught(sample, at, teacher)
        if config.distillation.form == "topk":
            value = value + sample.distill_T[at] * _divergence(config, lp_V, told_V)
        else:
            clip = config.distillation.gap_clip
            gap = (told_V[token] - old).clamp(-clip, clip)
            pull = sample.distill_T[at] * float(gap)
            value = value + _pushed(config, lp, old, sample.logprobs_T[at], pull)
    if config.kl_coef:
        log_ratio = first_V[token] - lp
        k3 = log_ratio.exp() - 1 - log_ratio
        value = value + config.kl_coef * k3 * (importance * ratio if config.kl_correction else 1)
    return value


def _pushed(config: TrainerConfig, lp: Tensor, old: Tensor, mu: float, advantage: float) -> Tensor:
    """The policy-gradient term of a token; where lp is old, ppo has nothing to clip."""
    options: dict[str, Any] = config.loss.options
    importance = (old - mu).exp().clamp(max=config.tis_cap)
    ratio = (lp - old).exp()
    if config.loss.type == "sapo":
        tau = float(options["tau_pos"] if advantage > 0 else options["tau_neg"])
        return -importance * advantage * 4 / tau * torch.sigmoid(tau * (ratio - 1))
    if config.loss.type == "dppo":
        p, q = float(old.exp()), math.exp(mu)
        apart = {
            "tv": abs(p - q),
            "kl": q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)),
        }[options["divergence"]]
        keeps = apart <= options["threshold"] or (p - q) * advantage <= 0
        return -keeps * advantage * (lp - mu).exp()
    return -importance * ratio * advantage


@torch.no_grad()
def _taught(sample: Sample, at: int, teacher: Any) -> Tensor:
    target = next(one for one in sample.distill_targets if one.start <= at < one.start + one.length)
    (prompt,) = target.prompts
    ids = [*prompt, *sample.ids_T[target.start : at]]
    return distributions(teacher, ids)[-1]


def _divergence(config: TrainerConfig, lp_V: Tensor, told_V: Tensor) -> Tensor:
    of_student = config.distillation.top_k_of == "student"
    ids = (lp_V.detach() if of_student else told_V).topk(K).indices

    def outcomes(logprobs_V: Tensor) -> Tensor:
        named = logprobs_V.exp()[ids]
        return torch.cat([named, 1 - named.sum(0, keepdim=True)])

    p, q = outcomes(lp_V), outcomes(told_V)
    m = (p + q) / 2
    return {
        "reverse": (p * (p / q).log()).sum(),
        "forward": (q * (q / p).log()).sum(),
        "js": ((p * (p / m).log()).sum() + (q * (q / m).log()).sum()) / 2,
    }[config.distillation.divergence]


def expected_gradient(own: Weights, student: Any) -> dict[str, Tensor]:
    """Gradient of the trained weights; an adapter's follows by the chain rule from its weight's."""
    of_whole = {name: parameter.grad for name, parameter in student.named_parameters()}
    gradients = {}
    for name in own:
        if ".lora_A." in name:
            B, gradient = own[name.replace("lora_A", "lora_B")], of_whole[_weight_of(name)]
            gradients[name] = ALPHA / RANK * B.double().T @ gradient
        elif ".lora_B." in name:
            A, gradient = own[name.replace("lora_B", "lora_A")], of_whole[_weight_of(name)]
            gradients[name] = ALPHA / RANK * gradient @ A.double().T
        else:
            gradients[name] = of_whole[name]
    return gradients


def gradient_of(learner: Learner) -> dict[str, Tensor]:
    if learner.config.offload:  # of the float32 weights that stand for those of the model
        names = sorted(learner.model.net.named_parameters(), key=lambda named: named[1].dim() < 2)
        groups = learner.optimizer.param_groups
        stepped = [parameter for group in groups for parameter in group["params"]]
        pairs = zip(names, stepped, strict=True)
        return {name: p.grad for (name, _), p in pairs if p.grad is not None}
    named = {
        BEFORE_NAMES * learner.model.adapted + name.replace(".default.", "."): p.grad
        for name, p in learner.model.net.named_parameters()
        if p.requires_grad
    }
    return {name: gradient for name, gradient in named.items() if gradient is not None}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", LEARNERS)
def test_loss_and_gradient_are_those_of_the_equation(
    model_dir: str, kind: str, objective: str
) -> None:
    learner = make_learner(model_dir, kind, objective)
    algorithm = learner.trainer.algorithm
    average = trained(learner)
    for version in range(STEPS):
        learner.step(batch(algorithm, version), version)
        now = trained(learner)
        average = {name: DECAY * average[name] + (1 - DECAY) * now[name] for name in now}
    own, samples = trained(learner), batch(algorithm, STEPS)
    student, first = whole(model_dir, own), whole(model_dir, {})
    teachers = {"policy": student, "frozen": first, "average": whole(model_dir, average)}
    teacher = teachers[learner.trainer.distillation.teacher]
    loss = equation(learner.trainer, samples, student, teacher, first)
    loss.backward()
    metrics = learner.step(samples, STEPS).metrics
    assert metrics["learner/loss"] == pytest.approx(loss.item(), rel=1e-4, abs=1e-5)
    got, expected = gradient_of(learner), expected_gradient(own, student)
    assert got.keys() == expected.keys()
    assert metrics["learner/grad_norm"] > 1e-3
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name].double(), gradient, rtol=2e-3, atol=2e-5)


def _whole_vector(gradients: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([gradients[name].flatten().double() for name in sorted(gradients)])


@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        (kind, objective)
        for kind in ROUNDED
        for objective, options in OBJECTIVES.items()
        # a moving average of weights in bfloat16 would be lost in rounding, and is refused
        if kind != "offloaded" or options.get("distillation", {}).get("teacher") != "average"
    ],
)
def test_rounded_weights_learn_in_the_direction_of_the_equation(
    model_dir: str, kind: str, objective: str
) -> None:
    if "base" in ROUNDED[kind]:
        pytest.importorskip(nf4.PACKAGE)
    learner = make_learner(model_dir, kind, objective)
    begun = {} if learner.config.offload else learner.model.state()
    algorithm = learner.trainer.algorithm
    average = trained(learner)
    for version in range(STEPS):
        learner.step(batch(algorithm, version), version)
        now = trained(learner)
        average = {name: DECAY * average[name] + (1 - DECAY) * now[name] for name in now}
    own, samples = trained(learner), batch(algorithm, STEPS)
    student, first = whole(model_dir, own, begun), whole(model_dir, {}, begun)
    teachers = {"policy": student, "frozen": first, "average": whole(model_dir, average, begun)}
    teacher = teachers[learner.trainer.distillation.teacher]
    loss = equation(learner.trainer, samples, student, teacher, first)
    loss.backward()
    metrics = learner.step(samples, STEPS).metrics
    assert metrics["learner/loss"] == pytest.approx(loss.item(), rel=0.05, abs=0.01)
    got = _whole_vector(gradient_of(learner))
    expected = _whole_vector(expected_gradient(own, student))
    # rounding changes which tokens are a teacher's most likely ones, and which are blocked
    least = 0.9 if "topk, teacher" in objective or "dppo" in objective else 0.99
    assert float(got @ expected / (got.norm() * expected.norm())) > least
    assert float(got.norm() / expected.norm()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("objective", ["grpo, kl", "grpo, corrected kl", "hybrid, kl"])
@pytest.mark.parametrize("kind", LEARNERS)
def test_the_kl_term_leads_back_to_the_first_weights(
    model_dir: str, kind: str, objective: str
) -> None:
    learner = make_learner(model_dir, kind, objective, kl_coef=5.0)
    samples = batch("grpo", 0)
    for version in range(3):
        learner.step(samples, version)
    silent = [replace(s, advantages_T=[0.0] * len(s.ids_T)) for s in samples]
    distances = [learner.step(silent, 3 + version).metrics["learner/kl"] for version in range(4)]
    assert distances[-1] < 0.9 * distances[0]


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_moving_average_goes_on_from_a_checkpoint_bit_by_bit(
    model_dir: str, tmp_path: Path, kind: str
) -> None:
    learner, again = (make_learner(model_dir, kind, "opd, average") for _ in range(2))
    for version in range(3):
        if version == 2:
            learner.save_checkpoint(str(tmp_path / "2"))
        learner.step(batch("opd", version), version)
    again.load_checkpoint(str(tmp_path / "2"))
    again.step(batch("opd", 2), 2)
    one, other = trained(learner), trained(again)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert learner.average is not None
    assert again.average is not None
    pairs = zip(learner.average.tensors, again.average.tensors, strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)


@pytest.mark.parametrize(
    ("kind", "form"), [("weights", "adapter"), ("adapter", "weights")], ids=["more", "fewer"]
)
def test_the_average_of_other_weights_is_refused(model_dir: str, kind: str, form: str) -> None:
    averages = [make_learner(model_dir, name, "opd, average").average for name in (kind, form)]
    assert averages[0] is not None
    assert averages[1] is not None
    with pytest.raises(TrainerError, match=r"moving average of .* other weights"):
        averages[0].load(averages[1].tensors)


def test_weights_are_back_in_their_place_when_the_teacher_has_spoken(model_dir: str) -> None:
    learner = make_learner(model_dir, "weights", "opd, average")
    learner.step(batch("opd", 0), 0)
    before = trained(learner)
    assert learner.average is not None
    with learner.average.in_place():
        assert any(not torch.equal(before[name], t) for name, t in trained(learner).items())
    assert all(torch.equal(before[name], tensor) for name, tensor in trained(learner).items())
