"""OSWorld's metrics of what a browser shows: a result, rules and options give a score in [0, 1]."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit, urlunsplit

from clawrl_gym.envs.gui.osworld import Opaque

Metric = Callable[[Opaque, Opaque, Mapping[str, Opaque]], float]


def _exact(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    return float(result == rules["expected"])


def _in_list(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """The result is one of those expected."""
    return float(result in rules["expected"])


def _has(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """Whether the expected value is one of the results."""
    return float(rules["expected"] in (result or ()))


def _literal(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """Equal texts, or equal lists of texts."""
    expected = rules.get("expected") if isinstance(rules, dict) else rules
    fold = str.casefold if options.get("ignore_case") else str
    kind = options.get("type", "str")
    if kind == "list":
        if not isinstance(result, list | tuple) or not isinstance(expected, list | tuple):
            return 0.0
        return float([fold(str(one)) for one in result] == [fold(str(one)) for one in expected])
    if kind != "str":
        raise ValueError(f"got the type {kind!r}, expected 'str' or 'list'")
    return float(fold(str(result)) == fold(str(expected)))


def _include_exclude(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    include, exclude = rules.get("include", []), rules.get("exclude", [])
    if not all(isinstance(word, str) for word in (*include, *exclude)):
        raise TypeError("expected texts to include and exclude")
    if result is None:
        return 0.0
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    has_all = all(word in text for word in include)
    return float(has_all and not any(word in text for word in exclude))


def _json_object(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """Each expected key has its value; `expect_in_result`: the value has the expected in it."""
    expected = rules["expected"].items()
    if isinstance(result, str):
        result = json.loads(result.strip().replace("'", '"'))
    if not isinstance(result, dict):
        return 0.0
    if not rules.get("expect_in_result"):
        return float(all(result.get(key) == value for key, value in expected))
    return float(all(_within(result.get(key), value, rules) for key, value in expected))


def _within(value: Opaque, expected: Opaque, rules: Mapping[str, Opaque]) -> bool:
    """Whether one of the expected is in what was found, or is it with `result_not_list`."""
    options = expected if isinstance(expected, list) else [expected]
    if isinstance(expected, list) and rules.get("result_not_list"):
        return value in options
    if isinstance(value, str) and all(isinstance(one, str) for one in options):
        return any(one in value for one in options)
    return isinstance(value, list | tuple | dict) and any(one in value for one in options)


def _active_tab(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    expected = _url_rule(rules, "url")
    return float(_plain_url(_url(result)) == _plain_url(expected))


def _active_tab_roughly(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """Whether the active tab fits, whatever the query."""
    urls = (urlsplit(_url(result)), urlsplit(_url_rule(rules, "url")))
    url, expected = (urlunsplit(parts._replace(query="")) for parts in urls)
    return float(url == expected)


def _tabs(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """Whether there are as many tabs as expected, each among those expected."""
    expected = [_plain_url(url) for url in _url_rule(rules, "urls")]
    urls = [_plain_url(tab["url"]) for tab in result]
    return float(len(urls) == len(expected) and all(url in urls for url in expected))


def _url_pattern(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """All of the patterns."""
    patterns = [re.compile(pattern) for pattern in rules["expected"]]
    url = _url(result)
    return float(bool(url) and all(pattern.search(url) for pattern in patterns))


def _search_query(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    pattern = re.compile(rules["expect"]["pattern"])
    return float(pattern.search(_url(result)) is not None)


def _in_cart(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    return float(all(item in result["content"] for item in rules["items"]))


def _no_cookie(result: Opaque, rules: Opaque, options: Mapping[str, Opaque]) -> float:
    """No cookie of any of the domains is left."""
    if rules["type"] != "domains":
        raise ValueError(f"got the type {rules['type']!r}, expected 'domains'")
    left = {_plain_domain(domain) for domain in result}
    return float(not left & {_plain_domain(domain) for domain in rules["domains"]})


def _plain_domain(domain: str) -> str:
    return domain.lower().lstrip(".").removeprefix("www.")


def _url(result: Opaque) -> str:
    return str(result["url"] if isinstance(result, dict) else result or "")


def _url_rule(rules: Opaque, key: str) -> Opaque:
    if rules["type"] != "url":
        raise ValueError(f"got the type {rules['type']!r}, expected 'url'")
    return rules[key]


def _plain_url(url: str) -> str:
    """Two URLs that differ in "www.", letter case of the host or a bare slash are one."""
    parts = urlsplit(url)
    host = parts.netloc.lower().replace("www.", "")
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme.lower() or "http", host, path, parts.query, parts.fragment))


METRICS: Mapping[str, Metric] = {
    "check_direct_json_object": _json_object,
    "check_include_exclude": _include_exclude,
    "exact_match": _exact,
    "is_added_to_steam_cart": _in_cart,
    "is_cookie_deleted": _no_cookie,
    "is_expected_active_tab": _active_tab,
    "is_expected_active_tab_approximate": _active_tab_roughly,
    "is_expected_search_query": _search_query,
    "is_expected_tabs": _tabs,
    "is_expected_url_pattern_match": _url_pattern,
    "is_in_list": _has,
    "literal_match": _literal,
    "match_in_list": _in_list,
}
