"""The learner follows its teacher, in every form, and says of each term how much of it ran."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.plugins import LEARNERS, LOSSES
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.objectives import objectives
from clawrl_gym.trainers.simulated import SimulatedLearner
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import VOCAB, make_samples, write_tiny_qwen3
from tests.support.tiny_models import make_random_model
from tests.trainers.distill_samples import draw_ids, one_turn, two_turns

PROMPT = draw_ids(7, 99)
REPLY = draw_ids(11, 1)
FORMS = [{"form": "sampled"}] + [
    {"form": "topk", "top_k": 8, "top_k_of": of, "divergence": divergence}
    for of, divergence in (("student", "reverse"), ("teacher", "forward"), ("student", "js"))
]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def make_learner(
    model_dir: str,
    algorithm: str = "opd",
    lr: float = 1e-2,
    temperature: float = 1.0,
    adapter: dict[str, object] | None = None,
    **more: object,
) -> Learner:
    options = {"algorithm": algorithm, "steps": 10, "max_tokens_per_pack": 128} | more
    learner = LearnerConfig.model_validate({"lr": lr, "warmup_steps": 0, "adapter": adapter})
    return Learner(TrainerConfig.model_validate(options), learner, model_dir, 0, "cpu", temperature)


def logprobs(learner: Learner, sample: Sample) -> list[float]:
    (pack,) = make_packs([sample], 10_000)
    with torch.no_grad():
        return learner.model.score(pack).logprobs_M.tolist()


def on_policy(learner: Learner, sample: Sample) -> Sample:
    known = iter(logprobs(learner, sample))
    return replace(sample, logprobs_T=[next(known) if m else 0.0 for m in sample.mask_T])


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.model.state().items()}


def most_likely(learner: Learner, prompt: list[int]) -> int:
    (pack,) = make_packs([one_turn([0], prompt=prompt)], 10_000)
    return int(learner.model.look(pack, 1, VOCAB).best_ids_MK[0, 0])


def sample_with_hint(model_dir: str, below: bool) -> Sample:
    """One token: the student's favourite, which the teacher would not say, or the reverse."""
    learner = make_learner(model_dir)
    for seed in range(100):
        hint = draw_ids(9, 1000 + seed)
        token = [most_likely(learner, PROMPT if below else hint)]
        student, teacher = (logprobs(learner, one_turn(token, prompt=p))[0] for p in (PROMPT, hint))
        if abs(student - teacher) > 1:
            return on_policy(learner, one_turn(token, (hint,), prompt=PROMPT))
    raise AssertionError("no such token among 100 seeds")


@pytest.mark.parametrize("adapter", [None, {"rank": 4}], ids=["weights", "adapter"])
@pytest.mark.parametrize("teacher", ["policy", "frozen", "average"])
@pytest.mark.parametrize("form", ["sampled", "topk"])
@pytest.mark.parametrize("algorithm", ["opd", "hybrid"])
@pytest.mark.parametrize("below", [True, False])
def test_a_token_that_the_teacher_finds_less_likely_gets_less_likely(
    model_dir: str,
    form: str,
    below: bool,
    teacher: str,
    algorithm: str,
    adapter: dict[str, object] | None,
) -> None:
    """S2: the corrected answer itself must not be reinforced."""
    distillation = {"form": form, "teacher": teacher, "top_k": VOCAB}
    learner = make_learner(
        model_dir, algorithm, 1e-4 if adapter is None else 1e-3, 1.0, adapter,
        distillation=distillation,
    )  # fmt: skip
    sample = sample_with_hint(model_dir, below)
    before = logprobs(learner, sample)[0]
    metrics = learner.step([sample], 0).metrics
    moved = logprobs(learner, sample)[0] - before
    assert (moved < 0) == (metrics["teacher/gap_mean"] < 0) == below
    assert abs(moved) > 1e-4


