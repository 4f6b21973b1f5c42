"""OSWorld's evaluators over what is left in the browser: getters, metrics, and how they combine.

`infeasible` is worth 1 when the model said itself that it gives up, and nothing else gives up for
it. For all other tasks giving up is a failure, as in OSWorld, and costs so much that who gives up
every task of a set earns nothing in all (`files.py`). With "and" any 0 makes 0, else the mean
counts; with "or" the best counts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.gui.osworld import Opaque
from clawrl_gym.envs.gui.osworld.dates import rules_of
from clawrl_gym.envs.gui.osworld.metrics import METRICS
from clawrl_gym.envs.gui.osworld.page_facts import html_script
from clawrl_gym.envs.gui.task import FinalState, PageFacts

INFEASIBLE = "infeasible"
_HALF_OFF = "50_PERCENT_ off & more"
_RULES = ("rule", "rule_relativeTime")
_NOWHERE = PageFacts("http://nowhere.invalid/a-b?c=d", "Nowhere", "<p>Nowhere</p>", [{}])
_BROWSERS_OWN = (
    "bookmarks", "chrome_appearance_mode_ui", "chrome_color_scheme", "chrome_font_size",
    "chrome_language", "chrome_saved_address", "data_delete_automacally", "default_search_engine",
    "enable_do_not_track", "enable_enhanced_safety_browsing", "enable_safe_browsing",
    "enabled_experiments", "extensions_installed_from_shop", "find_installed_extension_name",
    "find_unpacked_extension_path", "history", "new_startup_page", "profile_name",
)  # fmt: skip
"""Getters of what is changed in a browser's own windows, which no page shows."""


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
    end_pages: tuple[str, ...] = ()
    """URLs whose pages are looked at when the episode is over."""
    giving_up_costs: float = 0.0
    """Cost of a `give_up` where the task can be done."""

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
            return 0.0 - self.giving_up_costs, ("the task can be done, and was given up",)
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
        *(_lacking_getter(_type(result)) for result in results if _type(result) not in _GETTERS),
        *(f"expected {_type(one)!r}" for one in expected if one and _type(one) not in _RULES),
        *([] if conjunction in ("and", "or") else [f"conjunction {conjunction!r}"]),
    ]
    if lacking:
        raise TaskError(f"evaluator: {', '.join(dict.fromkeys(lacking))} not supported")
    end_pages = [str(result["url"]) for result in results if _type(result) == "page_info"]
    checks = []
    scripts: list[str] = []
    for name, result, rule, option in zip(names, results, expected, options, strict=True):
        facts = None
        if _type(result) == "active_tab_html_parse":
            facts = len(scripts)
            scripts.append(html_script(result))
        checks.append(MetricCheck(name, result, _rules(rule), option or {}, facts))
    grader = OsworldGrader(
        tuple(checks),
        conjunction == "or",
        f"[{', '.join(scripts)}]" if scripts else "",
        tuple(dict.fromkeys(end_pages)),
    )
    _try_out(grader)
    return grader


def _lacking_getter(name: Opaque) -> str:
    if name in _BROWSERS_OWN:
        return f"getter {name!r} (it is in the browser's own windows, which no page shows)"
    return f"getter {name!r}"


def _rules(expected: Mapping[str, Opaque] | None) -> Opaque:
    rules = (expected or {}).get("rules")
    return rules_of(rules or {}) if _type(expected) == "rule_relativeTime" else rules


def _try_out(grader: OsworldGrader) -> None:
    """Find rules that would fail at the end of an episode."""
    for check in grader.checks:
        try:
            end_pages = dict.fromkeys(grader.end_pages, _NOWHERE)
            _measured(check, FinalState({}, None, False, (_NOWHERE,), end_pages=end_pages))
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


def _department(check: MetricCheck, final_state: FinalState) -> Opaque:
    """Filters in the path of a shop's URL, as macys.com writes them."""
    path = unquote(urlsplit(_active(final_state).url).path)
    parts = path.strip("/").split("/")
    pairs = itertools.pairwise(parts)
    names, values = next(
        ((a.split(","), b.split(",")) for a, b in pairs if "," in a and "," in b), ([], [])
    )
    filters = {name.strip(): value.strip() for name, value in zip(names, values, strict=False)}
    is_shirts = filters.get("Product_department") in ("shirts", "Shirts", "Shirt")
    is_short = filters.get("Sleeve_length") in ("short-sleeve", "Short Sleeve")
    facts: dict[str, Opaque] = {
        "mens_clothing": "mens-clothing" in path or None,
        "shirts": "shirts" in path or is_shirts or None,
        "short_sleeve": "short-sleeve" in path or is_short or None,
        "Price_discount_range": _discount(filters.get("Price_discount_range", "").split("|")),
    }
    named = {key: filters.get(key) or None for key in check.result["parse_keys"]}
    return {**named, **facts}


def _discount(ranges: list[str]) -> str:
    chosen = {one.strip() for one in ranges}
    others = {f"{percent}_PERCENT_ off & more" for percent in (20, 30)}
    is_half = _HALF_OFF in chosen and not chosen & others
    return _HALF_OFF if is_half else f"not_{_HALF_OFF}"


def _page_info(check: MetricCheck, final_state: FinalState) -> Opaque:
    return _info(final_state.end_pages[check.result["url"]])


def _cookies(check: MetricCheck, final_state: FinalState) -> Opaque:
    return list(final_state.cookie_domains)


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
    "cookie_data": _cookies,
    "macys_product_url_parse": _department,
    "page_info": _page_info,
    "url_path_parse": _department,
}
