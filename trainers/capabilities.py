"""What a learner can do beyond a step and its checkpoints, as its class declares it.

Light, so that what is checked before a start imports no learner of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.plugins import LEARNERS
from clawrl_gym.trainers.published_version import Way


@dataclass(frozen=True, slots=True)
class LearnerCapabilities:
    """Capabilities that a class declares as `capabilities`; a run that needs another is refused."""

    adapters: bool = False
    """Trains an adapter (`learner.adapter`) and publishes it alone: has `save_adapter`, a remote
    one `publish(as_adapter=True)`."""
    users: bool = False
    """Swaps one user's adapter and optimizer for another's: has `use` and `forget`."""
    probe: bool = False
    """Reads a text after each update, which is compared with what engines serve: has `probe`."""
    review: bool = False
    """Gives its weights' log-probs of samples without learning from them: has `review`."""
    pictures: bool = False
    """Learns from samples that show pictures."""
    teacher: bool = False
    """Reads prompts with hints and learns from them (trainer=opd, hybrid)."""
    supervised: bool = False
    """Learns from replies alone: has `supervised_step`, `review` and the number of `updates`."""
    rehearses: bool = False
    """Loads no model and changes no weight."""
    remote: bool = False
    """Computes somewhere else: its methods are coroutines (`AsyncLearner`), called from the run's
    own process. Otherwise it gets a process of its own."""
    transfers: tuple[Way, ...] = ("folder",)
    """Ways in which its versions can travel to engines, the best first."""


TORCH = LearnerCapabilities(
    adapters=True,
    users=True,
    probe=True,
    review=True,
    pictures=True,
    teacher=True,
    supervised=True,
)
SIMULATED = LearnerCapabilities(pictures=True, rehearses=True)


def capabilities_of(config: LearnerConfig) -> LearnerCapabilities:
    """Capabilities of the configured learner. Raises ConfigError where it cannot be found."""
    declared: LearnerCapabilities = LEARNERS.capabilities_of(config.backend)
    return declared
