"""What a run is said to take, before anything starts: kept in full, for several machines.

Memory and disk by part, what fits which card, and the words of a dry run. `python -m
tests.preflight.test_golden_plans` writes the new file; look at what changed before it is kept.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import clawrl_gym as cg
from clawrl_gym.config import (
    AdapterConfig,
    CommandConfig,
    EvaluateConfig,
    PolicyConfig,
    ServeConfig,
)
from clawrl_gym.config.part import leaves
from clawrl_gym.core.types import TaskRef
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.models.shape import (
    HUB_MODELS,
    ModelShape,
    shape_of_config,
    shape_of_hub_model,
)
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.vllm import launch
from clawrl_gym.inference.vllm.process import PARENT_VARIABLE
from clawrl_gym.preflight.dry_run import plan_lines
from clawrl_gym.preflight.gpu_fit import GPUS_GIB, as_fields, gpu_fit_lines
from clawrl_gym.preflight.model_plan import ModelPlan, shape_of
from clawrl_gym.preflight.preflight import Preflight
from clawrl_gym.preflight.requirements import Requirements, memory_problems, requirements_of
from clawrl_gym.run_folder.folder import RunFolder

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden" / "plans.json"
RUNS: dict[str, list[str]] = {
    "tiny": ["env=toolcall"],
    "tiny serves": ["serve", "gateway.port=7001"],
    "tiny serves users": ["serve", "learner=lora"],
    "all weights": ["policy=qwen3_0_6b", "env=toolcall"],
    "offloaded": ["policy=qwen3_4b", "learner=full", "learner.offload=true"],
    "an adapter": ["policy=qwen3_4b", "learner=lora", "env=[toolcall,conversation]"],
    "an adapter on four bits": ["policy=qwen3_8b", "learner=lora", "learner.base=nf4"],
    "two servers, a reference": ["policy=qwen3_1_7b", "policy.servers=2", "trainer.kl_coef=0.1"],
    "sees": ["policy=qwen3_vl_4b", "learner=lora", "policy.max_model_len=20000"],
    "hybrid layers": ["policy=qwen3_5_4b", "learner=lora", "learner.keep_checkpoints=5"],
    "hints": ["env=conversation", "trainer=opd", "policy=llama3_2_1b", "trainer.steps=3"],
    "simulated": ["env=conversation", "learner=simulated"],
    "measured": ["evaluate", "env=toolcall", "eval.samples=3"],
    "measured slowly": ["evaluate", "env=conversation", "policy=llama3_1_8b"],
    "serves without learning": ["serve", "learn=false", "policy=mistral_7b"],
}
EXPERTS = {
    "model_type": "qwen3_moe", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8, "torch_dtype": "float16",
    "num_experts_per_tok": 2, "moe_intermediate_size": 48, "tie_word_embeddings": True,
}  # fmt: skip
_FREE = re.compile(r"[\d.]+ (GiB )?free")
_HERE = re.compile(r"^ +here .*")
Config = CommandConfig | EvaluateConfig


def composed(arguments: list[str]) -> Config:
    command = arguments[0] if arguments[0] in ("serve", "evaluate") else "train"
    return cg.load_config(arguments[command != "train" :], command)  # type: ignore[call-overload, no-any-return]


def plans() -> dict[str, Any]:
    """By run, what is said of it."""
    return {name: _plan(composed(arguments)) for name, arguments in RUNS.items()}


def shapes() -> dict[str, Any]:
    """Shapes of the presets' models, and of one with experts."""
    known = {model: shape_of_hub_model(model) for model in json.loads(HUB_MODELS.read_text())}
    return {model: _shape(shape) for model, shape in known.items() if shape is not None} | {
        "experts": _shape(shape_of_config(EXPERTS)),
        "little said": _shape(shape_of_config({"num_hidden_layers": 2, "hidden_size": 8})),
    }


def _shape(shape: ModelShape) -> str:
    fields = {**asdict(shape), "linear": shape.linear_parameters, "widest": shape.widest_layer}
    return _line(fields)


