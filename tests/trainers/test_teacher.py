"""The teacher reads exactly the sampled ids behind a hint, at the learner's temperature."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from clawrl_gym.config import DistillationConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.types import DistillTarget, Sample
from clawrl_gym.inference.models.vocabulary import check_vocabulary
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.teacher import Teacher
from tests.reference.tiny_model import VOCAB, make_samples, write_tiny_qwen3
from tests.support.tiny_models import make_random_model
from tests.trainers.distill_samples import draw_ids, one_turn, two_turns

TINY = str(Path(__file__).parents[2] / "clawrl_gym" / "inference" / "models" / "tiny_model")
REPLY = draw_ids(11, 1)
HINTED = draw_ids(7, 99) + draw_ids(5, 2)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


def make_teacher(
    model_dir: str,
    other: str = "",
    temperature: float = 1.0,
    max_tokens: int = 128,
    **options: object,
) -> Teacher:
    config = DistillationConfig.model_validate(options)
    model = PackedModel(model_dir, "cpu", temperature)
    second = PackedModel(other, "cpu", temperature) if other else model
    return Teacher(config, model, second, max_tokens)


@cache
def plain_model(model_dir: str) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    net: torch.nn.Module = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    return net.eval()


def full_logprobs(
    model_dir: str, prompt: list[int], reply: list[int], temperature: float = 1.0
) -> torch.Tensor:
    """(M, V) plain transformers on one sequence."""
    with torch.no_grad():
        logits = plain_model(model_dir)(torch.tensor([prompt + reply])).logits[0] / temperature
    logprobs: torch.Tensor = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return logprobs


def own_logprobs(teacher: Teacher, sample: Sample) -> list[float]:
    """The student's, in a pack beside other sequences."""
    (pack,) = make_packs([sample, *make_samples([20, 31])], 1000)
    logprobs_M = teacher._student.look(pack, 0, 1).logprobs_M.numpy()
    return list(logprobs_M[pack.rows_M == pack.origins.index(0)])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("shipped", [False, True])
