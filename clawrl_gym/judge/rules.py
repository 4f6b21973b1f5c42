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
from clawrl_gym.core.types import Message, Verdict, VerdictDetail, VerdictKind
from clawrl_gym.judge import rule_hints
from clawrl_gym.judge.interface import Case, Finding, Judge
from clawrl_gym.judge.parts import JudgeParts
from clawrl_gym.judge.tool_rules import ToolRules, ToolUse, results_by_call, shown_output
from clawrl_gym.judge.user_rules import UserRules


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
        self._user_rules = UserRules(config)
        self._tool_rules = ToolRules(config)
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
        decisive, detail = findings[0].finding, findings[0].finding.detail.copy()
        hints = list(dict.fromkeys(each.hint for each in findings if each.hint))
        if self._hints and hints and decisive.value == -1:
            detail["hints"] = hints
        return Verdict(
            case.turn_id, self.kind, decisive.value, float(decisive.value), detail, time.time()
        )

    def _judge(self, case: Case) -> list[_HintedFinding]:
        """The finding that decides, then the others of its kind that say the same."""
        findings = [] if case.observed else [self._of_user(m, case) for m in _of(case, "user")]
        if not any(each.finding.value for each in findings):
            findings = self._of_results(case) or findings[-1:]
        return _deciding(findings) or [_HintedFinding(Finding(0, {"rule": "nothing to judge"}), "")]

    def _of_user(self, message: Message, case: Case) -> _HintedFinding:
        text = text_of(message)
        finding = self._user_rules.find(text, case.request, text_of(case.reply))
        again = finding.detail["rule"] == "restated"
        return _HintedFinding(finding, "" if again else rule_hints.hint_of_words(text))

    def _of_results(self, case: Case) -> list[_HintedFinding]:
        *before, last = case.next_state or [Message()]
        if case.observed and before and rule_hints.is_report(text_of(last)):
            return [self._result(ToolUse("", ""), text_of(last))]
        results = [m for m in case.next_state if m.get("role") in ("tool", "function")]
        pairs = results_by_call(case.reply, results)
        if case.observed:
            pairs += [shown_output(case.reply, text_of(message)) for message in _of(case, "user")]
        return [self._result(call, text) for call, text in pairs]

    def _result(self, call: ToolUse, text: str) -> _HintedFinding:
        hint = rule_hints.hint_of_report(text) or rule_hints.hint_of_error(text)
        return _HintedFinding(self._tool_rules.find(text, call), hint)


@dataclass(frozen=True, slots=True)
class _HintedFinding:
    """A finding, and what the same message teaches if the finding is -1."""

    finding: Finding
    hint: str


def _deciding(findings: list[_HintedFinding]) -> list[_HintedFinding]:
    """Those with the lowest value that says something."""
    clear = [each for each in findings if each.finding.value] or findings[:1]
    lowest = min((each.finding.value for each in clear), default=0)
    return [each for each in clear if each.finding.value == lowest]


def _of(case: Case, role: str) -> list[Message]:
    return [message for message in case.next_state if message.get("role") == role]


async def rule_value(rule: Judge | None, case: Case) -> VerdictDetail:
    """What the rules would say beside a model's verdict: it is noted and decides nothing.

    `rule`: the value of their verdict; nothing when there are none or they fail.
    """
    if rule is None:
        return {}
    try:
        verdict = await rule.judge(case)
    except Exception:  # noqa: BLE001 (a comparison must not cost the verdict)
        return {}
    return {"rule": verdict.value}