def _plan(config: Config) -> dict[str, Any]:
    shape = shape_of(config.policy.model)
    told: dict[str, Any] = {"composed": list(_composed(config))}
    for device in ("cpu", "cuda"):
        needs = requirements_of(config, shape, device)
        told[f"needs on {device}"] = _line(asdict(needs))
        told[f"dry run on {device}"] = list(_dry_run(config, device, shape, needs))
    told["needs with users"] = _line(asdict(requirements_of(config, shape, "cuda", users=3)))
    told["refused"] = list(memory_problems(needs, config.policy, 1.0, 6.0))
    if isinstance(config, CommandConfig):
        cards = {f"{size} GB": float(size) for size in GPUS_GIB}
        fields = as_fields(config, shape, cards)
        told["cards"] = [*gpu_fit_lines(config, shape, cards), _line(fields["cards"])]
    return told


def _composed(config: Config) -> Iterator[str]:
    """What is not as a configuration made in Python has it; recipes and rules are long."""
    usual = dict(leaves(type(config)().model_dump(mode="json")))
    for key, value in leaves(config.model_dump(mode="json")):
        if value != usual.get(key) and not key.startswith(("judge.", "live.", "mixture.")):
            yield f"{key}={value}"


def commands() -> dict[str, list[str]]:
    """What vLLM is started with, and its environment."""
    forms: dict[str, tuple[PolicyConfig, AdapterConfig | None]] = {
        "usual": (PolicyConfig(), None),
        "other": (
            PolicyConfig(
                dtype="bfloat16", max_model_len=512, max_num_seqs=7, kv_cache_gb=0.5, threads=3,
                gpu_memory_utilization=0.3, enforce_eager=False, tool_parser=None,
                reasoning_parser="qwen3",
            ),
            None,
        ),
        "an adapter": (PolicyConfig(max_adapters=5), AdapterConfig(rank=9)),
        "of two layers": (PolicyConfig(), AdapterConfig(modules=("q_proj", "v_proj"))),
    }  # fmt: skip
    told: dict[str, list[str]] = {}
    base = {"PATH": "/bin", "https_proxy": "x", "ALL_PROXY": "y"}
    for name, (policy, adapter) in forms.items():
        for device in ("cpu", "cuda"):
            argv = launch.command(policy, shipped_dir("tiny"), 1234, device, adapter=adapter)
            values = launch.environment(policy, "k", device, base, adapters=adapter is not None)
            values.pop(PARENT_VARIABLE)
            line = " ".join([sys.executable.replace(argv[0], "python"), *argv[1:]])
            told[f"{name} on {device}"] = [
                line.replace(str(shipped_dir("tiny")), "MODEL"),
                " ".join(f"{key}={value}" for key, value in sorted(values.items())),
            ]
    return told


def _dry_run(
    config: Config, device: Device, shape: ModelShape, needs: Requirements
) -> Iterator[str]:
    folder = None if device == "cuda" else Path("/models/somewhere")
    heldout = [] if isinstance(config, ServeConfig) else [_task(number) for number in range(40)]
    model = ModelPlan(device, folder, shape, needs)
    plan: Any = Preflight(config, RunFolder(Path("/")), model, heldout=heldout, notes=["so"])
    with _one_core():
        for line in plan_lines(plan, ["an image is made"]):
            if not _HERE.match(line):
                yield _FREE.sub("N free", line)


def _task(number: int) -> TaskRef:
    return TaskRef(f"t{number}", number, "heldout")


@contextmanager
def _one_core() -> Iterator[None]:
    """How long something takes is told for the cores that may be used."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _line(value: Any) -> str:
    """Plain values in one line, numbers as far as other machines round alike."""
    if isinstance(value, dict):
        return " ".join(f"{key}={_line(entry)}" for key, entry in value.items())
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def test_shapes_of_models_are_told_as_they_were() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))["shapes"]
    now = json.loads(json.dumps(shapes()))
    assert now.keys() == golden.keys()
    for name, shape in now.items():
        assert shape == golden[name], f"the shape of {name} has changed"


def test_vllm_is_started_as_it_was() -> None:
    assert commands() == json.loads(GOLDEN.read_text("utf-8"))["commands"]


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_takes_is_told_as_it_was(name: str) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))["plans"]
    assert golden.keys() == RUNS.keys()
    assert json.loads(json.dumps(_plan(composed(RUNS[name])))) == golden[name]


if __name__ == "__main__":
    everything = {"shapes": shapes(), "plans": plans(), "commands": commands()}
    GOLDEN.write_text(json.dumps(everything, indent=1) + "\n", "utf-8")