def test_an_empty_hint_gives_no_gap_at_any_token(
    model_dir: str, temperature: float, frozen: bool, shipped: bool
) -> None:
    """S5 and S6: one place or one temperature off, a teacher would differ from itself."""
    folder = TINY if shipped else model_dir
    teacher = make_teacher(folder, folder if frozen else "", temperature)
    for sample in (two_turns(same=True), one_turn(REPLY, (draw_ids(7, 99),))):
        (reading,) = teacher.read([sample]).of
        assert reading is not None
        assert len(reading.teacher_M) == sum(sample.mask_T)
        np.testing.assert_allclose(reading.teacher_M, own_logprobs(teacher, sample), 1e-5, 1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_it_reads_the_sampled_ids_behind_the_hint(model_dir: str, temperature: float) -> None:
    (reading,) = (
        make_teacher(model_dir, temperature=temperature).read([one_turn(REPLY, (HINTED,))]).of
    )
    expected = full_logprobs(model_dir, HINTED, REPLY, temperature)[range(len(REPLY)), REPLY]
    assert reading is not None
    np.testing.assert_allclose(reading.teacher_M, expected, atol=2e-5)
    assert reading.distill_M.tolist() == [1.0] * len(REPLY)


CONTROL = draw_ids(9, 41)


@pytest.mark.parametrize("form", ["sampled", "topk"])
def test_a_control_leaves_what_the_hint_says_beyond_any_hint(model_dir: str, form: str) -> None:
    teacher = make_teacher(model_dir, form=form, top_k=VOCAB, baseline="control")
    sample = one_turn(REPLY, (HINTED, CONTROL))
    (reading,) = teacher.read([sample]).of
    assert reading is not None
    own, hinted, control = (
        full_logprobs(model_dir, prompt, REPLY)
        for prompt in (sample.ids_T[: -len(REPLY)], HINTED, CONTROL)
    )
    at = range(len(REPLY)), REPLY
    np.testing.assert_allclose(reading.teacher_M, (own + hinted - control)[at], atol=5e-5)
    assert reading.prompts == (0,), "the control teaches nothing by itself"
    if form == "topk":
        assert reading.topk_teacher_MK is not None
        moved = (own + hinted - control).log_softmax(-1)
        expected = moved.gather(-1, torch.from_numpy(reading.topk_ids_MK))
        np.testing.assert_allclose(reading.topk_teacher_MK, expected, atol=1e-4)


@pytest.mark.parametrize("form", ["sampled", "topk"])
def test_a_hint_that_says_what_its_control_says_teaches_nothing(model_dir: str, form: str) -> None:
    teacher = make_teacher(model_dir, form=form, top_k=6, baseline="control")
    sample = one_turn(REPLY, (HINTED, HINTED))
    (reading,) = teacher.read([sample]).of
    assert reading is not None
    np.testing.assert_allclose(reading.teacher_M, own_logprobs(teacher, sample), atol=2e-5)
    if form == "topk":
        assert reading.topk_teacher_MK is not None
        own = full_logprobs(model_dir, sample.ids_T[: -len(REPLY)], REPLY).topk(6).values
        np.testing.assert_allclose(reading.topk_teacher_MK, own, atol=5e-5)


def test_a_control_is_no_candidate_when_the_closest_hint_is_chosen(model_dir: str) -> None:
    """The control is the policy's own prompt, and closer to it than any hint."""
    teacher = make_teacher(model_dir, baseline="control")
    own = one_turn(REPLY).ids_T[: -len(REPLY)]
    (reading,) = teacher.read([one_turn(REPLY, (HINTED, CONTROL, own))]).of
    assert reading is not None
    assert reading.prompts[0] in (0, 1)


@pytest.mark.parametrize("max_tokens", [1, 40, 1000])
def test_lessons_are_told_apart_however_they_are_packed(model_dir: str, max_tokens: int) -> None:
    samples = [
        one_turn(draw_ids(3 + 5 * n, n), (draw_ids(4 + n, 50 + n),), prompt=draw_ids(9, 70 + n))
        for n in range(5)
    ]
    batch = [samples[0], make_samples([15])[0], *samples[1:], two_turns()]
    readings = make_teacher(model_dir, max_tokens=max_tokens).read(batch).of
    assert readings[1] is None
    for sample, reading in zip(batch, readings, strict=True):
        for target in sample.distill_targets if reading else ():
            assert reading is not None
            reply = sample.ids_T[target.start : target.start + target.length]
            expected = full_logprobs(model_dir, target.prompts[0], reply)
            first = sum(sample.mask_T[: target.start])
            np.testing.assert_allclose(
                reading.teacher_M[first : first + len(reply)],
                expected[range(len(reply)), reply],
                atol=2e-5,
            )


@pytest.mark.parametrize("of", ["student", "teacher"])
def test_topk_compares_the_same_tokens_of_both(model_dir: str, of: str) -> None:
    teacher = make_teacher(model_dir, form="topk", top_k=6, top_k_of=of)
    (reading,) = teacher.read([one_turn(REPLY, (HINTED,))]).of
    assert reading is not None
    assert reading.topk_ids_MK is not None
    whose = draw_ids(7, 99) if of == "student" else HINTED
    ids_MK = full_logprobs(model_dir, whose, REPLY).topk(6).indices
    assert reading.topk_ids_MK.tolist() == ids_MK.tolist()
    expected = full_logprobs(model_dir, HINTED, REPLY).gather(-1, ids_MK)
    assert reading.topk_teacher_MK is not None
    np.testing.assert_allclose(reading.topk_teacher_MK, expected, atol=2e-5)


def test_more_tokens_than_the_vocabulary_has_are_all_of_it(model_dir: str) -> None:
    (reading,) = (
        make_teacher(model_dir, form="topk", top_k=1000).read([one_turn(REPLY, (HINTED,))]).of
    )
    assert reading is not None
    assert reading.topk_teacher_MK is not None
    assert reading.topk_teacher_MK.shape == (len(REPLY), VOCAB)
    np.testing.assert_allclose(np.exp(reading.topk_teacher_MK).sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("form", ["sampled", "topk"])
def test_of_several_hints_the_one_closest_to_the_student_is_followed(
    model_dir: str, form: str
) -> None:
    own = draw_ids(7, 99)
    for place in range(3):
        prompts = [draw_ids(7, 30), draw_ids(9, 31)]
        prompts.insert(place, own)
        result = make_teacher(model_dir, form=form, top_k=5).read([one_turn(REPLY, tuple(prompts))])
        (reading,) = result.of
        assert reading is not None
        assert reading.prompts == (place,)
        assert result.metrics["teacher/overlap"] == 1.0
        expected = full_logprobs(model_dir, own, REPLY)[range(len(REPLY)), REPLY]
        np.testing.assert_allclose(reading.teacher_M, expected, atol=2e-5)


def test_the_overlap_is_only_there_when_it_was_measured(model_dir: str) -> None:
    sample = one_turn(REPLY, (HINTED,))
    assert "teacher/overlap" not in make_teacher(model_dir).read([sample]).metrics
    metrics = make_teacher(model_dir, form="topk").read([sample]).metrics
    assert 0 < metrics["teacher/overlap"] < 1


def test_a_lesson_that_does_not_fit_the_context_is_left_out_and_counted(model_dir: str) -> None:
    long = draw_ids(512 - len(REPLY) + 1, 3)
    fits = one_turn(REPLY, (long[1:],))
    result = make_teacher(model_dir).read([one_turn(REPLY, (long,)), fits])
    left_out, read = result.of
    assert result.metrics["teacher/too_long"] == 1.0
    assert left_out is not None
    assert read is not None
    assert left_out.prompts == (None,)
    assert not left_out.distill_M.any()
    assert np.isnan(left_out.teacher_M).all()
    assert np.isfinite(read.teacher_M).all()


def test_of_several_hints_those_that_fit_are_candidates(model_dir: str) -> None:
    result = make_teacher(model_dir).read([one_turn(REPLY, (draw_ids(600, 3), HINTED))])
    (reading,) = result.of
    assert reading is not None
    assert reading.prompts == (1,)
    assert result.metrics["teacher/too_long"] == 0.0


def test_tokens_without_a_known_logprob_are_not_asked_about(model_dir: str) -> None:
    whole = one_turn(REPLY, (HINTED,))
    nan = [math.nan if place == 9 else p for place, p in enumerate(whole.logprobs_T)]
    holes = replace(
        whole, logprobs_T=nan, mask_T=[m and place != 12 for place, m in enumerate(whole.mask_T)]
    )
    one, other = make_teacher(model_dir).read([whole, holes]).of
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(np.delete(one.teacher_M, [2, 5]), other.teacher_M, atol=1e-6)


def test_a_turn_without_a_token_to_learn_from_is_no_lesson(model_dir: str) -> None:
    sample = two_turns()
    second = replace(sample, mask_T=[m and place < 20 for place, m in enumerate(sample.mask_T)])
    none = replace(sample, mask_T=[False] * 40)
    result = make_teacher(model_dir).read([second, none])
    assert result.of[0] is not None
    assert result.of[0].prompts == (0, None)
    assert result.of[1] is not None
    assert len(result.of[1].teacher_M) == 0
    assert result.metrics == {"teacher/too_long": 0.0}


@pytest.mark.parametrize(
    ("targets", "match"),
    [
        ((DistillTarget(7, 12, (HINTED,)),), "tokens 7 to 19, expected a part of its 18"),
        ((DistillTarget(0, 5, (HINTED,)),), "tokens 0 to 5"),
        ((DistillTarget(7, 0, (HINTED,)),), "tokens 7 to 7"),
        ((DistillTarget(7, 11, ()),), "without a prompt"),
        ((DistillTarget(7, 11, (HINTED, [])),), "without a prompt"),
        ((DistillTarget(7, 11, ([3, VOCAB],)),), f"token {VOCAB}, expected one of {VOCAB}"),
        ((DistillTarget(7, 11, ([3, -1],)),), "token -1"),
        ((DistillTarget(7, 10, (HINTED,)),), "outside of all distillation targets"),
        ((), "outside of all distillation targets"),
    ],
)
def test_lessons_that_cannot_be_meant_are_refused(
    model_dir: str, targets: tuple[DistillTarget, ...], match: str
) -> None:
    sample = replace(one_turn(REPLY, (HINTED,)), distill_targets=targets)
    with pytest.raises(TrainerError, match=match):
        make_teacher(model_dir).read([sample])


def test_a_batch_without_lessons_costs_nothing(model_dir: str) -> None:
    result = make_teacher(model_dir, form="topk").read(make_samples([10, 20]))
    assert result.of == [None, None]
    assert result.metrics == {"teacher/too_long": 0.0}
    assert make_teacher(model_dir).read([]).of == []


def test_a_bigger_teacher_of_the_family_is_compared_on_the_common_tokens(tmp_path: Path) -> None:
    """Models of a family pad their output heads to different sizes."""
    student, big = make_random_model(tmp_path / "s", 0), make_random_model(tmp_path / "b", 1)
    _widen(big, 17)
    check_vocabulary(str(big), str(student))
    teacher = make_teacher(str(student), str(big), form="topk", top_k=10_000, top_k_of="teacher")
    (reading,) = teacher.read([one_turn(REPLY, (HINTED,))]).of
    assert reading is not None
    assert reading.topk_ids_MK is not None
    assert reading.topk_ids_MK.shape[1] == teacher._student.width == teacher._model.width - 17


def test_a_teacher_with_other_tokens_is_refused_with_the_first_that_differs(tmp_path: Path) -> None:
    one, other = make_random_model(tmp_path / "one"), make_random_model(tmp_path / "other")
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace("<|im_start|>", "<|im_begin|>"))
    with pytest.raises(ConfigError, match=r"token 1 is '<\|im_begin\|>', expected '<\|im_start"):
        check_vocabulary(str(other), str(one))
    with pytest.raises(ConfigError, match=r"\d+ tokens, the policy \d+;"):
        check_vocabulary(TINY, str(one))


def _widen(folder: Path, extra: int) -> None:
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(folder)
    net.resize_token_embeddings(net.config.vocab_size + extra)
    net.save_pretrained(folder)
