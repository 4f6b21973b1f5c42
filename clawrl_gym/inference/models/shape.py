"""ModelShape: how large the parts of a model are, by its configuration alone.

Exact for decoders of the Llama and Qwen families, their hybrids and their parts for vision, as
transformers builds them: `tests/inference/test_shape.py` holds it to the models themselves on the
meta device. Of other kinds the sizes are near; where the weights are here, their headers say the
truth.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.resolve import find_model, hub_parameters, model_config
from clawrl_gym.inference.weights.files import layer_shapes, shapes, weight_files

Layers = Mapping[str, list[list[int]]]
"""Weights' shapes of linear layers that an adapter can stand beside, by the layers' names."""
HUB_MODELS = Path(__file__).with_name("hub_models.json")
"""The config.json values of the presets' models, for use before they are downloaded."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The parts of a model that its memory depends on."""

    parameters: int
    layers: int
    """Layers of the decoder."""
    hidden: int
    """Width of a layer; 0 where the configuration does not say."""
    queries: int
    """Width of the queries of all heads together."""
    keys: int
    """Width of the keys, and of the values, of all heads together."""
    inner: int
    """Width between the halves of a layer's perceptron; of all experts that a token meets."""
    vocab: int
    caching_layers: int
    """Layers that keep keys and values of all tokens."""
    linear: Layers
    dtype: str = "auto"
    """Element type that the configuration names."""

    @property
    def linear_parameters(self) -> int:
        """Parameters of the layers that can have an adapter, or 4 bits."""
        return sum(prod(shape) for several in self.linear.values() for shape in several)

    @property
    def widest_layer(self) -> int:
        """Parameters of the largest one."""
        return max((prod(s) for several in self.linear.values() for s in several), default=0)


def shape_of_folder(folder: Path) -> ModelShape:
    """Shape of a local model; counts are those of its files' headers."""
    files = weight_files(folder)
    counted = sum(prod(shape) for shape in shapes(files).values())
    return replace(
        shape_of_config(model_config(folder)), parameters=counted, linear=layer_shapes(files)
    )


def shape_of_hub_model(model: str) -> ModelShape | None:
    """Shape of a model that is not here; None for one that no preset names."""
    known: dict[str, dict[str, object]] = json.loads(HUB_MODELS.read_text("utf-8"))
    return shape_of_config(known[model]) if model in known else None


def parameters_of(model: str) -> int | None:
    """Number of parameters of what `policy.model` names, or of what the hub says of an id.

    Downloads no weights. None where nobody says it, as for what is wrong or cannot be reached.
    """
    shape = shape_of_hub_model(model)
    if shape is not None:
        return shape.parameters
    try:
        folder = find_model(model)
        return hub_parameters(model) if folder is None else shape_of_folder(folder).parameters
    except ConfigError:  # whoever loads the model reports it
        return None


def shape_of_config(config: Mapping[str, object]) -> ModelShape:
    """Shape by a config.json."""
    text = _part(config, "text_config") or config
    hidden, layers = _number(text, "hidden_size"), _number(text, "num_hidden_layers")
    heads = _number(text, "num_attention_heads") or 1
    head = _number(text, "head_dim") or hidden // heads
    keys = (_number(text, "num_key_value_heads") or heads) * head
    inner = _number(text, "moe_intermediate_size") * _number(text, "num_experts_per_tok")
    inner = inner or _number(text, "intermediate_size") or 4 * hidden
    kinds = _layer_kinds(text, layers)
    linear: dict[str, list[list[int]]] = {}
    for kind in kinds:
        for name, shape in _layer(text, kind, hidden, heads * head, keys):
            linear.setdefault(name, []).append(shape)
    for name, shape in _vision_layers(config):
        linear.setdefault(name, []).append(shape)
    vocab = _number(text, "vocab_size")
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
    embedded = vocab * hidden * (1 if tied else 2)
    inside = sum(prod(shape) for several in linear.values() for shape in several)
    return ModelShape(
        parameters=embedded + inside + sum(_rest(config, text, kinds, hidden, head)),
        layers=layers,
        hidden=hidden,
        queries=heads * head,
        keys=keys,
        inner=inner,
        vocab=vocab,
        caching_layers=sum(kind == "full_attention" for kind in kinds),
        linear=linear,
        dtype=str(text.get("dtype") or config.get("dtype") or config.get("torch_dtype") or "auto"),
    )


