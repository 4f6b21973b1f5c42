"""What memory depends on is known by a model's configuration: held to the models themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clawrl_gym.config.compose import conf_dir
from clawrl_gym.inference.models.shape import (
    HUB_MODELS,
    ModelShape,
    shape_of_config,
    shape_of_folder,
    shape_of_hub_model,
)
from clawrl_gym.inference.models.wheels import WHEEL_MODELS
from tests.reference.tiny_model import write_tiny_qwen3

KNOWN: dict[str, dict[str, Any]] = json.loads(HUB_MODELS.read_text("utf-8"))
PARAMETERS = {
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
}
"""As published."""


@pytest.mark.parametrize("model", KNOWN)
def test_counts_are_those_of_the_model_on_the_meta_device(model: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    words = dict(KNOWN[model])
    sees = "vision_config" in words
    config = AutoConfig.for_model(words.pop("model_type"), **words)
    with torch.device("meta"):
        net = (AutoModelForImageTextToText if sees else AutoModelForCausalLM).from_config(config)
    shape = shape_of_hub_model(model)
    assert shape is not None
    assert shape.parameters == sum(parameter.numel() for parameter in net.parameters())
    linear: dict[str, list[list[int]]] = {}
    for name, module in net.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            linear.setdefault(name.rpartition(".")[2], []).append(list(module.weight.shape))
    assert shape.linear == linear


@pytest.mark.parametrize(("model", "parameters"), PARAMETERS.items())
def test_numbers_of_presets_are_those_published(model: str, parameters: int) -> None:
    shape = shape_of_hub_model(model)
    assert shape is not None
    assert shape.parameters == parameters


def test_every_preset_of_the_hub_is_known() -> None:
    named = {
        line.split()[1]
        for path in (conf_dir() / "policy").glob("*.yaml")
        for line in path.read_text().splitlines()
        if line.strip().startswith("model:") and "/" in line
    }
    assert named | set(WHEEL_MODELS) == set(KNOWN)
    assert shape_of_hub_model("somebody/something") is None


def test_a_folder_s_files_say_the_same_as_its_configuration(tmp_path: Path) -> None:
    write_tiny_qwen3(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    by_files, by_words = shape_of_folder(tmp_path), shape_of_config(config)
    assert by_files.parameters == by_words.parameters
    assert sorted(by_files.linear) == sorted(by_words.linear)
    assert by_files.widest_layer == by_words.widest_layer


def test_what_says_nothing_has_no_width() -> None:
    shape = shape_of_config({"model_type": "other"})
    assert isinstance(shape, ModelShape)
    assert (shape.hidden, shape.layers, shape.parameters) == (0, 0, 0)
