"""Configuration of measuring a policy on an environment's tasks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clawrl_gym.config.envs import AgentConfig, AnyEnvConfig, usual_env_config
from clawrl_gym.config.learning import EvalConfig, RolloutConfig
from clawrl_gym.config.live import LiveConfig
from clawrl_gym.config.part import Part
from clawrl_gym.config.policy import GatewayConfig, PolicyConfig
from clawrl_gym.config.run import RunFolderConfig


class EndpointConfig(Part):
    """A server of the OpenAI API that is measured instead of a policy of our own."""

    base_url: str | None = None
    """With its /v1, such as http://127.0.0.1:8000/v1; None: vLLM is started with `policy`."""
    key: str = "none"
    """Sent as the bearer token."""
    model: str = "default"
    """The model's name at the server."""
    max_tokens: int | None = Field(None, ge=1)
    """Longest reply; None leaves it to the server."""
    patience_s: float = Field(60.0, ge=0)
    """How long a request is made again that the server turned away for now (429, 5xx) or did not
    get, with growing pauses or as Retry-After says; such seconds are none of the agent's."""


class EvaluateConfig(Part):
    """One evaluation, whole."""

    seed: int = Field(0, ge=0)
    """Draws the tasks of split=train; held-out ones are the same for every seed."""
    run: RunFolderConfig = RunFolderConfig()
    dry_run: bool = False
    """Print the resolved configuration and end."""
    split: Literal["heldout", "train"] = "heldout"
    """Which tasks are measured: the first `eval.tasks` held-out ones, or as many training draws, of
    which two may be the same task."""
    endpoint: EndpointConfig = EndpointConfig()
    policy: PolicyConfig = PolicyConfig()
    gateway: GatewayConfig = GatewayConfig()
    live: LiveConfig = LiveConfig()
    env: AnyEnvConfig = Field(default_factory=usual_env_config)
    agent: AgentConfig = AgentConfig()
    rollout: RolloutConfig = RolloutConfig()
    eval: EvalConfig = EvalConfig()
