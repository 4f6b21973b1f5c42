"""Who talks in each of the showcase's sets of conversations."""

from __future__ import annotations

from typing import Any

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.conversation.config import ConversationEnvConfig
from clawrl_gym.envs.conversation.endpoint import user_endpoint
from clawrl_gym.envs.conversation.scripted import ScriptedPartner
from clawrl_gym.envs.conversation.user import ScriptedSpeaker, Speaker
from clawrl_gym.envs.showcase.conversation.composed.partner import ComposedPartner
from clawrl_gym.envs.showcase.conversation.generated import ConversationTask
from clawrl_gym.envs.showcase.conversation.model_user import ModelSpeaker
from clawrl_gym.envs.showcase.conversation.simulated import PlainPartner, SimulatedPartner


def partner_of(config: ConversationEnvConfig) -> ScriptedPartner[Any, Any]:
    """The user that `env.tasks` names. Raises ConfigError for what does not go together."""
    if config.tasks == "composed":
        if config.user != "scripted":
            raise ConfigError(
                f"got env.user={config.user} and env.tasks=composed, expected scripted: what is "
                "said in a composed conversation has to be exact"
            )
        return ComposedPartner(config.families)
    if config.tasks == "plain":
        if config.user != "scripted":
            raise ConfigError(
                f"got env.user={config.user} and env.tasks=plain, expected scripted: the words of "
                "plain users are a list"
            )
        return PlainPartner(config)
    endpoint = user_endpoint(config.user, config.user_base_url, config.user_key)
    speaker: Speaker[ConversationTask] = (
        ScriptedSpeaker()
        if endpoint is None
        else ModelSpeaker(endpoint, config.user_model, config.user_timeout_s)
    )
    return SimulatedPartner(config, speaker)
