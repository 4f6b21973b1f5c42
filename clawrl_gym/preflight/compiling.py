"""Whether an engine compiles the model (`policy.enforce_eager=null`): where the run pays it back.

On a CPU it does not pay. On a GPU compiling and capturing graphs make the start longer and each
token cheaper. How much cheaper has not been measured here, so half is assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clawrl_gym.config import EvaluateConfig, RunConfig, ServeConfig
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.preflight.workload import GPU_EAGER_TOKENS_PER_S, workload_of

C = TypeVar("C", RunConfig, ServeConfig, EvaluateConfig)
_COMPILE_S = 100.0
"""Seconds of compiling at a first start on an H200; measured as more than this."""
_CACHED_S = 30.0
"""Seconds with an earlier run's compiled code: graphs are captured anew. Not measured."""
_SAVED = 0.5
"""Share of the time of eager generation that graphs save: an assumption. The GPU was busy 4 to 12 %
of that time."""


def with_compiling(
    config: C,
    device: Device,
    measured: int,
    *,
    is_cached: Callable[[], bool] | None = None,
) -> tuple[C, str | None]:
    """The configuration with `policy.enforce_eager` decided, and why, for people.

    `measured`: episodes that are not trained on; `is_cached`: asks whether something was compiled
    before, by itself the engine. None where it was decided before, of an engine that compiles
    nothing, and on a CPU, which never compiles by itself.
    """
    engine = engine_class(config.policy)
    if config.policy.enforce_eager is not None or not engine.capabilities.compiles:
        return config, None
    if device == "cpu":
        return _with(config, is_eager=True), None
    if isinstance(config, ServeConfig):
        return _with(config, is_eager=False), (
            "policy.enforce_eager=false: a service has no end, so compiling pays off"
        )
    tokens = workload_of(config, measured).generated_tokens
    eager_s = tokens / GPU_EAGER_TOKENS_PER_S
    cached = (is_cached or engine.has_compiled)()
    cost_s = _CACHED_S if cached else _COMPILE_S
    is_eager = _SAVED * eager_s < cost_s
    return _with(config, is_eager=is_eager), (
        f"policy.enforce_eager={str(is_eager).lower()}: without graphs some {eager_s:,.0f} s go "
        f"into generating about {tokens:,.0f} tokens, of which graphs should save {_SAVED:.0%}; "
        f"making them takes about {cost_s:.0f} s" + (" with what is cached" if cached else "")
    )


def _with(config: C, *, is_eager: bool) -> C:
    policy = config.policy.model_copy(update={"enforce_eager": is_eager})
    return config.model_copy(update={"policy": policy})
