"""The learner sees what the policy saw: sequences with pictures, of two architectures."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clawrl_gym.config import DistillationConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import DistillTarget, Sample
from clawrl_gym.inference.models.resolve import picture_ids, sees
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.models.pictures import Images
from clawrl_gym.trainers.updates.learner import Learner
from clawrl_gym.trainers.updates.teacher import Teacher
from tests.support.tiny_models import make_random_model
from tests.support.tiny_vision import make_vision_model, picture

PER_PICTURE = 4
"""Ids that stand for one picture of 80x64 pixels, in both architectures."""
RED, BLUE = picture("red"), picture("blue")


@pytest.fixture(scope="module", params=["idefics3", "qwen3_vl"])
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vision_model(tmp_path_factory.mktemp("model") / request.param, request.param)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    folder = tmp_path_factory.mktemp("images")
    for data in (RED, BLUE):
        (folder / f"{hashlib.sha256(data).hexdigest()}.jpg").write_bytes(data)
    return Images(str(folder))


UNBOUNDED = TrainerConfig(token_ratio_min=0, sequence_ratio_min=0, sequence_ratio_max=None)
"""The sequences here are made up: no policy would have sampled them."""


def seeing(model_dir: Path, *pictures: bytes, advantage: float = 1.0, **more: Any) -> Sample:
    """A sequence that shows pictures and ends in four sampled tokens."""
    (image, *_) = picture_ids(model_dir)
    ids = [1, 20, 21]
    for _ in pictures:
        ids += [30, *[image] * PER_PICTURE, 31]
    ids += [40, 41, 42, 43]
    sampled = [False] * (len(ids) - 4) + [True] * 4
    return Sample(
        "s", 0, ids, sampled, [-1.0 if m else 0.0 for m in sampled],
        [0 if m else -1 for m in sampled], [advantage if m else 0.0 for m in sampled], 0.0,
        pictures=tuple(hashlib.sha256(data).hexdigest() for data in pictures), **more,
    )  # fmt: skip


def logprobs(model: PackedModel, sample: Sample) -> torch.Tensor:
    (pack,) = make_packs([sample], 4096)
    return model.score(pack).logprobs_M.detach()


def as_sampled(model: PackedModel, sample: Sample) -> Sample:
    """With the log-probs of the model itself: what it would never have sampled is masked."""
    scored = [0.0] * (len(sample.ids_T) - 4) + logprobs(model, sample).tolist()
    return replace(sample, logprobs_T=scored)


def by_transformers(model_dir: Path, sample: Sample, *pictures: bytes) -> torch.Tensor:
    """The same, by transformers' own forward on inputs that its processor made."""
    import io

    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForImageTextToText

    model: Any = AutoModelForImageTextToText.from_pretrained(model_dir, dtype=torch.float32)
    processor: Any = AutoImageProcessor.from_pretrained(model_dir)
    shown = [Image.open(io.BytesIO(data)).convert("RGB") for data in pictures]
    inputs = processor(images=[shown], return_tensors="pt")
    ids = torch.tensor([sample.ids_T])
    unspoken = list(picture_ids(model_dir))
    if model_dir.name == "qwen3_vl":
        inputs["mm_token_type_ids"] = (ids == unspoken[0]).int()
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs).logits[0]
    logits[:, unspoken] -= 100.0
    rows = torch.log_softmax(logits[-5:-1], -1)
    return rows.gather(1, ids[0, -4:, None])[:, 0]


def test_log_probs_are_those_of_transformers(model_dir: Path, images: Images) -> None:
    model = PackedModel(str(model_dir), "cpu", images=images)
    sample = seeing(model_dir, RED, BLUE)
    expected = by_transformers(model_dir, sample, RED, BLUE)
    assert torch.allclose(logprobs(model, sample), expected, atol=1e-4)


def test_what_a_picture_shows_and_their_order_matter(model_dir: Path, images: Images) -> None:
    model = PackedModel(str(model_dir), "cpu", images=images)
    one, other = (logprobs(model, seeing(model_dir, *p)) for p in ((RED, BLUE), (BLUE, RED)))
    assert not torch.allclose(one, other, atol=1e-4)


