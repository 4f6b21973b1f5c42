"""The seam of engines: one of somebody else's in a real run, and those that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clawrl_gym as cg
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import METRICS_FILE
from clawrl_gym.inference.capabilities import EngineCapabilities
from clawrl_gym.preflight.preflight import (
    preflight_evaluation,
    preflight_serving,
    preflight_training,
)
from clawrl_gym.store.reader import StoreReader
from examples.own_engine import TransformersEngine
from tests.support.guess_env import GuessEnv
from tests.support.numpy_engine import make_model
from tests.support.tiny_models import logprobs_by_transformers

OWN = "examples.own_engine:TransformersEngine"
SETTINGS = (
    "ui=line", "seed=3", "policy.device=cpu", "policy.max_model_len=256", "env=gym",
    f"env.target={__name__}:EvenEnv", "env.max_turns=2", "judge=none", "trainer=grpo",
    "rollout=sync", "rollout.groups=2", "rollout.group_size=4", "rollout.in_flight=8",
    "trainer.steps=2", "eval.tasks=2", "learner.lr=1e-2", "learner.warmup_steps=0",
    "policy.sampling.max_tokens=8",
)  # fmt: skip


class EvenEnv(GuessEnv):
    """Whatever is said has a length, which ought to be even."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "Thanks.", float(len(action) % 2 == 0), True, False, {}


@pytest.mark.ray
@pytest.mark.slow
async def test_a_run_learns_with_an_engine_of_somebody_elses(tmp_path: Path) -> None:
    folder, model = tmp_path / "run", make_model(tmp_path / "model")
    overrides = [*SETTINGS, f"run.dir={folder}", f"policy.model={model}", f"policy.engine={OWN}"]
    run = await cg.run_training_async(overrides)
    assert run.evaluations.keys() == {0, 2}
    rows: list[dict[str, Any]]
    rows = [row for row in read_json_lines(folder / METRICS_FILE) if "batch/samples" in row]
    assert [row["policy/version"] for row in rows] == [1, 2]
    for row in rows:
        assert row["logprob_gap/max"] < 1e-4, "the learner trains on what was sampled"
        assert row["learner/probe_gap"] < 1e-4
        assert row["learner/probe_arrived"] == pytest.approx(1, abs=1e-2), "it serves the update"
        assert row["learner/refused"] == 0
        assert row["learner/grad_norm"] > 0
    reader = StoreReader(folder)
    turns = [turn for session in reader.sessions() for turn in reader.turns_of(session.id)]
    reader.close()
    assert {version for turn in turns for version in turn.versions_T} == {0, 1, 2}
    assert not any(turn.untrainable for turn in turns if turn.temperature == 1.0)
    first = next(turn for turn in turns if turn.versions_T == [0] * 8)
    exact = logprobs_by_transformers(model, first.prompt_ids_T, first.sampled_ids_T)
    assert first.logprobs_T == pytest.approx(exact, abs=1e-5)
    assert not (folder / "logs" / "vllm.log").exists()


class NoIds(TransformersEngine):
    label = "half"
    capabilities = EngineCapabilities(logprobs=True, weights=True)


class NoLogprobs(TransformersEngine):
    label = "half"
    capabilities = EngineCapabilities(token_ids=True, weights=True)


class NoWeights(TransformersEngine):
    label = "half"
    capabilities = EngineCapabilities(token_ids=True, logprobs=True)


class Promising(cg.Engine):
    """Declares what it has not written."""

    capabilities = EngineCapabilities(token_ids=True, logprobs=True, weights=True, nodes=True)
    alive = False
    connect = start = stop = watch = TransformersEngine.start  # type: ignore[assignment]


class Nothing:
    """No engine."""


def refused(command: str, *overrides: str) -> str:
    look = {
        "train": preflight_training, "serve": preflight_serving, "evaluate": preflight_evaluation,
    }[command]  # fmt: skip
    with pytest.raises(ConfigError) as told:
        look(cg.load_config(list(overrides), command))  # type: ignore[operator, call-overload]
    return str(told.value)


@pytest.mark.parametrize(
    ("kind", "capability"),
    [("NoIds", "token_ids"), ("NoLogprobs", "logprobs"), ("NoWeights", "weights")],
)
def test_a_run_that_learns_is_refused_an_engine_that_lacks_a_capability(
    kind: str, capability: str, tmp_path: Path
) -> None:
    engine = f"policy.engine={__name__}:{kind}"
    folder = f"run.dir={tmp_path / 'run'}"
    for command, word in (("train", "train"), ("serve", "serve with learn=true")):
        message = refused(command, engine, folder)
        assert f"got policy.engine={__name__}:{kind}, which has no {capability} (" in message
        assert f"expected for {word} one that has: take policy.engine=vllm; half can be" in message
        assert "\n" not in message
    assert not (tmp_path / "run").exists(), "before anything starts"
    preflight_serving(cg.load_config([engine, folder, "learn=false"], "serve"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["policy.serve=adapters", "learner=lora"], "which has no adapter_ranks: expected one"),
        (["policy.placement=nodes", "ray.address=auto"], "which has no nodes ("),
        (["env=toolcall_plain", "agent.protocol=native"], "which has no tools ("),
    ],
)
def test_a_wish_that_the_engine_has_no_capability_for_is_named(
    overrides: list[str], words: str, tmp_path: Path
) -> None:
    wishes = [*overrides, f"policy.engine={OWN}", f"run.dir={tmp_path / 'run'}"]
    assert f"policy.engine={OWN}, {words}" in refused("train", *wishes)


def test_a_class_that_declares_what_it_has_not_written_is_refused(tmp_path: Path) -> None:
    name = f"{__name__}:Promising"
    message = refused("train", f"policy.engine={name}", f"run.dir={tmp_path / 'run'}")
    assert (
        f"got policy.engine={name}, whose capabilities have weights and whose class has no stage, "
        "of_version, switch, settle, renew of its own" in message
    )
    assert "have nodes and whose class has no base_url, client_at of its own" in message


def test_a_class_that_is_no_engine_is_refused() -> None:
    message = refused("train", f"policy.engine={__name__}:Nothing")
    assert "a class without label, capabilities, alive" in message
    assert "(the seam 'engine')" in message


def test_the_example_is_short() -> None:
    lines = Path("examples/own_engine.py").read_text().splitlines()
    assert len(lines) <= 400
