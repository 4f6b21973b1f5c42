"""OSWorld's evaluators over what is left in the browser: getters, metrics, and how they combine.

`infeasible` is worth 1 when the model said itself that it gives up, and nothing else gives up for
it; for all other tasks giving up is worth 0. With "and" any 0 makes 0, else the mean counts; with
"or" the best counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.gui.osworld import Opaque
from clawrl_gym.envs.gui.osworld.dates import rules_of
from clawrl_gym.envs.gui.osworld.metrics import METRICS
from clawrl_gym.envs.gui.osworld.page_facts import html_script
from clawrl_gym.envs.gui.task import FinalState, PageFacts

INFEASIBLE = "infeasible"
_RULES = ("rule", "rule_relativeTime")
_NOWHERE = PageFacts("http://nowhere.invalid/a-b?c=d", "Nowhere", "<p>Nowhere</p>", [{}])


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """One metric over one result."""

    metric: str
    result: Mapping[str, Opaque]
    rules: Opaque
    options: Mapping[str, Opaque]
    facts: int | None = None
    """Which of the facts read off the page is the result."""


@dataclass(frozen=True, slots=True)
class OsworldGrader:
    """An evaluator; infeasible without checks."""

    checks: tuple[MetricCheck, ...]
    any_counts: bool = False
    """Conjunction "or"."""
    facts_script: str = ""

    @property
    def infeasible(self) -> bool:
        return not self.checks

    @property
    def needs_pages(self) -> bool:
        return not self.infeasible

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        if self.infeasible:
            return (1.0, ()) if final_state.gave_up else (0.0, ("the task cannot be done",))
        if final_state.gave_up:
            return 0.0, ("the task can be done, and was given up",)
        scores = [_score(check, final_state) for check in self.checks]
        missing = tuple(
            f"{check.metric} of {check.result['type']} gave {score:g}"
            for check, score in zip(self.checks, scores, strict=True)
            if score < 1.0
        )
        if self.any_counts:
            best = max(scores)
            return best, () if best == 1.0 else missing
        return (0.0 if 0.0 in scores else sum(scores) / len(scores)), missing


def grader_of(evaluator: Mapping[str, Opaque]) -> OsworldGrader:
    """Raises TaskError that names every metric and getter that is not here, or what is wrong."""
    names = _as_list(evaluator.get("func"))
    if names == [INFEASIBLE]:
        return OsworldGrader(())
    conjunction = evaluator.get("conj", "and")
    results, expected, options = (
        _aligned(evaluator.get(key), len(names)) for key in ("result", "expected", "options")
    )
    lacking = [
        *(f"metric {name!r}" for name in names if name not in METRICS),
        *(f"getter {_type(result)!r}" for result in results if _type(result) not in _GETTERS),
        *(f"expected {_type(one)!r}" for one in expected if one and _type(one) not in _RULES),
        *([] if conjunction in ("and", "or") else [f"conjunction {conjunction!r}"]),
    ]
    if lacking:
        raise TaskError(f"evaluator: {', '.join(dict.fromkeys(lacking))} not supported")
    checks = []
    scripts: list[str] = []
    for name, result, rule, option in zip(names, results, expected, options, strict=True):
        facts = None
        if _type(result) == "active_tab_html_parse":
            facts = len(scripts)
            scripts.append(html_script(result))
        checks.append(MetricCheck(name, result, _rules(rule), option or {}, facts))
    grader = OsworldGrader(
        tuple(checks), conjunction == "or", f"[{', '.join(scripts)}]" if scripts else ""
    )
    _try_out(grader)
    return grader


def _rules(expected: Mapping[str, Opaque] | None) -> Opaque:
    rules = (expected or {}).get("rules")
    return rules_of(rules or {}) if _type(expected) == "rule_relativeTime" else rules


def _try_out(grader: OsworldGrader) -> None:
    """Find rules that would fail at the end of an episode."""
    for check in grader.checks:
        try:
            _measured(check, FinalState({}, None, False, (_NOWHERE,)))
        except Exception as error:  # whatever a rule of any shape can cause
            raise TaskError(
                f"evaluator: {check.metric} of {check.result['type']} cannot be judged with "
                f"{json.dumps(check.rules)[:200]}: {type(error).__name__}: {error}"
            ) from error


def _score(check: MetricCheck, final_state: FinalState) -> float:
    if not final_state.tabs:
        return 0.0
    try:
        return _measured(check, final_state)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return 0.0  # the rules were tried before: what the page says is of another shape


def _measured(check: MetricCheck, final_state: FinalState) -> float:
    result = _GETTERS[check.result["type"]](check, final_state)
    return float(METRICS[check.metric](result, check.rules, check.options))


def _as_list(entry: Opaque) -> list[Opaque]:
    return list(entry) if isinstance(entry, list) else [entry]


def _aligned(entry: Opaque, count: int) -> list[Opaque]:
    """One for each metric."""
    entries = entry if isinstance(entry, list) else [entry] * count
    if len(entries) != count:
        raise TaskError(f"evaluator: got {len(entries)} for {count} metrics, expected as many")
    return entries


def _type(config: Opaque) -> Opaque:
    return config.get("type") if isinstance(config, dict) else None


def _active(final_state: FinalState) -> PageFacts:
    return final_state.tabs[min(max(final_state.active, 0), len(final_state.tabs) - 1)]


def _info(tab: PageFacts) -> dict[str, Opaque]:
    return {"title": tab.title, "url": tab.url, "content": tab.html}


def _active_info(check: MetricCheck, final_state: FinalState) -> Opaque:
    return _info(_active(final_state))


def _active_url(check: MetricCheck, final_state: FinalState) -> Opaque:
    return _active(final_state).url


def _tabs_info(check: MetricCheck, final_state: FinalState) -> Opaque:
    return [{"title": tab.title, "url": tab.url} for tab in final_state.tabs]


def _dash_part(check: MetricCheck, final_state: FinalState) -> Opaque:
    """One of the parts between the slashes of the URL."""
    config = check.result
    parts = _active(final_state).url.split("/")
    index = int(config["partIndex"])
    if not -len(parts) <= index < len(parts):
        return None
    part = parts[index].split("?")[0] if config.get("needDeleteId") else parts[index]
    return {config["key"]: part} if config["returnType"] == "json" else part


def _query(check: MetricCheck, final_state: FinalState) -> Opaque:
    """Fields of the URL's query."""
    config = check.result
    fields = parse_qs(urlsplit(_active(final_state).url).query)
    values: dict[str, Opaque] = {key: fields.get(key, [""])[0] for key in config["parse_keys"]}
    for key, new in (config.get("replace") or {}).items():
        values[new] = values.pop(key)
    for key, substitute in (config.get("or") or {}).items():
        values[key] = values[key] or values[substitute]
    if config.get("split_list"):
        return {key: value.split(",") for key, value in values.items()}
    return values


def _html(check: MetricCheck, final_state: FinalState) -> Opaque:
    facts = _active(final_state).facts
    if not isinstance(facts, list) or check.facts is None or check.facts >= len(facts):
        return None
    return facts[check.facts]


_GETTERS: Mapping[str, Callable[[MetricCheck, FinalState], Opaque]] = {
    "active_tab_info": _active_info,
    "active_url_from_accessTree": _active_url,
    "open_tabs_info": _tabs_info,
    "url_dashPart": _dash_part,
    "active_tab_url_parse": _query,
    "active_tab_html_parse": _html,
}
