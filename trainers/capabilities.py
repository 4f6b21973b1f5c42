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
    """Declared by a class as `capabilities`; a run that needs what is not is refused."""

    adapters: bool = False
    """Trains an adapter (`learner.adapter`) and gives it out alone: has `save_adapter`, a remote
    one `publish(as_adapter=True)`."""
    users: bool = False
    """Puts one user's adapter and optimizer away and takes another's: has `use` and `forget`."""
    probe: bool = False
    """Reads a text after each update, with which what engines serve is compared: has `probe`."""
    review: bool = False
    """Says what its weights think of samples without learning from them: has `review`."""
    pictures: bool = False
    """Learns from samples that show pictures."""
    teacher: bool = False
    """Reads prompts with hints and learns from them (trainer=opd, hybrid)."""
    supervised: bool = False
    """Learns from replies alone: has `supervised_step`, `review` and the number of `updates`."""
    rehearses: bool = False
    """Loads no model and changes no weight."""
    remote: bool = False
    """Computes somewhere else: its methods are coroutines (`AsyncLearner`), and it is called from
    the run's own process. Else it gets a process of its own."""
    transfers: tuple[Way, ...] = ("folder",)
    """How its versions can travel to engines, the best first."""


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
    """What the configured learner declares. Raises ConfigError where it cannot be found."""
    declared: LearnerCapabilities = LEARNERS.capabilities_of(config.backend)
    return declared