@pytest.mark.parametrize("distillation", FORMS)
@pytest.mark.parametrize("algorithm", ["grpo", "binary", "opd", "hybrid"])
@pytest.mark.parametrize("backend", LEARNERS.builtin)
def test_every_configured_term_runs_or_is_refused(
    model_dir: str, backend: str, algorithm: str, distillation: dict[str, object]
) -> None:
    """S1: a backend that does not know the objective must not train something else instead."""
    trainer = TrainerConfig.model_validate(
        {"algorithm": algorithm, "distillation": distillation, "kl_coef": 0.1}
    )
    config = LearnerConfig.model_validate({"backend": backend, "simulated_step_s": 0})
    kind = Learner if backend == "torch" else SimulatedLearner
    missing = {name for name in objectives(trainer) if name.startswith("distillation")}
    if missing and backend == "simulated":
        with pytest.raises(ConfigError, match=f"{backend} cannot run {min(missing)}"):
            kind(trainer, config, model_dir, 0, "cpu")
        return
    distils = algorithm in ("opd", "hybrid")
    rewarded = one_turn(REPLY, advantage=1.0)
    taught = one_turn(REPLY, (draw_ids(9, 3),))
    samples = [taught] if algorithm == "opd" else [rewarded, taught] if distils else [rewarded]
    metrics = kind(trainer, config, model_dir, 0, "cpu").step(samples, 0).metrics
    if backend == "torch":
        ran = {name.removeprefix("objective/") for name in metrics if "objective/" in name}
        assert ran == objectives(trainer)
        assert all(metrics[f"objective/{name}"] > 0 for name in ran)


def test_the_terms_of_a_configuration() -> None:
    def of(**options: object) -> set[str]:
        return set(objectives(TrainerConfig.model_validate(options)))

    assert of() == of(algorithm="binary") == {"policy_gradient"}
    assert of(algorithm="opd") == {"distillation_sampled"}
    assert of(algorithm="opd", distillation={"form": "topk"}) == {"distillation_topk"}
    assert of(algorithm="hybrid") == {"policy_gradient", "distillation_sampled"}
    assert of(algorithm="hybrid", opd_weight=0) == {"policy_gradient"}
    assert of(algorithm="hybrid", rl_weight=0, kl_coef=1) == {"distillation_sampled", "kl"}


def test_a_sample_to_distil_is_refused_where_no_teacher_is(model_dir: str) -> None:
    """S1 again: a distillation target is never left out in silence."""
    learner = make_learner(model_dir, "grpo")
    with pytest.raises(TrainerError, match="algorithm=grpo"):
        learner.step([one_turn(REPLY, (PROMPT,))], 0)


@pytest.mark.parametrize("distillation", FORMS)
@pytest.mark.parametrize("minibatches", [1, 3])
def test_hybrid_takes_samples_of_all_kinds_in_one_batch(
    model_dir: str, distillation: dict[str, object], minibatches: int
) -> None:
    """Reward and hint, hint only, reward only, several turns, and a distillation target that is too
    long."""
    learner = make_learner(
        model_dir, "hybrid", distillation=distillation, minibatches=minibatches, kl_coef=0.01
    )
    hints = (draw_ids(9, 3), draw_ids(12, 4))
    batch = [
        one_turn(REPLY, hints, advantage=1.0, id=1),
        one_turn(REPLY, hints[:1], id=2),
        one_turn(REPLY, advantage=-1.0, id=3),
        two_turns(id=4),
        one_turn(REPLY, (draw_ids(600, 5),), id=5),
    ]
    stats = learner.step(batch, 0)
    metrics, tokens = stats.metrics, 4 * len(REPLY) + 24
    form = f"objective/distillation_{distillation['form']}"
    assert metrics["objective/policy_gradient"] == pytest.approx(2 * len(REPLY) / tokens)
    assert metrics[form] == pytest.approx((2 * len(REPLY) + 24) / tokens)
    assert metrics["teacher/tokens"] == 2 * len(REPLY) + 24
    assert metrics["teacher/too_long"] == 1.0
    assert metrics["learner/sampled_tokens"] == tokens
    assert all(math.isfinite(value) for value in metrics.values())
    assert sorted({taught.sample_id for taught in stats.distilled_turns}) == [1, 2, 4]


