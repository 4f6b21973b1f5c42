"""The judge that asks a model: several independent votes on a turn, and hints beside them.

Votes and hints are asked for at once and do not depend on each other: what fails of either, or is
late, leaves the other as it is. The model reads all that others wrote as quotations.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import ConfigError, ContextError, PolicyError, PolicyUnavailable
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Verdict, VerdictDetail, VerdictKind
from clawrl_gym.judge.hints import Hints, choose, parse_hint
from clawrl_gym.judge.interface import Case, Judge
from clawrl_gym.judge.models.chat_models import ChatModel, Completion
from clawrl_gym.judge.models.prompt import case_messages
from clawrl_gym.judge.models.votes import Value, gather_until, is_certain, majority, parse_vote
from clawrl_gym.judge.parts import JudgeParts
from clawrl_gym.judge.rules import rule_value

_SHARE_OF_TIME = 0.9
"""After this share of the deadline a verdict is made of what has come."""
_AGAIN_TEMPERATURE = 0.6
"""Least temperature for a repeated vote: a greedy model would only repeat itself."""
_SHORTEST_QUOTE = 200
_EXCERPT_CHARS = 300


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote, or why it is none."""

    value: Value | None
    text: str
    """The end of the answer."""
    fault: str
    """Why it is not a vote, without a word of the answer; empty for one that is."""
    retried: bool


class ModelJudge:
    """Judges by the majority of a model's votes."""

    kind: VerdictKind = "model"

    def __init__(
        self,
        model: ChatModel,
        config: JudgeConfig,
        *,
        hints: bool = False,
        rule: Judge | None = None,
    ) -> None:
        """`rule`: what it says is put beside the verdict."""
        self._model = model
        self._config = config
        self._candidates = config.hints.candidates if hints else 0
        self._rule = rule

    @classmethod
    def from_config(cls, config: JudgeConfig, parts: JudgeParts) -> ModelJudge:
        model, rule = parts.chat_model(config), parts.rules(config)
        return cls(model, config, hints=parts.hints, rule=rule)

    @classmethod
    def check_config(cls, config: JudgeConfig) -> None:
        """Raise ConfigError for what is wrong before anything starts."""
        if not (config.instructions and config.hint_instructions):
            raise ConfigError(
                "got a judge of type model without instructions, expected those of "
                "conf/judge/model.yaml: choose them with judge=model"
            )

    async def judge(self, case: Case) -> Verdict:
        votes, hints, ruled = await asyncio.gather(
            self._vote(case), self._hint(case), rule_value(self._rule, case)
        )
        values = [vote.value for vote in votes]
        value = majority(values, self._config.quorum)
        detail: VerdictDetail = {
            "votes": [*values],
            "retried": sum(vote.retried for vote in votes),
            **_answers_of(votes, value),
            **ruled,
        }
        if value is None:
            detail["reason"] = self._no_quorum(votes)
        if self._candidates:
            detail |= VerdictDetail(
                hints=hints.accepted, refused=hints.refused, hints_asked=self._candidates
            )
        reward = None if value is None else float(value)
        return Verdict(case.turn_id, self.kind, value, reward, detail, time.time())

    async def _vote(self, case: Case) -> list[Vote]:
        votes = [self._one_vote(case) for _ in range(self._config.votes)]
        enough = partial(_is_enough, quorum=self._config.quorum)
        return await gather_until(votes, enough, self._time_s)

    async def _hint(self, case: Case) -> Hints:
        hints = [self._one_hint(case) for _ in range(self._candidates)]
        answers = await gather_until(hints, lambda results, coming: False, self._time_s)
        next_state = [text_of(message) for message in case.next_state]
        return choose((hint for hint in answers if hint), next_state, self._config.hints)

    @property
    def _time_s(self) -> float:
        return self._config.timeout_s * _SHARE_OF_TIME

    async def _one_vote(self, case: Case) -> Vote:
        """A vote; asked for a second time when the first answer is none. Does not raise."""
        temperature = self._config.temperature
        vote, again = await self._try_vote(case, temperature, retried=False)
        if again:
            temperature = max(temperature, _AGAIN_TEMPERATURE)
            vote, _ = await self._try_vote(case, temperature, retried=True)
        return vote

    async def _try_vote(self, case: Case, temperature: float, retried: bool) -> tuple[Vote, bool]:
        """The vote, and whether it is worth asking again."""
        try:
            completion = await self._complete(self._config.instructions, case, temperature)
        except Exception as error:  # noqa: BLE001 (a vote that fails is no vote)
            again = isinstance(error, PolicyUnavailable) or not isinstance(error, PolicyError)
            fault = f"{type(error).__name__}: {error}"[:_EXCERPT_CHARS]
            return Vote(None, "", fault, retried), again
        value = parse_vote(completion)
        return Vote(
            value, completion.text.strip()[-_EXCERPT_CHARS:], _fault(completion), retried
        ), value is None

    async def _one_hint(self, case: Case) -> str | None:
        """The hint that the model offers, if any. Does not raise."""
        try:
            completion = await self._complete(
                self._config.hint_instructions, case, self._config.temperature
            )
        except Exception:  # noqa: BLE001 (the votes say what is wrong with the model)
            return None
        return parse_hint(completion)

    async def _complete(self, instructions: str, case: Case, temperature: float) -> Completion:
        """An answer on the case, quoted in so short a form that it fits the model's context."""
        limit = self._config.max_case_chars
        while True:
            messages = case_messages(instructions, case, limit)
            try:
                return await self._model.complete(messages, temperature, self._config.max_tokens)
            except ContextError:
                if limit <= _SHORTEST_QUOTE:
                    raise
                limit = max(_SHORTEST_QUOTE, limit // 2)

    def _no_quorum(self, votes: list[Vote]) -> str:
        valid = sum(vote.value is not None for vote in votes)
        count = f"{valid} valid votes of {self._config.votes}, expected {self._config.quorum}"
        fault = next((vote.fault for vote in votes if vote.value is None), "no answer in time")
        return f"{count}: {fault}"


def _fault(completion: Completion) -> str:
    if parse_vote(completion) is not None:
        return ""
    if not completion.finished:
        return "an answer was cut off (judge.max_tokens)"
    return "an answer had no vote" if completion.text.strip() else "an answer was empty"


def _is_enough(votes: list[Vote], coming: int, quorum: int) -> bool:
    return is_certain([vote.value for vote in votes], coming, quorum)


def _answers_of(votes: list[Vote], value: Value | None) -> VerdictDetail:
    """The end of one answer of the majority, and of those that were not votes."""
    why = next((vote.text for vote in votes if vote.value == value is not None), None)
    unread = [vote.text or vote.fault for vote in votes if vote.value is None]
    detail: VerdictDetail = {}
    if why is not None:
        detail["why"] = why
    if unread:
        detail["unread"] = unread
    return detail
