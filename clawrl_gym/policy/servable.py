"""Whether vLLM and the learner can take a model, as far as its files say; imports neither of them.

What vLLM would only say after half a minute of starting is said here: an architecture that it does
not know, no chat template, weights that lack a shard, a parser that it has not.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.policy.end_tokens import end_token_problems
from clawrl_gym.policy.models import check_context, model_config
from clawrl_gym.policy.weights import shapes, weight_files

_GENERATING = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")
"""Tables of vLLM's registry whose keys are architectures that write text."""
_INDEX = "model.safetensors.index.json"
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")


def model_problems(folder: Path, policy: PolicyConfig) -> Iterator[str]:
    """What would keep vLLM from serving this model with these settings, a line each."""
    config = model_config(folder)
    yield from _architecture_problems(folder, config)
    yield from _weight_problems(folder, config)
    yield from _tokenizer_problems(folder)
    yield from end_token_problems(folder)
    try:
        check_context(policy.max_model_len, folder)
    except ConfigError as error:
        yield str(error)
    yield from setting_problems(policy)


def setting_problems(policy: PolicyConfig) -> Iterator[str]:
    """What is wrong whatever the model is."""
    longest = policy.sampling.max_tokens
    if longest >= policy.max_model_len:
        yield (
            f"got policy.sampling.max_tokens={longest} with policy.max_model_len="
            f"{policy.max_model_len}, expected room for a prompt beside the reply: give a longer "
            "context or shorter replies"
        )
    for key, name, file, table in (
        ("tool_parser", policy.tool_parser, "tool_parsers", "_TOOL_PARSERS_TO_REGISTER"),
        (
            "reasoning_parser",
            policy.reasoning_parser,
            "reasoning",
            "_REASONING_PARSERS_TO_REGISTER",
        ),
    ):
        known = _keys_of(f"{file}/__init__.py", table)
        if name and known and name not in known:
            yield (
                f"got policy.{key}={name!r}, expected one that vLLM has: {', '.join(sorted(known))}"
            )


def _architecture_problems(folder: Path, config: Mapping[str, object]) -> Iterator[str]:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        yield (
            f"the model {folder} names no architecture in its config.json, expected one such as "
            "Qwen3ForCausalLM"
        )
        return
    known = frozenset[str]().union(
        *(_keys_of("model_executor/models/registry.py", table) for table in _GENERATING)
    )
    if known and not known & set(names) and not _in_transformers(config, str(names[0])):
        yield (
            f"the model {folder} is a {names[0]}, which vLLM cannot serve as a chat model: "
            "expected a causal language model, such as Qwen3ForCausalLM or LlamaForCausalLM"
        )
    if "quantization_config" in config:
        yield (
            f"the model {folder} has quantized weights, which the learner cannot train: take the "
            "model in its original precision"
        )


def _in_transformers(config: Mapping[str, object], architecture: str) -> bool:
    """A causal model of transformers, which vLLM can run by transformers' own code."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None or not architecture.endswith("ForCausalLM"):
        return False
    return (Path(spec.origin).parent / "models" / str(config.get("model_type"))).is_dir()


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
    """Of a model that sees, the part about text; else the whole."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def _number(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0


@functools.cache
def _keys_of(file: str, table: str) -> frozenset[str]:
    """The keys of a table that stands in a source file of vLLM, which is read, not imported.

    Empty where this vLLM has no such table: then nothing is known of what it takes.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    try:
        tree = ast.parse((Path(spec.submodule_search_locations[0]) / file).read_text())
    except (OSError, SyntaxError):
        return frozenset()
    for node in tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if table in names and isinstance(value := getattr(node, "value", None), ast.Dict):
            keys = [key.value for key in value.keys if isinstance(key, ast.Constant)]
            return frozenset(key for key in keys if isinstance(key, str))
    return frozenset()