def test_a_text_is_read_the_same_before_and_after_a_picture(
    model_dir: Path, images: Images
) -> None:
    """Positions of an earlier picture do not stay in the model."""
    model = PackedModel(str(model_dir), "cpu", images=images)
    before = logprobs(model, seeing(model_dir))
    logprobs(model, seeing(model_dir, RED))
    assert torch.equal(logprobs(model, seeing(model_dir)), before)


def test_sequences_with_pictures_are_packed_alone(model_dir: Path) -> None:
    samples = [seeing(model_dir), seeing(model_dir, RED), seeing(model_dir), seeing(model_dir, RED)]
    packs = make_packs(samples, 4096)
    assert sorted(sorted(pack.origins) for pack in packs) == [[0, 2], [1], [3]]
    assert [len(pack.pictures) for pack in packs if pack.origins == [1]] == [1]


def test_a_step_trains_the_vision_part_too_and_its_weights_are_read_again(
    model_dir: Path, images: Images, tmp_path: Path
) -> None:
    learner = Learner(
        UNBOUNDED, LearnerConfig(lr=1e-2, warmup_steps=0), str(model_dir), 0, "cpu",
        images=images,
    )  # fmt: skip
    old = {name: tensor.clone() for name, tensor in learner.model.state().items()}
    samples = [seeing(model_dir, RED), seeing(model_dir, advantage=-1.0)]
    stats = learner.step([as_sampled(learner.model, sample) for sample in samples], 0)
    assert stats.metrics["learner/skipped"] == 0.0
    changed = {
        name for name, tensor in learner.model.state().items() if (tensor != old[name]).any()
    }
    assert any("vision" in name or "visual" in name for name in changed)
    learner.save_weights(str(tmp_path))
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((model_dir / name).read_text())
    again = PackedModel(str(tmp_path), "cpu", images=images)
    # the image processor's name tells which architecture it is
    sample = seeing(model_dir, RED)
    assert torch.equal(logprobs(again, sample), logprobs(learner.model, sample))


def test_the_file_of_weights_has_the_names_of_the_models_own(
    model_dir: Path, images: Images, tmp_path: Path
) -> None:
    """vLLM reads them by these names, and a swap refuses those of another model."""
    from clawrl_gym.inference.weights.files import shapes, weight_files

    learner = Learner(TrainerConfig(), LearnerConfig(), str(model_dir), 0, "cpu", images=images)
    learner.save_weights(str(tmp_path))
    assert shapes(weight_files(tmp_path)) == shapes(weight_files(model_dir))


def test_a_teacher_sees_the_pictures_of_the_turn(model_dir: Path, images: Images) -> None:
    model = PackedModel(str(model_dir), "cpu", images=images)
    plain = seeing(model_dir, RED)
    target = DistillTarget(len(plain.ids_T) - 4, 4, (plain.ids_T[:-4],), pictures=1)
    sample = seeing(
        model_dir,
        RED,
        distill_targets=(target,),
        distill_T=[0.0] * (len(plain.ids_T) - 4) + [1.0] * 4,
    )
    (reading,) = Teacher(DistillationConfig(), model, model, 4096).read([sample]).of
    assert reading is not None
    assert torch.allclose(torch.from_numpy(reading.teacher_M), logprobs(model, sample), atol=1e-4)


def test_a_picture_that_was_deleted_is_named(model_dir: Path, tmp_path: Path) -> None:
    model = PackedModel(str(model_dir), "cpu", images=Images(str(tmp_path)))
    with pytest.raises(TrainerError, match=hashlib.sha256(RED).hexdigest()):
        logprobs(model, seeing(model_dir, RED))


def test_a_text_model_refuses_a_sequence_with_pictures(tmp_path: Path, images: Images) -> None:
    model_dir = make_random_model(tmp_path / "qwen3_vl")
    assert not sees(model_dir)
    assert picture_ids(model_dir) == ()
    model = PackedModel(str(model_dir), "cpu", images=images)
    sample = Sample(
        "s", 0, [1, 2, 3], [False, True, True], [0.0, -1.0, -1.0], [-1, 0, 0], [0.0, 1.0, 1.0], 0.0,
        pictures=("ab",),
    )  # fmt: skip
    with pytest.raises(TrainerError, match="no vision part"):
        logprobs(model, sample)
