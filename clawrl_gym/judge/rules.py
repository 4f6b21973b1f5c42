"""The judge that needs no model: patterns in what came back.

A failed tool result is -1; one that is known as a success is +1, as weak evidence
(`judge.tool_success_weight`); of one that no rule knows the judge abstains. Words of a person go
first: a correction or the same request once more is -1, an acceptance or clearly continuing is +1,
anything else is 0. Thanks are for what the reply said: a reply that only called tools, and failed,
stays -1. What an environment's checks report at the end goes before what its last command showed.

What is matched is data: quotations are left out, and text that imitates votes or control tokens
matches nothing. The patterns are in conf/judge/rule.yaml. What led to -1 is a hint, unless a person
only gave up or said the request again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, Verdict, VerdictDetail, VerdictKind
from clawrl_gym.judge import rule_hints
from clawrl_gym.judge.interface import Case, Finding, Judge
from clawrl_gym.judge.parts import JudgeParts
from clawrl_gym.judge.signals.speech import Speech
from clawrl_gym.judge.signals.tool_rules import ToolRules, ToolUse, results_by_call, shown_output


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
        self._speech = Speech(config)
        self._tool_rules = ToolRules(config)
        self._hints = hints

    @classmethod
    def from_config(cls, config: JudgeConfig, parts: JudgeParts) -> RuleJudge:
        return cls(config, parts.hints)

    @classmethod
    def check_config(cls, config: JudgeConfig) -> None:
        """Raise ConfigError for what is wrong before anything starts."""
        cls(config)

    async def judge(self, case: Case) -> Verdict:
        findings = self._judge(case)
        decisive, detail = findings[0].finding, findings[0].finding.detail.copy()
        hints = list(dict.fromkeys(each.hint for each in findings if each.hint))
        if self._hints and hints:
            detail["hints"] = hints
        reward = None if decisive.value is None else float(decisive.value)
        return Verdict(
            case.turn_id,
            self.kind,
            decisive.value,
            reward,
            detail,
            time.time(),
            weight=decisive.weight,
        )

    def _judge(self, case: Case) -> list[_HintedFinding]:
        """The finding that decides, then the others of its kind that say the same."""
        said = [] if case.observed else [self._of_user(m, case) for m in _of(case, "user")]
        results = self._of_results(case)
        words, outcome = _deciding(said), _deciding(results)
        if _value(words) == 1 and _value(outcome) == -1 and not _has_words(case.reply):
            return outcome  # thanks are for words that were read, not for a call that failed
        if _value(words) in (1, -1):
            return words
        if _value(outcome) == -1:
            return outcome
        return _deciding([*words, *outcome]) or [_HintedFinding(_NOTHING, "")]

    def _of_user(self, message: Message, case: Case) -> _HintedFinding:
        text = text_of(message)
        finding = self._speech.find(text, case.request, text_of(case.reply))
        if finding.value == -1 and finding.detail["rule"] not in _WISHLESS:
            return _HintedFinding(finding, rule_hints.hint_of_words(text))
        lasting = finding.detail.get("lasting")
        return _HintedFinding(finding, rule_hints.hint_of_words(text) if lasting else "")

    def _of_results(self, case: Case) -> list[_HintedFinding]:
        *before, last = case.next_state or [Message()]
        if case.observed and before and rule_hints.is_report(text_of(last)):
            return [self._result(ToolUse("", ""), text_of(last), marked=False)]
        results = [m for m in case.next_state if m.get("role") in ("tool", "function")]
        findings = [
            self._result(call, text, case.marks_failures)
            for call, text in results_by_call(case.reply, results)
        ]
        if case.observed:
            marked = case.marks_failures and not case.tools  # beside tools a user may be played
            outputs = [shown_output(case.reply, text_of(message)) for message in _of(case, "user")]
            findings += [self._result(call, text, marked) for call, text in outputs]
        return findings

    def _result(self, call: ToolUse, text: str, marked: bool) -> _HintedFinding:
        finding = self._tool_rules.find(text, call, marked)
        if finding.value != -1:
            return _HintedFinding(finding, "")
        return _HintedFinding(
            finding, rule_hints.hint_of_report(text) or rule_hints.hint_of_error(text)
        )


@dataclass(frozen=True, slots=True)
class _HintedFinding:
    """A finding, and what the same message teaches; empty when it teaches nothing."""

    finding: Finding
    hint: str


_WISHLESS = ("restated", "gives_up")
"""Rules of complaints that do not say how the reply should have been: as a hint, "forget it" would
teach to apologize."""
_NOTHING = Finding(None, {"rule": "none", "reason": "nothing to judge"})
_DECIDING_ORDER = (-1, None, 1, 0)
"""Order of decision: a failure is clear; what was not understood may have failed."""


def _deciding(findings: list[_HintedFinding]) -> list[_HintedFinding]:
    """The findings with the value that decides."""
    values = {each.finding.value for each in findings}
    value = next((value for value in _DECIDING_ORDER if value in values), None)
    return [each for each in findings if each.finding.value == value]


def _value(findings: list[_HintedFinding]) -> int | None:
    return findings[0].finding.value if findings else None


def _has_words(reply: Message) -> bool:
    return bool(text_of(reply).strip())


def _of(case: Case, role: str) -> list[Message]:
    return [message for message in case.next_state if message.get("role") == role]


async def rule_value(rule: Judge | None, case: Case) -> VerdictDetail:
    """The rules' verdict beside a model's: it is noted and decides nothing.

    `rule`: the value of their verdict; nothing when there are none or they fail.
    """
    if rule is None:
        return {}
    try:
        verdict = await rule.judge(case)
    except Exception:  # noqa: BLE001 (a comparison must not cost the verdict)
        return {}
    return {"rule": verdict.value}
