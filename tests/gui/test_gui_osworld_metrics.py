"""OSWorld's metrics: what counts as right, and what comes near it."""

import pytest

from clawrl_gym.envs.gui.osworld.metrics import METRICS

URL = {"type": "url", "url": "http://www.Shop.org/"}
TABS = {"type": "url", "urls": ["http://a.org", "http://b.org/x"]}


def tabs(*urls):
    return [{"url": url} for url in urls]


@pytest.mark.parametrize(
    ("name", "result", "rules", "right"),
    [
        ("exact_match", "a", {"expected": "a"}, True),
        ("exact_match", "a", {"expected": "A"}, False),
        ("match_in_list", "a", {"expected": ["a", "b"]}, True),
        ("match_in_list", "c", {"expected": ["a", "b"]}, False),
        ("is_in_list", ["a", "b"], {"expected": "a"}, True),
        ("is_in_list", ["b"], {"expected": "a"}, False),
        ("is_in_list", None, {"expected": "a"}, False),
        ("literal_match", 3, "3", True),
        ("literal_match", "a", {"expected": "a"}, True),
        ("literal_match", "a", {"expected": "b"}, False),
        ("check_include_exclude", "red pen", {"include": ["red", "pen"]}, True),
        ("check_include_exclude", "red pen", {"include": ["red", "cup"]}, False),
        ("check_include_exclude", "red pen", {"include": ["red"], "exclude": ["cup"]}, True),
        ("check_include_exclude", "red pen", {"include": ["red"], "exclude": ["pen"]}, False),
        ("check_include_exclude", ["é"], {"include": ["é"]}, True),
        ("check_include_exclude", None, {}, False),
        ("check_include_exclude", "", {}, True),
        ("check_direct_json_object", " {'a': 1, 'b': 2} ", {"expected": {"a": 1}}, True),
        ("check_direct_json_object", {"a": 1}, {"expected": {"a": 2}}, False),
        ("check_direct_json_object", {"a": 1}, {"expected": {"a": 1, "b": 2}}, False),
        ("check_direct_json_object", [1], {"expected": {}}, False),
        ("check_direct_json_object", None, {"expected": {}}, False),
        ("is_expected_active_tab", {"url": "http://shop.ORG"}, URL, True),
        ("is_expected_active_tab", "HTTP://www.shop.org/", URL, True),
        ("is_expected_active_tab", "shop.org/x", URL, False),
        ("is_expected_active_tab", "https://shop.org/", URL, False),
        ("is_expected_active_tab", "http://shop.org/?a=1", URL, False),
        ("is_expected_active_tab", None, URL, False),
        ("is_expected_active_tab", "/x", {"type": "url", "url": "http:///x"}, True),
        ("is_expected_active_tab_approximate", "http://www.Shop.org/?a=1", URL, True),
        ("is_expected_active_tab_approximate", "http://shop.org/", URL, False),
        ("is_expected_tabs", tabs("http://b.org/x", "http://www.a.org/"), TABS, True),
        ("is_expected_tabs", tabs("http://a.org"), TABS, False),
        ("is_expected_tabs", tabs("http://a.org", "http://c.org"), TABS, False),
        ("is_expected_tabs", tabs("http://a.org", "http://b.org/x", "http://c.org"), TABS, False),
        ("is_expected_url_pattern_match", "http://a/b?c", {"expected": ["a/", r"c$"]}, True),
        ("is_expected_url_pattern_match", {"url": "http://a"}, {"expected": ["a/", "a"]}, False),
        ("is_expected_url_pattern_match", "", {"expected": []}, False),
        ("is_expected_search_query", "http://a?q=pens", {"expect": {"pattern": r"q=\w+"}}, True),
        ("is_expected_search_query", "http://a", {"expect": {"pattern": r"q=\w+"}}, False),
        ("is_added_to_steam_cart", {"content": "pen, cup"}, {"items": ["pen", "cup"]}, True),
        ("is_added_to_steam_cart", {"content": "pen"}, {"items": ["pen", "cup"]}, False),
        ("is_cookie_deleted", [".b.org"], {"type": "domains", "domains": ["a.org"]}, True),
        ("is_cookie_deleted", [".www.A.org"], {"type": "domains", "domains": ["a.org"]}, False),
        ("is_cookie_deleted", ["a.org"], {"type": "domains", "domains": [".www.a.org"]}, False),
    ],
)
def test_a_result_is_right_or_wrong(name, result, rules, right):
    assert METRICS[name](result, rules, {}) == float(right)


@pytest.mark.parametrize(
    ("result", "expected", "options", "right"),
    [
        ("A", "a", {"ignore_case": True}, True),
        ("A", "a", {"ignore_case": False}, False),
        (["A", 1], ["a", "1"], {"type": "list", "ignore_case": True}, True),
        (("a",), ["a"], {"type": "list"}, True),
        (["A"], ["a"], {"type": "list"}, False),
        (["a"], ["a", "b"], {"type": "list"}, False),
        ("a", ["a"], {"type": "list"}, False),
        (["a"], "a", {"type": "list"}, False),
    ],
)
def test_texts_and_lists_are_compared_as_the_options_say(result, expected, options, right):
    assert METRICS["literal_match"](result, {"expected": expected}, options) == float(right)


@pytest.mark.parametrize(
    ("value", "expected", "more", "right"),
    [
        ("red pen", "red", {}, True),
        ("red pen", ["cup", "pen"], {}, True),
        ("red pen", ["cup"], {}, False),
        (["red", "pen"], "pen", {}, True),
        (["red", "pen"], "pe", {}, False),
        ({"pen": 1}, "pen", {}, True),
        (["red"], ["pen", "red"], {}, True),
        ("red", ["pen", "red"], {"result_not_list": True}, True),
        ("red pen", ["pen", "red"], {"result_not_list": True}, False),
        ("red pen", "red", {"result_not_list": True}, True),
        ("1", [1], {}, False),
        (1, [1], {}, False),
        (None, "red", {}, False),
    ],
)
def test_a_value_may_have_the_expected_in_it(value, expected, more, right):
    rules = {"expected": {"k": expected}, "expect_in_result": True, **more}
    assert METRICS["check_direct_json_object"]({"k": value}, rules, {}) == float(right)


@pytest.mark.parametrize(
    ("name", "result", "rules", "options", "error"),
    [
        ("literal_match", "a", "a", {"type": "set"}, "expected 'str' or 'list'"),
        ("check_include_exclude", "a", {"include": [1]}, {}, "expected texts"),
        ("check_include_exclude", "a", {"exclude": [None]}, {}, "expected texts"),
        ("is_expected_active_tab", "a", {"type": "id", "url": "a"}, {}, "'id', expected 'url'"),
        ("is_cookie_deleted", [], {"type": "names", "domains": []}, {}, "expected 'domains'"),
    ],
)
def test_rules_that_no_metric_has_are_an_error(name, result, rules, options, error):
    with pytest.raises((ValueError, TypeError), match=error):
        METRICS[name](result, rules, options)
