"""Which families of the corpus a configuration asks for, and what runs their tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clawrl_gym.envs.showcase.swe.composed.generated import composed_instances, runners_of
from clawrl_gym.envs.showcase.swe.corpus.corpus import easy_families
from clawrl_gym.envs.showcase.swe.corpus.repository import families, repository_family
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.source import COMPOSED, CORPUS, EASY


def runners_of_families(config: SweEnvConfig) -> Mapping[str, tuple[str, ...]]:
    """The families that the options ask for, each with what runs its tests."""
    if config.instances == COMPOSED:
        return runners_of(composed_instances(config.families).families)
    return {name: (repository_family(name).runner,) for name in corpus_families(config)}


def corpus_families(config: SweEnvConfig) -> Sequence[str]:
    """The corpus's families that the options ask for; none without the corpus."""
    places = (config.instances or CORPUS, config.heldout)
    if EASY not in places and CORPUS not in places:
        return ()
    return config.families or (easy_families() if EASY in places else families())
