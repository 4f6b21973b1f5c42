"""The learner learns what is rewarded, reports what it saw, and resumes bit by bit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.schedule import learning_rate
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3

LENGTHS = [5, 30, 17, 4, 17, 60, 9, 28]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def make_learner(
    model_dir: str,
    temperature: float = 1.0,
    adapter: dict[str, object] | None = None,
    **trainer: object,
) -> Learner:
    settings = TrainerConfig.model_validate({"steps": 10, "max_tokens_per_pack": 128} | trainer)
    learner = LearnerConfig.model_validate({"lr": 1e-2, "adapter": adapter})
    return Learner(settings, learner, model_dir, 0, "cpu", temperature)


def on_policy(learner: Learner, samples: list[Sample]) -> list[Sample]:
    """The samples as if the learner itself had sampled them."""
    out = []
    for sample in samples:
        (pack,) = make_packs([sample], 10_000)
        with torch.no_grad():
            known = iter(learner.model.score(pack).logprobs_M.tolist())
        out.append(replace(sample, logprobs_T=[next(known) if m else 0.0 for m in sample.mask_T]))
    return out


def test_a_review_reads_what_a_step_would_and_changes_nothing(model_dir: str) -> None:
    learner = make_learner(model_dir)
    samples = on_policy(learner, make_samples(LENGTHS))
    review = learner.review(samples)
    for sample, logprobs in zip(samples, review.logprobs, strict=True):
        known = [p for p, m in zip(sample.logprobs_T, sample.mask_T, strict=True) if m]
        assert logprobs == pytest.approx(known, abs=1e-4)
    entropy = learner.step(samples, 0).metrics["learner/entropy"]
    assert review.entropy == pytest.approx(entropy, rel=1e-4)
    assert learner.review([]).logprobs == []


@pytest.mark.parametrize("algorithm", ["grpo", "binary", "hybrid"])
@pytest.mark.parametrize("adapter", [None, {"rank": 4}], ids=["weights", "adapter"])
def test_steps_raise_the_probability_of_rewarded_tokens(
    model_dir: str, adapter: dict[str, object] | None, algorithm: str
) -> None:
    learner = make_learner(model_dir, adapter=adapter, algorithm=algorithm)
    samples = [
        replace(s, advantages_T=[(1.0 if n % 2 else -1.0) if m else 0.0 for m in s.mask_T])
        for n, s in enumerate(make_samples(LENGTHS))
    ]
    before = on_policy(learner, samples)
    for version in range(4):
        stats = learner.step(on_policy(learner, samples), version)
        assert stats.metrics["learner/grad_norm"] > 0
    after = on_policy(learner, samples)
    gain = [sum(b.logprobs_T) - sum(a.logprobs_T) for a, b in zip(before, after, strict=True)]
    assert sum(gain[1::2]) > 1.0
    assert sum(gain[0::2]) < -1.0


def weights_of(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in learner.model.net.parameters()])


def moved(learner: Learner, samples: list[Sample], version: int = 0) -> float:
    """How far one update moves the weights."""
    before = weights_of(learner).clone()
    metrics = learner.step(on_policy(learner, samples), version).metrics
    assert metrics["learner/masked_share"] == 0
    return float((weights_of(learner) - before).norm())


def weak(samples: list[Sample], strength: float) -> list[Sample]:
    """The same advantages from weaker evidence."""
    return [
        replace(s, advantages_T=[strength * a for a in s.advantages_T], strength=strength)
        for s in samples
    ]


@pytest.mark.parametrize("strength", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("minibatches", [1, 2])
def test_an_update_moves_as_far_as_its_evidence_is_strong(
    model_dir: str, strength: float, minibatches: int
) -> None:
    """Adam alone would make both steps equally long."""
    samples = make_samples([40, 30, 20, 30])
    clear = moved(make_learner(model_dir, minibatches=minibatches), samples)
    learner = make_learner(model_dir, minibatches=minibatches)
    assert moved(learner, weak(samples, strength)) == pytest.approx(strength * clear, rel=1e-2)
    alike = make_learner(model_dir, minibatches=minibatches)
    small = [replace(s, strength=1.0) for s in weak(samples, strength)]
    assert moved(alike, small) == pytest.approx(clear, rel=5e-2)


@pytest.mark.parametrize("history", [1.0, 0.1])
def test_weak_evidence_is_weak_after_whatever_came_before(model_dir: str, history: float) -> None:
    """What the last batch brings is half of how far it and its opposite end apart."""
    past, last = make_samples([40, 30]), make_samples([30, 40], seed=1)
    opposite = [replace(s, advantages_T=[-a for a in s.advantages_T]) for s in last]

    def brought(strength: float) -> torch.Tensor:
        ends = []
        for batch in (weak(last, strength), weak(opposite, strength)):
            learner = make_learner(model_dir)
            for version in range(3):
                moved(learner, weak(past, history), version)
            moved(learner, batch, 3)
            ends.append(weights_of(learner).clone())
        return (ends[0] - ends[1]) / 2

    assert float(brought(0.1).norm()) == pytest.approx(0.1 * float(brought(1.0).norm()), rel=0.05)


def test_clear_evidence_is_adamw_bit_by_bit(model_dir: str) -> None:
    learner, plain = make_learner(model_dir), make_learner(model_dir)
    config = plain.config
    adam = torch.optim.AdamW(
        [{"params": [p], "weight_decay": config.weight_decay if p.dim() >= 2 else 0.0}
         for p in plain.model.net.parameters()], lr=config.lr, betas=config.betas, fused=True,
    )  # fmt: skip
    for version in range(3):
        samples = on_policy(learner, make_samples(LENGTHS, seed=version))
        learner.step(samples, version)
        for parameter, other in zip(
            plain.model.net.parameters(), learner.model.net.parameters(), strict=True
        ):
            assert other.grad is not None
            parameter.grad = other.grad.clone()  # clipped already
        for group in adam.param_groups:
            group["lr"] = learning_rate(version, 10, config)
        adam.step()
        assert torch.equal(weights_of(learner), weights_of(plain))


def test_a_step_tells_how_strong_its_evidence_is(model_dir: str) -> None:
    clear, faint = make_samples([20, 20])
    mixed = [clear, *weak([faint], 0.1)]
    sizes = [sum(map(abs, sample.advantages_T)) for sample in mixed]
    metrics = make_learner(model_dir).step(mixed, 0).metrics
    assert metrics["learner/strength"] == pytest.approx((sizes[0] + 0.1 * sizes[1]) / sum(sizes))
    assert make_learner(model_dir).step([clear], 0).metrics["learner/strength"] == 1.0


def test_tokens_and_sequences_that_another_policy_sampled_are_masked(model_dir: str) -> None:
    learner = make_learner(model_dir)
    samples = on_policy(learner, make_samples([20, 30, 25, 40]))
    far = [replace(s, logprobs_T=[p + shift for p in s.logprobs_T])
           for s, shift in zip(samples, (0.0, 1.6, -1.6, 0.0), strict=True)]  # fmt: skip
    one = far[3].mask_T.index(True)
    far[3].logprobs_T[one] += 3.0
    tokens = [sum(sample.mask_T) for sample in far]
    metrics = learner.step(far, 0).metrics
    whole = sum(tokens)
    assert metrics["learner/masked_sequences_share"] == pytest.approx(
        (tokens[1] + tokens[2]) / whole
    )
    assert metrics["learner/masked_share"] == pytest.approx((tokens[1] + tokens[2] + 1) / whole)
    clear = [replace(s, advantages_T=[0.0] * len(s.ids_T)) if at in (1, 2) else s
             for at, s in enumerate(samples)]  # fmt: skip
    clear[3].advantages_T[one] = 0.0
    other = make_learner(model_dir)
    other.step(clear, 0)
    torch.testing.assert_close(weights_of(learner), weights_of(other), rtol=1e-4, atol=1e-5)


def test_a_step_reports_what_it_saw(model_dir: str) -> None:
    learner = make_learner(model_dir)
    fresh = on_policy(learner, make_samples([20, 30], version=5))
    stale = make_samples([25], seed=1, version=3)
    stats = learner.step(fresh + stale, 5)
    metrics = stats.metrics
    assert stats.tokens == 75
    assert metrics["logprob_gap/max"] < 1e-4  # only the fresh samples, which fit exactly
    assert metrics["staleness/mean"] == pytest.approx(2 / 3)
    assert metrics["staleness/max"] == 2.0
    assert metrics["learner/clip_share"] == 0.0
    assert 0 < metrics["learner/entropy"] < math.log(64)
    assert metrics["learner/tokens_per_s"] > 0
    assert metrics["learner/lr"] == learning_rate(5, 10, learner.config)
    assert "learner/kl" not in metrics
    assert all(math.isfinite(value) for value in metrics.values())


def test_the_gap_of_known_logprobs_is_measured(model_dir: str) -> None:
    learner = make_learner(model_dir)
    shifted = [
        replace(s, logprobs_T=[p - 0.25 for p in s.logprobs_T])
        for s in on_policy(learner, make_samples([20, 30]))
    ]
    metrics = learner.step(shifted, 0).metrics
    assert metrics["logprob_gap/mean"] == pytest.approx(0.25, abs=1e-4)


def test_the_order_of_samples_changes_nothing(model_dir: str) -> None:
    samples = make_samples(LENGTHS)
    weights = []
    for batch in (samples, samples[::-1]):
        learner = make_learner(model_dir)
        learner.step(batch, 0)
        weights.append(torch.cat([p.flatten() for p in learner.model.state().values()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-5)


def test_minibatches_use_the_policy_before_the_update_as_proximal(model_dir: str) -> None:
    learner = make_learner(
        model_dir, minibatches=4, loss={"options": {"clip_low": 0.01, "clip_high": 0.01}}
    )
    metrics = learner.step(on_policy(learner, make_samples(LENGTHS)), 0).metrics
    assert metrics["logprob_gap/max"] < 1e-4  # measured before the first of the four
    assert metrics["learner/clip_share"] > 0.05  # the later ones have moved away


def test_a_reference_gives_a_kl_that_starts_at_zero(model_dir: str) -> None:
    learner = make_learner(model_dir, kl_coef=0.1)
    samples = make_samples(LENGTHS)
    assert learner.step(samples, 0).metrics["learner/kl"] == pytest.approx(0.0, abs=1e-6)
    assert learner.step(samples, 1).metrics["learner/kl"] > 1e-4


@pytest.mark.parametrize("samples", [[], [replace(make_samples([6])[0], mask_T=[False] * 6)]])
def test_a_batch_without_tokens_changes_no_weight(model_dir: str, samples: list[Sample]) -> None:
    learner = make_learner(model_dir)
    before = {name: tensor.clone() for name, tensor in learner.model.state().items()}
    stats = learner.step(samples, 0)
    assert stats.tokens == 0
    assert "learner/loss" not in stats.metrics
    assert all(torch.equal(before[n], t) for n, t in learner.model.state().items())


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(model_dir: str) -> None:
    learner = make_learner(model_dir)
    before = {name: tensor.clone() for name, tensor in learner.model.state().items()}
    (sample,) = make_samples([12])
    endless = [math.inf if m else 0.0 for m in sample.mask_T]
    metrics = learner.step([replace(sample, advantages_T=endless)], 0).metrics
    assert metrics["learner/skipped"] == 1.0
    assert all(torch.equal(before[n], t) for n, t in learner.model.state().items())
    assert learner.step(on_policy(learner, [sample]), 1).metrics["learner/grad_norm"] > 0


@pytest.mark.parametrize("minibatches", [1, 3])
def test_a_resumed_learner_goes_on_bit_by_bit(
    model_dir: str, tmp_path: Path, minibatches: int
) -> None:
    batches = [make_samples(LENGTHS, seed) for seed in range(4)]
    straight = make_learner(model_dir, minibatches=minibatches)
    for version, batch in enumerate(batches):
        straight.step(batch, version)
    first = make_learner(model_dir, minibatches=minibatches)
    for version in (0, 1):
        first.step(batches[version], version)
    first.save_checkpoint(str(tmp_path / "2"))
    second = make_learner(model_dir, minibatches=minibatches)
    second.load_checkpoint(str(tmp_path / "2"))
    rates = [second.step(batches[v], v).metrics["learner/lr"] for v in (2, 3)]
    assert rates[1] < rates[0]
    for name, tensor in straight.model.state().items():
        assert torch.equal(second.model.state()[name], tensor), name


@pytest.mark.parametrize("tied", [True, False])
def test_published_weights_load_as_a_transformers_model(tmp_path: Path, tied: bool) -> None:
    from transformers import AutoModelForCausalLM

    folder = write_tiny_qwen3(tmp_path / "model", tied=tied)
    learner = make_learner(folder)
    first = load_file(tmp_path / "model" / "model.safetensors")
    learner.step(make_samples(LENGTHS), 0)
    learner.save_weights(folder)
    learner.save_weights(folder)  # replaces the file
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert saved.keys() == first.keys()
    assert ("lm_head.weight" in saved) == (not tied)
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, tensor in learner.model.net.state_dict().items():
        assert torch.equal(net.state_dict()[name], tensor), name
    assert not list((tmp_path / "model").glob(".*"))


def test_a_checkpoint_replaces_the_one_of_its_name(model_dir: str, tmp_path: Path) -> None:
    learner = make_learner(model_dir)
    learner.save_checkpoint(str(tmp_path / "last"))
    learner.step(make_samples(LENGTHS), 0)
    learner.save_checkpoint(str(tmp_path / "last"))
    other = make_learner(model_dir)
    other.load_checkpoint(str(tmp_path / "last"))
    assert other.updates == 1
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_a_crash_between_the_renames_of_a_checkpoint_loses_nothing(
    model_dir: str, tmp_path: Path
) -> None:
    learner = make_learner(model_dir)
    learner.save_checkpoint(str(tmp_path / "last"))
    (tmp_path / "last").rename(tmp_path / ".last.old")
    learner.step(make_samples(LENGTHS), 0)
    learner.save_checkpoint(str(tmp_path / "new"))
    (tmp_path / "new").rename(tmp_path / ".last.partial")
    other = make_learner(model_dir)
    other.load_checkpoint(str(tmp_path / "last"))
    assert other.updates == 1
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_a_half_written_checkpoint_beside_a_whole_one_is_ignored(
    model_dir: str, tmp_path: Path
) -> None:
    learner = make_learner(model_dir)
    learner.save_checkpoint(str(tmp_path / "last"))
    (tmp_path / ".last.partial").mkdir()
    (tmp_path / ".last.partial" / "model.safetensors").write_bytes(b"half")
    make_learner(model_dir).load_checkpoint(str(tmp_path / "last"))
    learner.save_checkpoint(str(tmp_path / "last"))
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_half_a_checkpoint_is_refused(model_dir: str, tmp_path: Path) -> None:
    learner = make_learner(model_dir)
    learner.save_checkpoint(str(tmp_path / "last"))
    (tmp_path / "last" / "learner" / "state.pt").unlink()
    with pytest.raises(TrainerError, match=r"no learner/state\.pt"):
        learner.load_checkpoint(str(tmp_path / "last"))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="loading the learner's model"):
        make_learner(str(tmp_path))


def test_greedy_sampling_cannot_be_learned_from(model_dir: str) -> None:
    with pytest.raises(TrainerError, match="temperature"):
        make_learner(model_dir, temperature=0.0)


def test_samples_of_several_temperatures_are_read_each_at_its_own(model_dir: str) -> None:
    own = make_samples(LENGTHS[:3])
    heated = [
        replace(sample, temperature=temperature)
        for sample, temperature in zip(own, (0.5, None, 2.0), strict=True)
    ]
    (pack,) = make_packs(heated, 10_000)
    together = PackedModel(model_dir, "cpu", temperature=1.0).score(pack).logprobs_M
    for row, (sample, temperature) in enumerate(zip(own, (0.5, 1.0, 2.0), strict=True)):
        (alone,) = make_packs([sample], 10_000)
        expected = PackedModel(model_dir, "cpu", temperature=temperature).score(alone).logprobs_M
        at = torch.from_numpy(pack.rows_M == pack.origins.index(row))
        torch.testing.assert_close(together[at], expected, rtol=1e-5, atol=1e-5)
