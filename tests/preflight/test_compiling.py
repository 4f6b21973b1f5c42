"""vLLM compiles where the run's length pays it back; the reason is told."""

from __future__ import annotations

import clawrl_gym as cg
from clawrl_gym.config import RunConfig, ServeConfig
from clawrl_gym.preflight.compiling import with_compiling


def decided(steps: int, *, cached: bool = False, **policy: object) -> tuple[RunConfig, str | None]:
    config = cg.load_config(["policy=qwen3_0_6b", "env=toolcall", f"trainer.steps={steps}"])
    own = config.policy.model_copy(update=policy)
    config = config.model_copy(update={"policy": own})
    return with_compiling(config, "cuda", 0, is_cached=lambda: cached)


def test_a_long_run_on_a_gpu_compiles_and_says_what_that_costs_and_saves() -> None:
    config, why = decided(200)
    assert config.policy.enforce_eager is False
    assert why == (
        "policy.enforce_eager=false: without graphs some 30,247 s go into generating about "
        "39,321,600 tokens, of which graphs should save 50%; making them takes about 100 s"
    )


def test_a_run_too_short_to_pay_it_back_does_not() -> None:
    config, why = decided(1)
    assert config.policy.enforce_eager is True
    assert why is not None
    assert why.startswith("policy.enforce_eager=true: without graphs some 151 s")


def test_what_was_compiled_before_makes_it_pay_sooner() -> None:
    config, why = decided(1, cached=True)
    assert config.policy.enforce_eager is False
    assert why is not None
    assert why.endswith("takes about 30 s with what is cached")


def test_what_was_said_is_kept() -> None:
    assert decided(200, enforce_eager=True) == (decided(200, enforce_eager=True)[0], None)
    assert decided(200, enforce_eager=True)[0].policy.enforce_eager is True


def test_a_service_has_no_end_and_a_cpu_never_compiles_by_itself() -> None:
    config, why = with_compiling(ServeConfig(), "cuda", 0)
    assert config.policy.enforce_eager is False
    assert why is not None
    config, why = with_compiling(ServeConfig(), "cpu", 0)
    assert (config.policy.enforce_eager, why) == (True, None)
