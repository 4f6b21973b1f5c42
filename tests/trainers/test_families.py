"""Families of models in small: an adapter learns, reaches every layer, and merges to the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.config.compose import conf_dir
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.models.servable import setting_problems
from clawrl_gym.inference.vllm.servable import parser_problems
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples

TEXT: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None, "max_position_embeddings": 512,
    "initializer_range": 0.2, "tie_word_embeddings": True,
}  # fmt: skip
VISION: dict[str, Any] = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "in_channels": 3,
    "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 32,
    "num_position_embeddings": 16,
}  # fmt: skip
LENGTHS = [5, 30, 17, 4]


def qwen3() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**TEXT))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**TEXT))


def mistral(window: int | None = None) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**TEXT, sliding_window=window))


def mistral_with_windows() -> Any:
    return mistral(window=8)


def qwen3_5() -> Any:
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    text = TEXT | {
        "num_hidden_layers": 4, "full_attention_interval": 4, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    }  # fmt: skip
    config = Qwen3_5Config(
        text_config=text, vision_config=VISION, tie_word_embeddings=True,
        image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63,
    )  # fmt: skip
    return Qwen3_5ForConditionalGeneration(config)


def qwen3_vl() -> Any:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    turns = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    config = Qwen3VLConfig(
        text_config=TEXT | {"rope_parameters": turns},
        vision_config={**VISION, "deepstack_visual_indexes": [0]}, tie_word_embeddings=True,
        image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63,
    )  # fmt: skip
    return Qwen3VLForConditionalGeneration(config)


FAMILIES: list[Callable[[], Any]] = [
    qwen3, llama, mistral, mistral_with_windows, qwen3_5, qwen3_vl,
]  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda make: make.__name__)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model")
    request.param().save_pretrained(path)
    return str(path)


def logprobs(model: PackedModel, samples: list[Sample]) -> torch.Tensor:
    (pack,) = make_packs(samples, 10_000)
    with torch.no_grad():
        return model.score(pack).logprobs_M


@pytest.mark.parametrize("checkpoint_layers", [False, True])
def test_an_adapter_learns_and_merges_to_the_same(
    folder: str, tmp_path: Path, checkpoint_layers: bool
) -> None:
    config = LearnerConfig(
        lr=1e-2, adapter=AdapterConfig(rank=4), checkpoint_layers=checkpoint_layers
    )
    learner = Learner(TrainerConfig(steps=10), config, folder, 0, "cpu")
    samples = [
        replace(sample, ids_T=[token % 60 for token in sample.ids_T])
        for sample in make_samples(LENGTHS)
    ]
    begun = logprobs(learner.model, samples)
    for version in range(2):
        assert learner.step(samples, version).metrics["learner/grad_norm"] > 0
    trained = {
        name: parameter
        for name, parameter in learner.model.net.named_parameters()
        if parameter.requires_grad and "visual" not in name  # the samples show no picture
    }
    still = [n for n, p in trained.items() if "lora_B" in n and not bool(p.detach().any())]
    assert len(trained) >= 28
    assert still == [], "a gradient has reached them all"
    shutil.copytree(folder, tmp_path / "whole")
    learner.save_weights(str(tmp_path / "whole"))
    merged = logprobs(PackedModel(str(tmp_path / "whole"), "cpu"), samples)
    own = logprobs(learner.model, samples)
    assert not torch.allclose(begun, own, atol=1e-3)
    assert torch.allclose(merged, own, atol=1e-4)


def test_what_others_say_of_a_sequence_changes_nothing(folder: str) -> None:
    """Nothing crosses from one sequence of a pack to another, in whatever layout."""
    model = PackedModel(folder, "cpu")
    samples = make_samples(LENGTHS)
    together = make_packs(samples, 10_000)[0]
    alone = {
        origin: logprobs(model, [samples[origin]]) for origin in together.origins
    }  # in pack order, which is by length
    whole = logprobs(model, samples)
    assert torch.allclose(whole, torch.cat([alone[o] for o in together.origins]), atol=1e-5)


def test_a_window_is_seen(tmp_path: Path) -> None:
    """Two sequences that differ before the window have the same log-probs of the last token."""
    torch.manual_seed(0)
    mistral(window=4).save_pretrained(tmp_path)
    model = PackedModel(str(tmp_path), "cpu")
    (sample,) = make_samples([30])
    mask = [False] * 29 + [True]
    sample = replace(sample, mask_T=mask, logprobs_T=[0.0] * 29 + [-1.0])
    other = replace(sample, ids_T=[(sample.ids_T[0] + 1) % 60, *sample.ids_T[1:]])
    assert torch.allclose(logprobs(model, [sample]), logprobs(model, [other]), atol=1e-6)


def test_attention_that_is_not_plain_is_refused(tmp_path: Path) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    words = TEXT | {"layer_types": ["full_attention"] * 2, "pad_token_id": 0}
    Gemma2ForCausalLM(Gemma2Config(**words)).save_pretrained(tmp_path)
    model = PackedModel(str(tmp_path), "cpu")
    with pytest.raises(TrainerError, match=r"attention has softcap \(Gemma2Attention\)"):
        logprobs(model, make_samples(LENGTHS))


@pytest.mark.parametrize("preset", [path.stem for path in (conf_dir() / "policy").glob("*.yaml")])
def test_what_a_preset_asks_of_vllm_it_has(preset: str) -> None:
    policy = load_config([f"policy={preset}"]).policy
    assert [*setting_problems(policy), *parser_problems(policy)] == []
    thinks = policy.model.startswith(("Qwen/Qwen3-", "Qwen/Qwen3.5-"))
    sees = "-VL-" in policy.model
    assert policy.reasoning_parser == ("qwen3" if thinks and not sees else None)