def test_a_reward_only_sample_gets_nothing_from_the_teacher(model_dir: str) -> None:
    """Noise between engine and learner is no distillation target: without a hint the term is 0, not
    small."""
    rewarded = one_turn(REPLY, advantage=0.5)
    learners = [make_learner(model_dir, name) for name in ("hybrid", "binary")]
    for learner in learners:
        learner.step([rewarded], 0)
    one, other = map(weights, learners)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_weight_of_zero_and_a_lesson_left_out_change_no_other_gradient(model_dir: str) -> None:
    """The tokens stay in the count that the loss is a mean over."""
    taught = one_turn(REPLY, (draw_ids(9, 3),))
    silent = one_turn(REPLY[:5], (draw_ids(600, 5),))
    plain = replace(silent, distill_T=[], distill_targets=())
    learners = [make_learner(model_dir) for _ in range(2)]
    losses = [
        learner.step([taught, extra], 0).metrics["learner/loss"]
        for learner, extra in zip(learners, (silent, plain), strict=True)
    ]
    assert losses[0] == losses[1]
    one, other = map(weights, learners)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("distillation", FORMS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_an_empty_hint_teaches_nothing(
    model_dir: str, temperature: float, distillation: dict[str, object]
) -> None:
    """S5 and S6 seen from the loss: no bogus first token, no gap of temperatures."""
    learner = make_learner(model_dir, temperature=temperature, distillation=distillation)
    stats = learner.step([two_turns(id=1, same=True), one_turn(REPLY, (PROMPT,))], 0)
    assert stats.metrics["teacher/gap_abs"] < 1e-5
    assert stats.metrics["learner/grad_norm"] < 1e-3
    assert max(abs(gap) for taught in stats.distilled_turns for gap in taught.gaps_T) < 2e-5


def test_a_gap_is_reported_and_its_cut_counted(model_dir: str) -> None:
    sample = sample_with_hint(model_dir, below=True)
    for clip, share in ((0.5, 1.0), (50.0, 0.0)):
        learner = make_learner(model_dir, distillation={"gap_clip": clip})
        metrics = learner.step([sample], 0).metrics
        assert metrics["teacher/gap_clipped"] == share
        assert metrics["teacher/gap_mean"] == -metrics["teacher/gap_abs"] < -1
    uncut = make_learner(model_dir, distillation={"form": "topk", "top_k": 4})
    assert "teacher/gap_clipped" not in uncut.step([sample], 0).metrics


def test_a_stale_sample_has_a_ratio_other_than_one(model_dir: str) -> None:
    """S10: log-probs that were sampled with weigh each token; the weights are cut and counted."""
    learner = make_learner(model_dir, "binary", tis_cap=2.0, lr=0.05)
    fresh = on_policy(learner, one_turn(REPLY, advantage=1.0))
    assert learner.step([fresh], 0).metrics["learner/importance"] == pytest.approx(1.0, abs=1e-4)
    metrics = learner.step([fresh], 1).metrics
    assert metrics["learner/importance"] > 1.1
    assert metrics["learner/capped_share"] > 0
    assert metrics["staleness/max"] == 1.0
    minibatches = make_learner(model_dir, "binary", minibatches=4, lr=0.05)
    batch = [replace(s, advantages_T=[float(m) for m in s.mask_T]) for s in make_samples([20] * 4)]
    assert minibatches.step(batch, 0).metrics["learner/clip_share"] > 0


@pytest.mark.parametrize("teacher", ["policy", "frozen"])
def test_a_frozen_teacher_stays_and_the_policy_is_its_own(model_dir: str, teacher: str) -> None:
    learner = make_learner(model_dir, lr=0.03, distillation={"teacher": teacher}, kl_coef=0.1)
    sample = one_turn(REPLY, (PROMPT,))
    apart = learner.step([replace(sample, advantages_T=[5.0] * 18), two_turns()], 0)
    later = learner.step([sample], 1)
    assert apart.metrics["teacher/tokens"] == len(REPLY) + 24
    assert (later.metrics["teacher/gap_abs"] < 1e-5) == (teacher == "policy")


def test_a_frozen_teacher_and_the_reference_are_one_model(model_dir: str) -> None:
    both = make_learner(model_dir, distillation={"teacher": "frozen"}, kl_coef=0.1)
    assert both.teacher is not None
    assert both.teacher._model is both.first
    alone = make_learner(model_dir, distillation={"teacher": "frozen"})
    metrics = alone.step([one_turn(REPLY, (PROMPT,))], 0).metrics
    assert "learner/kl" not in metrics


def test_another_model_teaches_when_it_has_the_vocabulary(tmp_path: Path) -> None:
    folder = str(make_random_model(tmp_path / "policy", 0))
    other = make_random_model(tmp_path / "teacher", 1)
    learner = make_learner(folder, distillation={"teacher": str(other)})
    metrics = learner.step([one_turn(REPLY, (PROMPT,))], 0).metrics
    assert metrics["teacher/gap_abs"] > 0.01
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace("<|im_start|>", "<|im_begin|>"))
    with pytest.raises(ConfigError, match="another vocabulary"):
        make_learner(folder, distillation={"teacher": str(other)})


