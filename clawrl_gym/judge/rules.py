"""The judge that needs no model: patterns in what came back.

Any failed tool result is -1 and clean ones are +1. Words of a person go first: a correction or the
same request once more is -1, an acceptance or clearly going on is +1, anything else is 0. What is
matched is data: quotations are left out, and text that imitates votes or control tokens matches
nothing. The patterns are in conf/judge/rule.yaml.
"""

from __future__ import annotations

import time

from clawrl_gym.config import JudgeConfig
from clawrl_gym.errors import ConfigError
from clawrl_gym.judge.base import Case, Finding, text_of
from clawrl_gym.judge.replies import Replies
from clawrl_gym.judge.results import Results, answered, shown
from clawrl_gym.types import Message, Verdict, VerdictKind


class RuleJudge:
    """Judges by rule; the same case always gets the same verdict."""

    kind: VerdictKind = "rule"

    def __init__(self, config: JudgeConfig) -> None:
        if not config.replies or not config.results:
            raise ConfigError(
                "got judge.type=rule without rules, expected those of conf/judge/rule.yaml: "
                "choose them with judge=rule"
            )
        self._replies = Replies(config)
        self._results = Results(config)

    async def judge(self, case: Case) -> Verdict:
        found = self._judge(case)
        return Verdict(
            case.turn_id, self.kind, found.value, float(found.value), found.detail, time.time()
        )

    def _judge(self, case: Case) -> Finding:
        said = [] if case.observed else [self._said(m, case) for m in _of(case, "user")]
        clear = [finding for finding in said if finding.value]
        if clear:
            return min(clear, key=lambda finding: finding.value)
        came = self._came_back(case)
        if came:
            return min(came, key=lambda finding: finding.value)
        return said[-1] if said else Finding(0, {"rule": "nothing to judge"})

    def _said(self, message: Message, case: Case) -> Finding:
        return self._replies.find(text_of(message), case.request, text_of(case.reply))

    def _came_back(self, case: Case) -> list[Finding]:
        results = [m for m in case.next_state if m.get("role") in ("tool", "function")]
        pairs = answered(case.reply, results)
        if case.observed:
            pairs += [shown(case.reply, text_of(message)) for message in _of(case, "user")]
        return [self._results.find(text, call) for call, text in pairs]


def _of(case: Case, role: str) -> list[Message]:
    return [message for message in case.next_state if message.get("role") == role]
