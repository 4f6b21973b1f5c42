"""Engine and learner on one GPU or on two of one machine, by one word."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.cluster.cluster import Cluster
from clawrl_gym.cluster.placement import OwnGpus, own_gpus
from clawrl_gym.cluster.ray_learner import RayLearner
from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.shape import shape_of_hub_model
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.vllm.engine import VllmEngine
from clawrl_gym.inference.vllm.server import PolicyServer
from clawrl_gym.preflight.gpu_fit import GpuFit, fit_gpu, gpu_fit_lines
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.trainers.updates.actor import LearnerSetup

APART = "learner.placement=apart"


class SeesGpus:
    """A learner whose weights are the names of the GPUs that its process sees."""

    def __init__(self, *_: object) -> None:
        pass

    def save_weights(self, folder: str) -> None:
        Path(folder).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))

    step = load_checkpoint = save_checkpoint = save_weights


def test_apart_gives_the_last_gpu_to_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    assert own_gpus(load_config([]), "cuda") == OwnGpus()
    assert own_gpus(load_config([APART]), "cuda") == OwnGpus(("2", "5"), "7")
    assert own_gpus(load_config([APART, "ray.address=auto"]), "cpu") == OwnGpus()


@pytest.mark.parametrize(("device", "gpus", "got"), [("cpu", "0,1", "no"), ("cuda", "3", "1")])
def test_apart_needs_two_gpus(
    device: str, gpus: str, got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    with pytest.raises(ConfigError, match=f"got learner.placement=apart and {got} GPU"):
        own_gpus(load_config([APART]), "cuda" if device == "cuda" else "cpu")


@pytest.mark.parametrize(("gpus", "seen"), [(None, [None]), (("4",), ["4"])])
def test_an_engine_sees_its_gpu_alone_where_the_learner_has_one(
    gpus: tuple[str, ...] | None, seen: list[str | None], tmp_path: Path
) -> None:
    made: list[str | None] = []

    def make(*arguments: Any, gpu: str | None, **more: Any) -> PolicyServer:
        made.append(gpu)
        return PolicyServer(*arguments, gpu=gpu, **more)

    folders = (shipped_dir("tiny"), tmp_path / "serving", tmp_path / "logs")
    engine = partial(VllmEngine, make=make)
    PolicyServers(load_config([]).policy, *folders, print, make=engine, gpus=gpus)
    assert made == seen


@pytest.mark.ray
async def test_a_learner_sees_its_own_gpu_alone(tmp_path: Path) -> None:
    setup = LearnerSetup(
        TrainerConfig(),
        LearnerConfig(backend="tests.cluster.test_placement:SeesGpus"),
        0,
        "cuda",
        1.0,
    )
    cluster = Cluster()
    await cluster.start()
    try:
        learner = RayLearner(setup, gpu="7")
        await learner.ready()
        await (await learner.publish(as_adapter=False)).to_folder(tmp_path / "seen")
    finally:
        cluster.stop()
    assert (tmp_path / "seen").read_text() == "7"


def composed(*arguments: str, card_gib: float) -> GpuFit:
    config = load_config(list(arguments))
    shape = shape_of_hub_model(config.policy.model)
    assert shape is not None
    return fit_gpu(config, shape, card_gib)


def test_what_one_card_cannot_hold_two_may() -> None:
    eight = ["policy=qwen3_8b", "learner=lora"]
    assert not composed(*eight, card_gib=24).fits
    plan = composed(*eight, APART, card_gib=24)
    assert (plan.fits, plan.settings) == (True, {"policy.gpu_memory_utilization": 0.92})
    assert composed("policy=qwen3_4b", "learner=lora", APART, card_gib=24).settings == {}


@pytest.mark.parametrize(
    ("arguments", "card_gib", "says"),
    [
        (["learner=lora"], 24, "take two such cards (learner.placement=apart) or a smaller model"),
        (["learner=lora"], 16, "take a smaller model"),
        ([], 16, "take a smaller model"),
        ([APART], 24, "set "),
    ],
)
def test_a_card_says_what_would_make_it_fit(
    arguments: list[str], card_gib: float, says: str
) -> None:
    config = load_config(["policy=qwen3_8b", *arguments])
    shape = shape_of_hub_model(config.policy.model)
    assert shape is not None
    (line,) = gpu_fit_lines(config, shape, {"card": card_gib})
    assert says in line
