"""Configuration of measuring a policy on an environment's tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator

from clawrl_gym.config.envs import AgentConfig, AnyEnvConfig, usual_env_config
from clawrl_gym.config.learning import EvalConfig, RolloutConfig
from clawrl_gym.config.live import LiveConfig
from clawrl_gym.config.part import Part, leaf
from clawrl_gym.config.policy import GatewayConfig, PolicyConfig
from clawrl_gym.config.run import RunFolderConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import ENGINES

_FROM_ENVIRONMENT = "env:"


class EndpointConfig(Part):
    """An OpenAI-compatible server that is measured instead of the run's own policy."""

    base_url: str | None = None
    """Its address with /v1, such as http://127.0.0.1:8000/v1; None: `policy` is served."""
    key: str = "none"
    """Bearer token that is sent; `env:NAME` is the value of the environment variable NAME."""
    model: str = "default"
    """The model's name at the server."""
    max_tokens: int | None = Field(None, ge=1)
    """Longest reply in tokens; None leaves it to the server."""
    patience_s: float = Field(60.0, ge=0)
    """Seconds for which a request is repeated that the server turned away for now (429, 5xx) or did
    not get, with growing pauses or as Retry-After says; this time does not count as the agent's."""

    @field_validator("key")
    @classmethod
    def _of_environment(cls, key: str) -> str:
        name = key.removeprefix(_FROM_ENVIRONMENT)
        if name == key:
            return key
        if not os.environ.get(name):
            raise ValueError(
                f"got {key}, and the environment has no {name}, expected it to hold the key"
            )
        return os.environ[name]


class EvaluateConfig(Part):
    """One evaluation, whole. `policy.engine=openai` means the same as `endpoint`: episodes ask that
    server themselves."""

    seed: int = Field(0, ge=0)
    """Draws the tasks of split=train; held-out ones are the same for every seed."""
    run: RunFolderConfig = RunFolderConfig()
    dry_run: bool = False
    """Print the resolved configuration and exit."""
    split: Literal["heldout", "train"] = "heldout"
    """The tasks to measure: the first `eval.tasks` held-out ones, or as many training draws, of
    which two may be the same task."""
    endpoint: EndpointConfig = EndpointConfig()
    policy: PolicyConfig = PolicyConfig()
    gateway: GatewayConfig = GatewayConfig()
    live: LiveConfig = LiveConfig()
    env: AnyEnvConfig = Field(default_factory=usual_env_config)
    agent: AgentConfig = AgentConfig()
    rollout: RolloutConfig = RolloutConfig()
    eval: EvalConfig = EvalConfig()

    @model_validator(mode="before")
    @classmethod
    def _one_server(cls, values: object) -> object:
        return _with_endpoint(values) if isinstance(values, Mapping) else values


def _with_endpoint(values: Mapping[str, object]) -> Mapping[str, object]:
    """Turn an endpoint engine into `endpoint`. Raises ConfigError where both are given."""
    policy = values.get("policy")
    policy = policy.model_dump() if isinstance(policy, PolicyConfig) else policy
    if not isinstance(policy, Mapping) or not isinstance(name := policy.get("engine"), str):
        return values
    if name == PolicyConfig.model_fields["engine"].default:
        return values
    options = policy.get("options") or {}
    plugin = ENGINES.resolve(name)
    model = plugin.options_model
    if model is None or not issubclass(model, EndpointConfig) or not isinstance(options, Mapping):
        return values
    if leaf(values, "endpoint.base_url") is not None:
        raise ConfigError(
            f"got policy.engine={name} and endpoint.base_url, expected one of them: both name the "
            "server that is measured"
        )
    endpoint = plugin.options(options)
    assert isinstance(endpoint, EndpointConfig)
    fields = endpoint.model_dump(include=set(EndpointConfig.model_fields))
    kept = {key: value for key, value in policy.items() if key not in ("engine", "options")}
    return {**values, "policy": kept, "endpoint": fields}
