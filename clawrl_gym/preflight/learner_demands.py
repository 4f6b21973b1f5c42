"""Demands of a run on its learner, beside steps and checkpoints.

A learner that does not meet one would fail in the middle of the run, or silently leave something
out: that is reported before anything starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from clawrl_gym.config import CommandConfig, ServeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import LEARNERS
from clawrl_gym.trainers.capabilities import LearnerCapabilities, capabilities_of
from clawrl_gym.trainers.published_version import ENGINE_WAYS, way_of

_HOSTED = ("step", "save_weights", "save_checkpoint", "load_checkpoint")
_REMOTE = (
    "step", "publish", "save_checkpoint", "load_checkpoint", "ready", "reset", "restart", "close",
)  # fmt: skip
_READS = ("probe", "review", "use", "forget")
"""Methods that only some learners have."""


def unmet_by_learner(config: CommandConfig) -> Iterator[str]:
    """Demands that the configured learner does not meet, with what to do instead. Raises
    ConfigError where it cannot be found."""
    if not _learns(config):
        return
    learner, able = config.learner, capabilities_of(config.learner)
    named = f"learner.backend={learner.backend}"
    rehearses_serving = able.rehearses and isinstance(config, ServeConfig)
    if learner.publish == "if_not_worse" and not able.review and not rehearses_serving:
        yield (
            f"got learner.publish=if_not_worse with {named}, expected a learner with weights to "
            "look at (its capability `review`): take learner.publish=always"
        )
    if learner.adapter is not None and not (able.adapters or able.rehearses):
        yield from lacking(config, "adapters", "learner.adapter is set; learner=full has none")
    if able.remote and learner.placement != "driver":
        yield (
            f"got learner.placement={learner.placement} with {named}, which computes where it is, "
            "expected learner.placement=driver"
        )
    yield from _other_calls(learner.backend, able)
    if way_of(able.transfers) is None:
        yield (
            f"got {named}, whose versions travel by {', '.join(able.transfers) or 'nothing'}, "
            f"expected one of the ways that engines take: {', '.join(ENGINE_WAYS)}"
        )


def _other_calls(backend: str, able: LearnerCapabilities) -> Iterator[str]:
    """Whether it can be called as its kind is: with coroutines, or in a process of its own."""
    if backend in LEARNERS.builtin:
        return
    target = LEARNERS.resolve(backend).target
    gives_out = ("save_adapter",) if able.adapters else ()
    names = _REMOTE if able.remote else (*_HOSTED, *gives_out)
    missing = [name for name in names if not callable(getattr(target, name, None))]
    if missing:
        kind = "remote" if able.remote else "in a process of its own (not `remote`)"
        yield (
            f"got learner.backend={backend}, a class without {', '.join(missing)}, expected one "
            f"with {', '.join(names)}: it is {kind}"
        )
    calls = [name for name in (*names, *_READS) if callable(getattr(target, name, None))]
    wrong = [n for n in calls if inspect.iscoroutinefunction(getattr(target, n)) != able.remote]
    if wrong:
        written = "`async def`" if able.remote else "plain `def`"
        yield (
            f"got learner.backend={backend} with the capability remote={able.remote}, expected "
            f"{written} for {', '.join(wrong)}"
        )


def unseen_by_learner(config: CommandConfig, *, sees: bool) -> Iterator[str]:
    """A demand of a model that sees, where the learner does not meet it."""
    if sees and _learns(config):
        yield from lacking(config, "pictures", f"policy.model={config.policy.model!r} sees")


def _learns(config: CommandConfig) -> bool:
    return not isinstance(config, ServeConfig) or config.learn


def lacking(config: CommandConfig, capability: str, why: str) -> Iterator[str]:
    """A line where the learner does not declare the capability."""
    try:
        LEARNERS.require(config.learner.backend, {capability: why})
    except ConfigError as error:
        yield str(error)
