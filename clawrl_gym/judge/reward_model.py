"""The judge that is a classifier: how likely it finds it that a reply was good.

vLLM serves a sequence classifier at `/classify` (`vllm serve MODEL --runner pooling`); the
probability of its last class is read.
"""

from __future__ import annotations

import time
from typing import Any, Literal, cast

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import JsonObject, Verdict, VerdictDetail, VerdictKind
from clawrl_gym.judge.interface import Case, Judge
from clawrl_gym.judge.models.endpoint import JudgeEndpoint
from clawrl_gym.judge.models.prompt import case_text
from clawrl_gym.judge.parts import JudgeParts
from clawrl_gym.judge.rules import rule_value


class RewardModelJudge:
    """Judges by two thresholds on a probability."""

    kind: VerdictKind = "model"

    def __init__(
        self, endpoint: JudgeEndpoint, config: JudgeConfig, *, rule: Judge | None = None
    ) -> None:
        """`rule`: what it says is put beside the verdict."""
        self._endpoint = endpoint
        self._config = config
        self._rule = rule

    @classmethod
    def from_config(cls, config: JudgeConfig, parts: JudgeParts) -> RewardModelJudge:
        return cls(parts.endpoint(config), config, rule=parts.rules(config))

    async def judge(self, case: Case) -> Verdict:
        """Raises PolicyError for a server that fails or answers with anything else."""
        body: JsonObject = {"input": case_text(case, self._config.max_case_chars)}
        if self._config.model is not None:
            body["model"] = self._config.model
        # the route is not one of OpenAI's: it stands beside /v1
        answer = await self._endpoint.post("/classify", body, self._endpoint.beside_v1())
        probability = _probability(answer)
        value = self._value(probability)
        ruled = await rule_value(self._rule, case)
        detail: VerdictDetail = {"probability": probability, **ruled}
        return Verdict(case.turn_id, self.kind, value, float(value), detail, time.time())

    def _value(self, probability: float) -> Literal[-1, 0, 1]:
        if probability >= self._config.positive_above:
            return 1
        return -1 if probability < self._config.negative_below else 0


def _probability(answer: object) -> float:
    """Probability of the last class."""
    try:
        probability = cast(Any, answer)["data"][0]["probs"][-1]
    except (KeyError, IndexError, TypeError):
        probability = None
    is_number = isinstance(probability, int | float) and not isinstance(probability, bool)
    if not is_number or not 0 <= probability <= 1:
        raise PolicyError(
            f"the reward model answered {str(answer)[:200]!r}, expected the probabilities of its "
            "classes: is it a sequence classifier?"
        )
    return float(probability)
