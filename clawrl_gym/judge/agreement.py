"""What the rules say beside a model's verdict: it is told and decides nothing."""

from __future__ import annotations

from clawrl_gym.core.types import VerdictDetail
from clawrl_gym.judge.interface import Case, Judge


async def rule_said(rule: Judge | None, case: Case) -> VerdictDetail:
    """`rule`: the value of the rules' verdict; nothing when there are none or they fail."""
    if rule is None:
        return {}
    try:
        verdict = await rule.judge(case)
    except Exception:  # noqa: BLE001 (a comparison must not cost the verdict)
        return {}
    return {"rule": verdict.value}
