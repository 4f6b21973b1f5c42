"""Builds the configured judge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core import redact
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.judge.interface import Judge

if TYPE_CHECKING:
    from clawrl_gym.config.judge import JudgeName
    from clawrl_gym.judge.chat_models import Policies
    from clawrl_gym.judge.endpoint import Endpoint


def check_judge(config: JudgeConfig) -> None:
    """Find what is wrong before anything starts. Raises ConfigError."""
    if "rule" in config.asked:
        _rules(config, hints=False)
    if "model" in config.asked and not (config.instructions and config.hint_instructions):
        raise ConfigError(
            "got a judge of type model without instructions, expected those of "
            "conf/judge/model.yaml: choose them with judge=model"
        )


class JudgeMaker:
    """Makes judges that ask a run's policy, or a server of their own."""

    def __init__(
        self,
        config: JudgeConfig,
        fleet: Policies,
        version: Callable[[], int],
        stack: AsyncExitStack,
        *,
        hints: bool,
    ) -> None:
        """`hints`: verdicts shall come with hints."""
        self._config = config
        self._fleet = fleet
        self._version = version
        self._stack = stack
        self._hints = hints

    def make(self) -> Judge | None:
        """None when turns are not judged: outcomes and explicit feedback remain."""
        config = self._config
        if config.type != "chain":
            return self._one(config.asked[0], config) if config.asked else None
        from clawrl_gym.judge.chain import ChainJudge

        share = config.model_copy(update={"timeout_s": config.timeout_s / len(config.chain)})
        return ChainJudge([self._one(name, share) for name in config.chain], config.timeout_s)

    def _one(self, name: JudgeName, config: JudgeConfig) -> Judge:
        if name == "rule":
            return _rules(config, self._hints)
        known = _rules(config, hints=False) if config.replies and config.results else None
        if name == "reward_model":
            from clawrl_gym.judge.reward_model import RewardModelJudge

            return RewardModelJudge(self._endpoint(config), config, rule=known)
        from clawrl_gym.judge.chat_models import HttpSpeaker, PolicySpeaker
        from clawrl_gym.judge.model import ModelJudge

        speaker = (
            PolicySpeaker(self._fleet, self._version)
            if config.base_url is None
            else HttpSpeaker(self._endpoint(config), config.model)
        )
        return ModelJudge(speaker, config, hints=self._hints, rule=known)

    def _endpoint(self, config: JudgeConfig) -> Endpoint:
        from clawrl_gym.judge.endpoint import Endpoint

        assert config.base_url is not None
        if config.key:
            redact.install([config.key])
        asked = config.votes + config.hints.candidates
        endpoint = Endpoint(
            config.base_url, config.key, config.timeout_s, config.concurrency * asked
        )
        self._stack.push_async_callback(endpoint.close)
        return endpoint


def _rules(config: JudgeConfig, hints: bool) -> Judge:
    from clawrl_gym.judge.rules import RuleJudge

    return RuleJudge(config, hints)