def test_a_shipped_model_and_a_runs_newest_checkpoint_teach(tmp_path: Path) -> None:
    folder = str(shipped_dir())
    first = make_learner(folder, distillation={"teacher": "tiny"})
    metrics = first.step([one_turn(REPLY, (PROMPT,))], 0).metrics
    assert metrics["teacher/tokens"] > 0
    first.save_checkpoint(str(tmp_path / "run" / "checkpoints" / "000001"))
    second = make_learner(folder, distillation={"teacher": str(tmp_path / "run")})
    assert second.teacher is not None
    teacher = second.teacher._model.state()
    assert all(torch.equal(teacher[name], tensor) for name, tensor in weights(first).items())


def test_a_teacher_that_is_not_there_is_named(model_dir: str, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"distillation\.teacher=.*no 'nowhere' in the folder"):
        make_learner(model_dir, distillation={"teacher": str(tmp_path / "nowhere")})


def test_taught_turns_are_a_few_stored_ones_with_their_gaps(model_dir: str) -> None:
    learner = make_learner(model_dir)
    hint = (draw_ids(9, 3),)
    batch = [one_turn(REPLY[: 3 + n], hint, id=n or None) for n in range(6)]
    hinted = [one_turn(REPLY[: 3 + n], prompt=hint[0]) for n in range(6)]
    before = [
        (logprobs(learner, one), logprobs(learner, other))
        for one, other in zip(batch, hinted, strict=True)
    ]
    stats = learner.step(batch, 0)
    assert len(stats.distilled_turns) == 4
    for taught in stats.distilled_turns:
        assert taught.ids_T == REPLY[: 3 + taught.sample_id]
        assert taught.turn_id == taught.sample_id
        assert taught.prompt == 0
        old, teacher = before[taught.sample_id]
        assert taught.gaps_T == pytest.approx(
            [t - o for t, o in zip(teacher, old, strict=True)], abs=1e-4
        )


@pytest.mark.parametrize("distillation", [*FORMS, {"teacher": "frozen"}])
@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_distilling_learner_resumes_bit_by_bit(
    model_dir: str, tmp_path: Path, distillation: dict[str, object], minibatches: int
) -> None:
    hints = (draw_ids(9, 3), draw_ids(12, 4))
    batches = [
        [one_turn(draw_ids(9, 20 + n), hints), two_turns(), one_turn(REPLY, advantage=1.0)]
        for n in range(4)
    ]

    def fresh() -> Learner:
        return make_learner(model_dir, "hybrid", distillation=distillation, minibatches=minibatches)

    straight, first, second = fresh(), fresh(), fresh()
    for version, batch in enumerate(batches):
        straight.step(batch, version)
    for version in (0, 1):
        first.step(batches[version], version)
    first.save_checkpoint(str(tmp_path / "2"))
    second.load_checkpoint(str(tmp_path / "2"))
    for version in (2, 3):
        second.step(batches[version], version)
    expected, got = weights(straight), weights(second)
    assert all(torch.equal(expected[name], got[name]) for name in expected)


@pytest.mark.parametrize("loss", LOSSES.builtin)
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "constant"])
def test_the_loss_does_not_depend_on_the_packing(model_dir: str, loss: str, reduction: str) -> None:
    batch = [*make_samples([20, 35, 9]), two_turns(), one_turn(REPLY, (draw_ids(9, 3),))]
    losses = []
    for max_tokens in (128, 256):
        learner = make_learner(
            model_dir,
            "hybrid",
            loss={"type": loss},
            reduction=reduction,
            max_tokens_per_pack=max_tokens,
            constant_length=64,
        )
        learner.trainer = learner.trainer.model_copy(
            update={"max_tokens_per_pack": 1 if max_tokens == 128 else max_tokens}
        )
        losses.append(learner.step(batch, 0).metrics["learner/loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
