"""OSWorld's `active_tab_html_parse`, as an expression over the document."""

from __future__ import annotations

import json
from collections.abc import Mapping

from clawrl_gym.core.errors import TaskError

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "class": (
        "class_singleObject", "class_multiObject", "class_multiObject_child",
        "class_multiObject_only_child", "class_multiObject_search_exist",
    ),
    "class&url": (
        "class_multiObject", "class_multiObject_li", "url_include_expected",
        "url_include_expected_multichoice",
    ),
    "label": ("labelObject",),
    "xpath": ("xpathObject",),
    "input": ("inputObject",),
}  # fmt: skip
"""Configuration keys that each category reads."""
_COMMON_KEYS = ("type", "category", "goto_prefix", "xpath", "selectors")

_SCRIPT = """((config) => {
  const found = {};
  const of = (key) => Object.entries(config[key] || {});
  const said = (element) => ((element && element.textContent) || '').trim();
  const all = (name) => [...document.querySelectorAll('.' + name)];
  const texts = (name) => all(name).map(said);
  const own = (element) => [...element.childNodes].filter((one) => one.nodeType === 3)
    .map((one) => one.textContent.trim()).filter(Boolean);
  const at = (path) => document.evaluate(path, document, null, 9, null).singleNodeValue;
  const put = (listed, wanted) => {
    for (const [index, key] of Object.entries(wanted)) found[key] = listed[Number(index)] || '';
  };
  const named = (listed, wanted) => {
    const low = listed.map((text) => text.toLowerCase());
    for (const key of wanted)
      if (low.includes(key.toLowerCase())) found[key.toLowerCase()] = true;
    const others = low.some((text) => wanted.every((key) => !key.toLowerCase().includes(text)));
    found.is_other_exist = found.is_other_exist || others;
  };
  if (config.category === 'class&url') {
    const url = location.href.toLowerCase();
    const told = (key, name) => {
      const low = name.toLowerCase();
      if (!(low in found)) found[low] = url.includes(key.toLowerCase());
    };
    const rows = (name) => document.querySelectorAll('.' + name + ' li.catAllProducts span');
    for (const [name, wanted] of of('class_multiObject')) named(texts(name), wanted);
    for (const [name, wanted] of of('class_multiObject_li'))
      named([...rows(name)].map(said), wanted);
    for (const key of config.url_include_expected || []) told(key, key);
    for (const [key, name] of of('url_include_expected_multichoice')) told(key, name);
    return found;
  }
  for (const [name, wanted] of of('class_multiObject')) put(texts(name), wanted);
  for (const [name, wanted] of of('class_multiObject_child'))
    put(all(name).length ? own(all(name)[0]) : [], wanted);
  for (const [name, wanted] of of('class_multiObject_only_child'))
    put(all(name).map((one) => one.querySelector('h3')).filter(Boolean).map(said), wanted);
  for (const [name, wanted] of of('class_multiObject_search_exist')) {
    const listed = texts(name);
    for (const key of wanted)
      found[key] = key === 'is_other_exist'
        ? listed.some((text) => !wanted.includes(text)) : listed.includes(key);
  }
  for (const [name, key] of of('class_singleObject')) found[key] = said(all(name)[0]);
  for (const [text, key] of of('labelObject')) {
    const holds = (one) => one.textContent.toLowerCase().includes(text.toLowerCase());
    const inner = [...document.body.querySelectorAll('*')].filter(holds)
      .filter((one) => ![...one.children].some(holds));
    found[key] = said(inner[0]);
  }
  for (const [path, key] of of('xpathObject')) found[key] = said(at(path));
  for (const [path, key] of of('inputObject')) found[key] = ((at(path) || {}).value || '').trim();
  return found;
})(CONFIG)"""


def html_script(config: Mapping[str, object]) -> str:
    """Raises TaskError for a category or key that is not here."""
    category = str(config.get("category"))
    if category not in CATEGORIES:
        raise TaskError(
            f"evaluator: active_tab_html_parse got category {category!r}, expected one of: "
            f"{', '.join(CATEGORIES)}"
        )
    wrong = sorted(set(config) - {*_COMMON_KEYS, *CATEGORIES[category]})
    if wrong:
        raise TaskError(
            f"evaluator: active_tab_html_parse of category {category!r} has {', '.join(wrong)}, "
            "which is not supported"
        )
    return _SCRIPT.replace("CONFIG", json.dumps(dict(config)))