def _layer_kinds(text: Mapping[str, object], layers: int) -> list[str]:
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return [str(kind) for kind in kinds]
    every = _number(text, "full_attention_interval")
    return [
        "linear_attention" if every and (number + 1) % every else "full_attention"
        for number in range(layers)
    ]


def _layer(
    text: Mapping[str, object], kind: str, hidden: int, queries: int, keys: int
) -> Iterator[tuple[str, list[int]]]:
    """The linear layers of one layer of a decoder."""
    if kind == "linear_attention":
        key_heads, value_heads = _linear_heads(text)
        of_keys = key_heads * _number(text, "linear_key_head_dim")
        of_values = value_heads * _number(text, "linear_value_head_dim")
        yield "in_proj_qkv", [2 * of_keys + of_values, hidden]
        yield "in_proj_z", [of_values, hidden]
        yield "in_proj_b", [value_heads, hidden]
        yield "in_proj_a", [value_heads, hidden]
        yield "out_proj", [hidden, of_values]
    else:
        gate = 2 if _has_gate(text) else 1
        yield "q_proj", [gate * queries, hidden]
        yield "k_proj", [keys, hidden]
        yield "v_proj", [keys, hidden]
        yield "o_proj", [hidden, queries]
    experts = _number(text, "num_experts")
    inner = _number(text, "moe_intermediate_size" if experts else "intermediate_size")
    for _ in range(experts or 1):
        yield "gate_proj", [inner, hidden]
        yield "up_proj", [inner, hidden]
        yield "down_proj", [hidden, inner]


def _vision_layers(config: Mapping[str, object]) -> Iterator[tuple[str, list[int]]]:
    """Layers of the vision part, as Qwen's models have it."""
    vision = _part(config, "vision_config")
    width, inner = _number(vision, "hidden_size"), _number(vision, "intermediate_size")
    for _ in range(_number(vision, "depth")):
        yield "qkv", [3 * width, width]
        yield "proj", [width, width]
        yield "linear_fc1", [inner, width]
        yield "linear_fc2", [width, inner]
    stacked = vision.get("deepstack_visual_indexes")
    mergers = 1 + (len(stacked) if isinstance(stacked, list) else 0) if vision else 0
    merged = width * _number(vision, "spatial_merge_size") ** 2
    for _ in range(mergers):
        yield "linear_fc1", [merged, merged]
        yield "linear_fc2", [_number(vision, "out_hidden_size"), merged]


def _rest(
    config: Mapping[str, object],
    text: Mapping[str, object],
    kinds: list[str],
    hidden: int,
    head: int,
) -> Iterator[int]:
    """Parameters of norms, convolutions, biases and places."""
    yield hidden
    has_head_norms = str(text.get("model_type", "")).startswith("qwen3")
    for kind in kinds:
        yield 2 * hidden
        if kind == "linear_attention":
            key_heads, value_heads = _linear_heads(text)
            mixed = 2 * key_heads * _number(text, "linear_key_head_dim")
            mixed += value_heads * _number(text, "linear_value_head_dim")
            yield mixed * _number(text, "linear_conv_kernel_dim") + 2 * value_heads
            yield _number(text, "linear_value_head_dim")
        elif has_head_norms:
            yield 2 * head
    vision = _part(config, "vision_config")
    width = _number(vision, "hidden_size")
    patch = _number(vision, "in_channels") * _number(vision, "temporal_patch_size")
    yield width * (patch * _number(vision, "patch_size") ** 2 + 1) if vision else 0
    yield width * _number(vision, "num_position_embeddings")
    for _, (out, _) in _vision_layers(config):
        yield out
    stacked = vision.get("deepstack_visual_indexes")
    several = len(stacked) if isinstance(stacked, list) else 0
    merged = width * _number(vision, "spatial_merge_size") ** 2
    yield 2 * (2 * width * _number(vision, "depth") + width + several * merged)


def _linear_heads(text: Mapping[str, object]) -> tuple[int, int]:
    return _number(text, "linear_num_key_heads"), _number(text, "linear_num_value_heads")


def _has_gate(text: Mapping[str, object]) -> bool:
    """Whether what attends is gated, by a second half of the queries."""
    kind = str(text.get("model_type", ""))
    return kind.startswith(("qwen3_5", "qwen3_next")) and text.get("attn_output_gate", True) is True


def _part(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _number(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0
