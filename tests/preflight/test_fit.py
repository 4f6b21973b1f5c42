"""Does it fit? The arithmetic is held to what PyTorch keeps, and presets to their cards."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clawrl_gym as cg
from clawrl_gym.config import AdapterConfig, LearnerConfig, RunConfig, TrainerConfig
from clawrl_gym.doctor import main
from clawrl_gym.inference.models.shape import (
    ModelShape,
    shape_of_config,
    shape_of_folder,
    shape_of_hub_model,
)
from clawrl_gym.preflight.gpu_fit import GpuFit, fit_gpu, memory_lines, words
from clawrl_gym.preflight.model_plan import ModelPlan, look_at_model, notes_of
from clawrl_gym.preflight.problems import Problems
from clawrl_gym.preflight.requirements import LEARNER_ON_GPU_GIB, requirements_of
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.trainers.models import nf4
from clawrl_gym.trainers.models.memory import (
    GIB,
    MAX_LOGITS,
    LearnerMemory,
    autocasts,
    learner_memory,
)
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from tests.reference.tiny_model import make_samples

WIDE: dict[str, Any] = {
    "model_type": "qwen3", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 160,
    "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "bos_token_id": None, "eos_token_id": None, "dtype": "bfloat16",
}  # fmt: skip
FORMS = {
    "all weights in float32": LearnerConfig(),
    "all weights in bfloat16": LearnerConfig(offload=True),
    "an adapter beside float32": LearnerConfig(adapter=AdapterConfig(rank=4), base="float32"),
    "an adapter beside bfloat16": LearnerConfig(adapter=AdapterConfig(rank=4)),
}


def shape_of(config: RunConfig) -> ModelShape:
    shape = shape_of_hub_model(config.policy.model)
    assert shape is not None
    return shape


def composed(*arguments: str, card_gib: float = 24) -> GpuFit:
    config = load_config(list(arguments))
    return fit_gpu(config, shape_of(config), card_gib)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("checkpoint_layers", [False, True])
def test_activations_are_what_the_backward_pass_keeps(
    form: str, checkpoint_layers: bool, tmp_path: Path
) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    Qwen3ForCausalLM(Qwen3Config(**WIDE)).bfloat16().save_pretrained(tmp_path)
    learner = FORMS[form].model_copy(update={"checkpoint_layers": checkpoint_layers})
    model = PackedModel(str(tmp_path), "cpu", learner=learner)
    (pack,) = make_packs(make_samples([700, 690]), 2000)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.net.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in own:
            kept[storage] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scores = model.score(pack)
    assert scores.logprobs_M.requires_grad
    trainer = TrainerConfig(max_tokens_per_pack=len(pack.ids_T))
    shape = shape_of_folder(tmp_path)
    memory = learner_memory(trainer, learner, shape, "cpu")
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    expected = memory.activations * GIB
    small = memory.logits * GIB if checkpoint_layers else 0  # the last norm is kept in any case
    assert measured == pytest.approx(expected, rel=0.15, abs=small)


def test_each_part_grows_with_what_it_is_of() -> None:
    shape = shape_of_config(WIDE)
    lora = LearnerConfig(adapter=AdapterConfig(rank=4))

    def memory(
        learner: LearnerConfig = lora, tokens: int = 1024, **trainer: object
    ) -> LearnerMemory:
        config = TrainerConfig.model_validate({"max_tokens_per_pack": tokens, **trainer})
        return learner_memory(config, learner, shape, "cuda")

    plain = memory()
    assert memory(tokens=2048).activations == pytest.approx(2 * plain.activations)
    wider = memory(LearnerConfig(adapter=AdapterConfig(rank=8)))
    assert wider.optimizer == pytest.approx(2 * plain.optimizer)
    assert wider.base == plain.base
    rounded = memory(lora.model_copy(update={"base": "nf4"}))
    assert rounded.base < plain.base
    assert astuple(rounded)[1:] == astuple(plain)[1:]
    assert memory(kl_coef=0.1).others == 0, "the base is the reference"
    assert memory(LearnerConfig(), kl_coef=0.1).others == pytest.approx(4 * shape.parameters / GIB)
    eight = learner_memory(TrainerConfig(), LearnerConfig(moment_bits=8), shape, "cpu")
    float32 = learner_memory(TrainerConfig(), LearnerConfig(), shape, "cpu")
    assert eight.optimizer == pytest.approx(float32.optimizer * (2 + 1 / 32) / 8)
    offloaded = memory(LearnerConfig(offload=True))
    assert offloaded.resident == pytest.approx(2 * shape.parameters / GIB)
    longer = learner_memory(TrainerConfig(max_tokens_per_pack=1024), lora, shape, "cuda", 4096)
    assert longer.activations == pytest.approx(4 * plain.activations)
    assert memory(tokens=10**9).logits == pytest.approx(14 * MAX_LOGITS / GIB)


@pytest.mark.parametrize(
    "preset", ["qwen3_0_6b", "qwen3_1_7b", "qwen3_4b", "qwen3_5_4b", "llama3_2_3b"]
)
def test_presets_with_an_adapter_fit_24_gb_as_composed(preset: str) -> None:
    plan = composed(f"policy={preset}", "learner=lora")
    assert plan.fits
    assert plan.settings == {}
    assert plan.used_gib <= 22
    assert plan.cached_tokens >= load_config([f"policy={preset}"]).policy.max_model_len


@pytest.mark.parametrize("preset", ["qwen3_8b", "llama3_1_8b", "mistral_7b", "qwen3_vl_4b"])
def test_larger_presets_with_an_adapter_fit_48_gb_as_composed(preset: str) -> None:
    plan = composed(f"policy={preset}", "learner=lora", card_gib=48)
    assert (plan.fits, plan.settings) == (True, {})


def test_the_learner_of_4b_beside_bfloat16_weights_takes_14_gb() -> None:
    config = load_config(["policy=qwen3_4b", "learner=lora", "learner.base=served"])
    learner = requirements_of(config, shape_of(config), "cuda").learner
    assert learner.total + LEARNER_ON_GPU_GIB <= 14


def test_where_a_step_takes_memory_of_its_own_it_is_said() -> None:
    config = load_config(["policy=qwen3_0_6b", "learner.moment_bits=8"])
    (_, on_cpu), (_, on_gpu) = (
        memory_lines(requirements_of(config, shape_of(config), device))
        for device in ("cpu", "cuda")
    )
    assert "when it steps, 2.90" in on_cpu
    assert "when it steps" not in on_gpu


def test_what_does_not_fit_comes_with_settings_that_do() -> None:
    long = ["policy=qwen3_4b", "learner=lora", "policy.max_model_len=32768"]
    plan = composed(*long, card_gib=24)
    assert plan.fits
    assert plan.settings["policy.max_model_len"] == 16384
    config = load_config(
        [
            "policy=qwen3_4b",
            "learner=lora",
            "policy.max_model_len=32768",
            *words(plan.settings).split(),
        ]
    )
    again = fit_gpu(config, shape_of(config), 24)
    assert (again.fits, again.settings) == (True, {})
    assert not composed("policy=qwen3_8b", "learner=lora", card_gib=16).fits
    full = composed("policy=qwen3_4b", card_gib=48)
    assert full.settings["learner.offload"] is True
    assert "learner.moment_bits" not in full.settings, "in main memory they are slow"
    assert composed("policy=qwen3_4b", card_gib=80).settings["learner.moment_bits"] == 8


def test_the_doctor_says_it_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy=qwen3_4b", "learner=lora"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Qwen/Qwen3-4B: 4,022,468,096 parameters")
    (card,) = (line for line in lines if line.strip().startswith("24 GB"))
    assert card.endswith("as composed")
    assert main(["--json", "policy=qwen3_4b", "learner=lora"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields["cards"]["24 GB"]["fits"] is True
    assert set(fields["learner_gib"]) == set(LearnerMemory.__dataclass_fields__)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["policy=qwen5"], "qwen5"),
        (["policy=qwen3_4b", "learner.bse=nf4"], "did you mean 'learner.base'"),
        (["learner.base=nf8"], "learner.base"),
        (["policy.model=no/where/at/all"], "policy.model"),
    ],
)
def test_the_doctor_refuses_what_it_cannot_know(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.err.count("\n") == 1


def test_an_adapter_s_optimizer_is_not_offloaded() -> None:
    from clawrl_gym.preflight.contradictions import contradictions

    config = cg.load_config(["learner=lora", "learner.offload=true"])
    assert ["learner.offload=true with an adapter" in line for line in contradictions(config)] == [
        True
    ]


def test_where_a_full_pack_does_not_fit_it_is_said_what_to_set() -> None:
    config = load_config(["policy=qwen3_4b", "learner=lora", "learner.base=served"])
    shape = shape_of(config)
    here = ModelPlan("cuda", None, shape, requirements_of(config, shape, "cuda"), 24.0)
    (settings, first, second) = notes_of(config, here)
    assert settings.startswith("settings: conf/size/4b.yaml and conf/tuned/4b_lora.yaml, for")
    assert "set learner.base=nf4" in first
    assert "downloaded" in second
    assert list(notes_of(config, replace(here, gpu_gib=80.0))) == [settings, second]


def test_without_its_package_4_and_8_bits_are_refused_before_a_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nf4, "PACKAGE", "no_such_package")
    config = load_config(["learner=lora", "learner.base=nf4"])
    for arguments in (["learner=lora", "learner.base=nf4"], ["learner.moment_bits=8"]):
        problems = Problems()
        look_at_model(problems, load_config(arguments), RunFolder(tmp_path))
        assert ["expected the package no_such_package" in line for line in problems.lines] == [True]
    problems = Problems()
    whole = config.learner.model_copy(update={"adapter": None})  # as presets have it
    whole_config = config.model_copy(update={"learner": whole})
    look_at_model(problems, whole_config, RunFolder(tmp_path))
    assert problems.lines == [], "without an adapter it is not asked for"
    assert load_config(["policy=qwen3_4b"]).learner.base == "nf4"


@pytest.mark.parametrize(
    ("form", "own", "casts"),
    [
        ({}, "float32", False),  # as vLLM serves it
        ({}, "bfloat16", True),
        ({"precision": "bfloat16"}, "float32", True),
        ({"precision": "float32"}, "bfloat16", False),
        ({"adapter": {}}, "float32", False),
        ({"adapter": {}, "base": "nf4"}, "float32", True),
        ({"adapter": {}, "base": "bfloat16"}, "float32", True),
        ({"adapter": {}, "base": "float32"}, "bfloat16", True),
        ({"offload": True}, "float32", True),
    ],
)
def test_a_gpu_multiplies_in_float32_where_the_model_is_float32(
    form: dict[str, object], own: str, casts: bool
) -> None:
    learner = LearnerConfig.model_validate(form)
    assert autocasts(learner, own, "cuda") is casts
    assert autocasts(learner, own, "cpu") is False
    assert autocasts(None, own, "cuda") is (own != "float32")
