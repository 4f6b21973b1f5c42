"""Made-up repositories, each with an issue, hidden tests and a gold patch, drawn by id."""

from clawrl_gym.envs.showcase.swe.corpus.corpus import corpus_instances, make_instance

__all__ = ["corpus_instances", "make_instance"]
