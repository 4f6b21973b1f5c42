"""The judge that needs no model: patterns in what came back.

Any failed tool result is -1 and clean ones are +1. Words of a person go first: a correction or the
same request once more is -1, an acceptance or clearly going on is +1, anything else is 0. What an
environment's checks report at the end goes before what its last command showed. What is
matched is data: quotations are left out, and text that imitates votes or control tokens matches
nothing. The patterns are in conf/judge/rule.yaml. What led to -1 is a hint, in the words of
`judge.lessons`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, Verdict, VerdictKind
from clawrl_gym.judge import rule_hints
from clawrl_gym.judge.interface import Case, Finding
from clawrl_gym.judge.parts import JudgeParts
from clawrl_gym.judge.tool_rules import Call, Results, answered, shown
from clawrl_gym.judge.user_rules import Replies


class RuleJudge:
    """Judges by rule; the same case always gets the same verdict."""

    kind: VerdictKind = "rule"

    def __init__(self, config: JudgeConfig, hints: bool = False) -> None:
        """`hints`: a verdict of -1 brings what it teaches."""
        if not config.replies or not config.results:
            raise ConfigError(
                "got judge.type=rule without rules, expected those of conf/judge/rule.yaml: "
                "choose them with judge=rule"
            )
        self._replies = Replies(config)
        self._results = Results(config)
        self._hints = hints

    @classmethod
    def from_config(cls, config: JudgeConfig, parts: JudgeParts) -> RuleJudge:
        return cls(config, parts.hints)

    @classmethod
    def check_config(cls, config: JudgeConfig) -> None:
        """Raises ConfigError for what is wrong before anything starts."""
        cls(config)

    async def judge(self, case: Case) -> Verdict:
        findings = self._judge(case)
        found, detail = findings[0].finding, findings[0].finding.detail.copy()
        hints = list(dict.fromkeys(each.lesson for each in findings if each.lesson))
        if self._hints and hints and found.value == -1:
            detail["hints"] = hints
        return Verdict(
            case.turn_id, self.kind, found.value, float(found.value), detail, time.time()
        )

    def _judge(self, case: Case) -> list[_Found]:
        """The finding that decides, then the others of its kind that say the same."""
        said = [] if case.observed else [self._said(m, case) for m in _of(case, "user")]
        if not any(found.finding.value for found in said):
            came = self._came_back(case)
            said = came or said[-1:]
        return _deciding(said) or [_Found(Finding(0, {"rule": "nothing to judge"}), "")]

    def _said(self, message: Message, case: Case) -> _Found:
        text = text_of(message)
        finding = self._replies.find(text, case.request, text_of(case.reply))
        again = finding.detail["rule"] == "restated"
        return _Found(finding, "" if again else rule_hints.lesson_of_words(text))

    def _came_back(self, case: Case) -> list[_Found]:
        *before, last = case.next_state or [Message()]
        if case.observed and before and rule_hints.is_report(text_of(last)):
            return [self._result(Call("", ""), text_of(last))]
        results = [m for m in case.next_state if m.get("role") in ("tool", "function")]
        pairs = answered(case.reply, results)
        if case.observed:
            pairs += [shown(case.reply, text_of(message)) for message in _of(case, "user")]
        return [self._result(call, text) for call, text in pairs]

    def _result(self, call: Call, text: str) -> _Found:
        lesson = rule_hints.lesson_of_report(text) or rule_hints.lesson_of_error(text)
        return _Found(self._results.find(text, call), lesson)


@dataclass(frozen=True, slots=True)
class _Found:
    """A finding, and what the same message teaches if the finding is -1."""

    finding: Finding
    lesson: str


def _deciding(found: list[_Found]) -> list[_Found]:
    """Those with the lowest value that says something."""
    clear = [each for each in found if each.finding.value] or found[:1]
    lowest = min((each.finding.value for each in clear), default=0)
    return [each for each in clear if each.finding.value == lowest]


def _of(case: Case, role: str) -> list[Message]:
    return [message for message in case.next_state if message.get("role") == role]
