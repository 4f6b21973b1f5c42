"""What is said of a run's time before it begins: of the right order for the size of the model."""

from __future__ import annotations

import pytest

import clawrl_gym as cg
from clawrl_gym.config import RunConfig
from clawrl_gym.inference.models.shape import ModelShape, shape_of_config
from clawrl_gym.preflight.workload import measured_episodes, seconds_of, workload_of

SMALL = shape_of_config({
    "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "intermediate_size": 1536, "tie_word_embeddings": True,
})  # fmt: skip


def run(*arguments: str) -> RunConfig:
    shared = [
        "env=toolcall",
        "env.max_turns=1",
        "rollout.groups=4",
        "policy.sampling.max_tokens=96",
    ]
    return cg.load_config(
        [*shared, "trainer.steps=12", "eval.tasks=40", "eval.every=0", *arguments]
    )


def seconds(config: RunConfig, cores: int = 2, shape: ModelShape = SMALL) -> float:
    work = workload_of(config, measured_episodes(config, config.eval.tasks))
    return seconds_of(work, shape, "cpu", config, cores)


def test_a_run_that_was_measured_is_told_within_a_factor_of_two() -> None:
    """12 updates of 32 episodes with an adapter beside 0.13B: 313 s, start-up included."""
    assert SMALL.parameters == pytest.approx(134.5e6, rel=0.01)
    assert 313 / 2 < 45 + seconds(run("learner=lora")) < 313 * 2


def test_time_grows_with_updates_weights_and_parts_and_falls_with_cores() -> None:
    lora = seconds(run("learner=lora"))
    assert seconds(run("learner=lora"), cores=8) == pytest.approx(lora / 4)
    assert seconds(run("learner=lora", "trainer.steps=24")) > 1.8 * lora
    whole, again = run(), run("learner.checkpoint_layers=true")
    assert lora < seconds(whole) < seconds(again)


def test_prompts_are_learned_over_by_each_episode_and_read_once_by_a_group() -> None:
    work = workload_of(run(), measured=0)
    episodes = 12 * 4 * 8
    assert work.generated_tokens == episodes * 48
    assert work.learned_tokens == episodes * (48 + 100)
    assert work.read_tokens == episodes / 8 * 100


def test_an_evaluation_learns_nothing() -> None:
    config = cg.load_config(["env=toolcall", "eval.tasks=10"], "evaluate")
    work = workload_of(config, measured_episodes(config, 10))
    assert work.learned_tokens == 0
    assert seconds_of(work, SMALL, "cpu", config, 2) > 0


def test_on_a_gpu_the_slower_of_both_parts_decides() -> None:
    config = run("policy=qwen3_0_6b", "policy.sampling.max_tokens=1024")
    work = workload_of(config, 0)
    assert seconds_of(work, SMALL, "cuda", config, 16) == work.generated_tokens / 1300
