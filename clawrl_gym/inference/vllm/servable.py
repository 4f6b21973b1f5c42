"""Whether vLLM can serve a model, as far as files say; imports nothing of it.

What it would only say after half a minute of starting is said here: an architecture that it does
not know, a parser that it has not.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.inference.models.resolve import model_config

_GENERATING = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")
"""Tables of vLLM's registry whose keys are architectures that write text."""


def architecture_problems(folder: Path) -> Iterator[str]:
    """Reasons why it cannot serve the model of a folder, a line each."""
    config = model_config(folder)
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


def parser_problems(policy: PolicyConfig) -> Iterator[str]:
    """Parsers of tool calls and thoughts that it has not."""
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


def _in_transformers(config: Mapping[str, object], architecture: str) -> bool:
    """A causal model of transformers, which vLLM can run by transformers' own code."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None or not architecture.endswith("ForCausalLM"):
        return False
    return (Path(spec.origin).parent / "models" / str(config.get("model_type"))).is_dir()


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
