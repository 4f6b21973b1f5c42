"""Whether engine and learner can take a model, as far as its files say; imports neither of them.

What an engine would only say after half a minute of starting is said here: no chat template,
weights that lack a shard. `Engine.problems` says what one engine alone does not take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.end_tokens import end_token_problems
from clawrl_gym.inference.models.resolve import check_context, model_config
from clawrl_gym.inference.weights.files import shapes, weight_files

_INDEX = "model.safetensors.index.json"
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")


def model_problems(folder: Path, policy: PolicyConfig) -> Iterator[str]:
    """Reasons why an engine could not serve this model with these settings, a line each."""
    config = model_config(folder)
    yield from _quantization_problems(folder, config)
    yield from _weight_problems(folder, config)
    yield from _tokenizer_problems(folder)
    yield from end_token_problems(folder)
    try:
        check_context(policy.max_model_len, folder)
    except ConfigError as error:
        yield str(error)
    yield from setting_problems(policy)


def setting_problems(policy: PolicyConfig) -> Iterator[str]:
    """Settings that are wrong for any model."""
    longest = policy.sampling.max_tokens
    if longest >= policy.max_model_len:
        yield (
            f"got policy.sampling.max_tokens={longest} with policy.max_model_len="
            f"{policy.max_model_len}, expected room for a prompt beside the reply: give a longer "
            "context or shorter replies"
        )


def _quantization_problems(folder: Path, config: Mapping[str, object]) -> Iterator[str]:
    if "quantization_config" in config:
        yield (
            f"the model {folder} has quantized weights, which the learner cannot train: take the "
            "model in its original precision"
        )


def _weight_problems(folder: Path, config: Mapping[str, object]) -> Iterator[str]:
    index = folder / _INDEX
    if index.exists():
        try:
            shards = set(json.loads(index.read_text())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield f"the model's {index} cannot be read: {type(error).__name__}: {error}"
            return
        missing = sorted(name for name in shards if not (folder / name).exists())
        if missing:
            yield (
                f"the model {folder} lacks {len(missing)} of its {len(shards)} files with weights "
                f"({', '.join(missing[:3])}): download it again"
            )
    text = _text_part(config)
    expected = [_number(text, "vocab_size"), _number(text, "hidden_size")]
    for name, shape in shapes(weight_files(folder)).items():
        if name.endswith("embed_tokens.weight") and all(expected) and shape != expected:
            yield (
                f"the weights of {folder} are not those of its config.json: {name} is {shape}, "
                f"expected {expected} (vocab_size and hidden_size)"
            )


def _tokenizer_problems(folder: Path) -> Iterator[str]:
    settings: dict[str, object] = {}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (folder / name).exists():
            continue
        try:
            settings = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            yield f"the model's {folder / name} is not JSON: {error}"
            return
    if any((folder / name).exists() for name in _TEMPLATE_FILES):
        return
    if not (isinstance(settings, dict) and settings.get("chat_template")):
        yield (
            f"the model {folder} has no chat template (chat_template.jinja, or chat_template in "
            "tokenizer_config.json), so nobody can talk to it: take the instruction-tuned form of "
            "the model, or put a template there"
        )


def _text_part(config: Mapping[str, object]) -> Mapping[str, object]:
    """The text part of a vision-language model's configuration; else the whole."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def _number(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0
