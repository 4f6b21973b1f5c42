"""Builds the configured judge, and finds what is wrong with it before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core import redact
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import HINT_SOURCES, JUDGES
from clawrl_gym.core.reach import silence
from clawrl_gym.judge.interface import JUDGED_KINDS, Judge
from clawrl_gym.preflight.problems import Problems

if TYPE_CHECKING:
    from clawrl_gym.inference.interface import Policies
    from clawrl_gym.judge.models.chat_models import ChatModel
    from clawrl_gym.judge.models.endpoint import JudgeEndpoint


def judge_problems(judges: Sequence[JudgeConfig]) -> Iterator[str]:
    """Problems of the judges, a line each, before anything starts."""
    problems = Problems()
    with problems.noted():
        for judge in judges:
            check_judge(judge)
    yield from problems.lines
    for address in {judge.base_url for judge in judges}:
        if address is not None:
            yield from silence("judge.base_url", address)


def check_judge(config: JudgeConfig) -> None:
    """Raise ConfigError."""
    for name in config.judges:
        judge = JUDGES.resolve(name).target
        if isinstance(judge.kind, str) and judge.kind not in JUDGED_KINDS:
            raise ConfigError(
                f"got judge.type={name}, whose kind is {judge.kind!r}, expected one of "
                f"{', '.join(JUDGED_KINDS)}"
            )
        check = getattr(judge, "check_config", None)
        if check is not None:
            check(config)
    if config.hints.source not in HINT_SOURCES.words:
        HINT_SOURCES.resolve(config.hints.source)


def judge_in_words(config: JudgeConfig) -> str:
    """The judge, in a line for people."""
    judges = judges_in_words(config) or "people alone"
    return f"judge: {judges} (judge={config.type}); feedback always wins"


def judges_in_words(config: JudgeConfig) -> str:
    """The judges that are asked, in their order; empty when none is."""
    names = {
        "rule": "rules",
        "model": f"{config.votes} votes of {config.base_url or 'the policy itself'}",
        "reward_model": f"the classifier at {config.base_url}",
    }
    return ", then ".join(names.get(name, name) for name in config.judges)


class JudgeMaker:
    """Makes judges that ask a run's policy, or a server of their own."""

    def __init__(
        self,
        config: JudgeConfig,
        fleet: Policies | None,
        version: Callable[[], int],
        stack: AsyncExitStack,
        *,
        hints: bool,
    ) -> None:
        """`fleet` None: there is no run whose policy could be asked; `hints`: verdicts shall come
        with hints."""
        self._config = config
        self._fleet = fleet
        self._version = version
        self._stack = stack
        self._source = config.hints.source if hints else "judge"
        self.hints = hints and self._source in HINT_SOURCES.words

    def make(self) -> Judge | None:
        """Make the judge; None when turns are not judged: outcomes and explicit feedback remain."""
        config = self._config
        if config.type in JUDGES.words:
            return None
        judge = self.judge(config.type, config)
        if self._source in HINT_SOURCES.words:
            return judge
        from clawrl_gym.judge.hint_source import HintedJudge

        source = HINT_SOURCES.resolve(self._source).build(config.hints, self)
        return HintedJudge(judge, source, config.hints, config.timeout_s)

    def judge(self, name: str, config: JudgeConfig) -> Judge:
        judge: Judge = JUDGES.resolve(name).build(config, self)
        return judge

    def rules(self, config: JudgeConfig) -> Judge | None:
        if not (config.replies and config.results):
            return None
        from clawrl_gym.judge.rules import RuleJudge

        return RuleJudge(config)

    def chat_model(self, config: JudgeConfig) -> ChatModel:
        from clawrl_gym.judge.models.chat_models import HttpChatModel, PolicyChatModel

        if config.base_url is not None:
            return HttpChatModel(self.endpoint(config), config.model)
        if self._fleet is None:
            raise ConfigError(
                f"got judge={self._config.type}, which asks a model, and no judge.base_url: no "
                "policy runs here that could be asked; expected the address of a server of the "
                "OpenAI API, judge.base_url=http://HOST:PORT/v1"
            )
        return PolicyChatModel(self._fleet, self._version)

    def endpoint(self, config: JudgeConfig) -> JudgeEndpoint:
        from clawrl_gym.judge.models.endpoint import JudgeEndpoint

        assert config.base_url is not None
        if config.key:
            redact.install([config.key])
        requests = config.votes + config.hints.candidates
        endpoint = JudgeEndpoint(
            config.base_url, config.key, config.timeout_s, config.concurrency * requests
        )
        self._stack.push_async_callback(endpoint.close)
        return endpoint
