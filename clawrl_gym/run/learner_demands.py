"""What a run asks of its learner, beside steps and checkpoints.

A learner that lacks one of it would fail in the middle of the run, or leave something out in
silence: that is said before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from clawrl_gym.config import CommandConfig, ServeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import LEARNERS
from clawrl_gym.trainers.capabilities import capabilities_of
from clawrl_gym.trainers.published_version import ENGINE_WAYS, way_of


def unmet_by_learner(config: CommandConfig) -> Iterator[str]:
    """What the configured learner lacks, with what to do instead. Raises ConfigError where it
    cannot be found."""
    if isinstance(config, ServeConfig) and not config.learn:
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
    if way_of(able.transfers) is None:
        yield (
            f"got {named}, whose versions travel by {', '.join(able.transfers) or 'nothing'}, "
            f"expected one of the ways that engines take: {', '.join(ENGINE_WAYS)}"
        )


def unseen_by_learner(config: CommandConfig, *, sees: bool) -> Iterator[str]:
    """The same of a model that sees."""
    if sees and not capabilities_of(config.learner).pictures:
        yield from lacking(config, "pictures", f"policy.model={config.policy.model!r} sees")


def lacking(config: CommandConfig, capability: str, why: str) -> Iterator[str]:
    """A line where the learner does not declare the capability."""
    try:
        LEARNERS.require(config.learner.backend, {capability: why})
    except ConfigError as error:
        yield str(error)
