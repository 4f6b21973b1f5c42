"""Form of an agent's prompts, which follows from the policy and not from the environment.

The shipped policies know by heart in which form a reply is expected, and keep the prompts that they
were trained with. Any other policy is shown it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from clawrl_gym.config import AgentConfig, EvaluateConfig, RunConfig, SftConfig
from clawrl_gym.inference.models.resolve import is_shipped
from clawrl_gym.recipe.repeat import split_config

C = TypeVar("C", RunConfig, EvaluateConfig, SftConfig)


def with_form(config: C, arguments: Sequence[str]) -> C:
    """The command with `agent.show_form` as suits its policy, unless the command line says it.

    A run that is repeated or resumed keeps the prompts that it had.
    """
    file, overrides = split_config(arguments)
    names = {override.lstrip("+~").partition("=")[0] for override in overrides}
    is_said = any(name.endswith("agent.show_form") for name in names)
    if file is not None or "resume" in names or is_said or _knows_forms(config):
        return config
    shown = {"agent": _shown(config.agent)}
    if not isinstance(config, RunConfig) or not config.mixture:
        return config.model_copy(update=shown)
    mixture = {
        name: domain.model_copy(update={"agent": _shown(domain.agent)})
        for name, domain in config.mixture.items()
    }
    return config.model_copy(update={**shown, "mixture": mixture})


def spoken_like(agent: AgentConfig, other: AgentConfig) -> AgentConfig:
    """An agent of another environment, which speaks to the same policy as `other` does."""
    return agent.model_copy(update={"protocol": other.protocol, "show_form": other.show_form})


def _knows_forms(config: RunConfig | EvaluateConfig | SftConfig) -> bool:
    is_elsewhere = isinstance(config, EvaluateConfig) and config.endpoint.base_url is not None
    return not is_elsewhere and is_shipped(config.policy.model)


def _shown(agent: AgentConfig) -> AgentConfig:
    return agent.model_copy(update={"show_form": True})
