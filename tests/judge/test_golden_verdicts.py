"""What the shipped rules say of everything that is written down for them, one by one.

Other tests hold the shares of what must be seen; here no single verdict changes unnoticed. A rule
that is made better changes some: `python -m tests.judge.test_golden_verdicts` writes the new file,
and its difference is what to look at.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from clawrl_gym.core.types import Json, Message
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.signals.tool_fields import Fields
from clawrl_gym.judge.signals.user_rules import restates
from tests.judge.test_judge_rules import NEGATIVE, NEUTRAL, POSITIVE, REQUEST
from tests.judge.test_judge_tools import OTHER_TOOLS
from tests.support.answers import HALVES, LANGUAGES, UNDECLARED, answers, finding_of, speech
from tests.support.fakes_judge import reply, tool, user
from tests.support.tool_results import LISTS, ToolResult, of_list, rule_judge

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden" / "verdicts.json"
_SIGNS = {1: "+", 0: "0", -1: "-", None: "."}
Found = tuple[Literal[-1, 0, 1] | None, dict[str, Any], float]
"""Value, detail and weight of a verdict."""
_OUTCOMES = {"failed": "-", "succeeded": "+", "empty": "0", None: "."}

KEYS = (
    "error", "errors", "Error-Message", "isError", "timed_out", "success", "ok", "exitCode", "rc",
    "status", "state", "result", "code", "statusCode", "signal", "message", "detail", "total",
    "results", "warning", "output", "metadata", "data", "items", "order",
)  # fmt: skip
VALUES: tuple[object, ...] = (
    True, False, None, 0, 1, 199, 200, 299, 300, 399, 400, 599, 600, -32000, -32001, -33000, "",
    "0", "1", "no error", "false", "Yes", "error", "failed", "ok", "done", "404 Not Found",
    "2000000",
    "TypeError: x is not a function", "all good", [], {}, [0], {"a": 1}, ["Name is required"],
    [{"loc": ["a"], "msg": "b"}], [{"error": "x"}], [{"error": "x"}, {"id": 1}], '{"error": "x"}',
    [{"error": "x"}, {"name": 1}], {"exit_code": 0}, {"exit_code": 3}, {"status": "failed"},
    {"type": "text", "text": "Error: no such file"},
)  # fmt: skip


def of_results(name: str) -> dict[str, object]:
    """By tool: signs of the verdicts; under its own name the rules that decided, too."""
    told: dict[str, object] = {}
    for other in ("own", *OTHER_TOOLS):
        results = [one if other == "own" else replace(one, tool=other) for one in of_list(name)]
        found: list[Found] = [_judged(_tools_case(one)) for one in results]
        told[other] = _signs(found)
        if other == "own":
            told["rules"] = _counted(found)
    return told


def of_words() -> dict[str, object]:
    """What people said, by language and half, and in English after two kinds of replies."""
    told: dict[str, object] = {}
    for code in (*LANGUAGES, UNDECLARED):
        for half in HALVES:
            findings = [finding_of(speech(), one) for one in answers(code, half)]
            found: list[Found] = [(one.value, {**one.detail}, one.weight) for one in findings]
            told[f"{code} {half}"] = {"signs": _signs(found), "rules": _counted(found)}
    for name, texts in {"negative": NEGATIVE, "positive": POSITIVE, "neutral": NEUTRAL}.items():
        for after in _REPLIES:
            found = [_judged(_words_case(line, after)) for line in texts.strip().splitlines()]
            told[f"{name} after {after}"] = {"signs": _signs(found), "rules": _counted(found)}
    return told


def of_answers() -> dict[str, str]:
    """Verdicts of answers in JSON: for each key, in several objects, a sign for each value."""
    fields = Fields(lambda text: text.startswith(("Error", "TypeError")))
    told: dict[str, str] = {}
    for key in KEYS:
        for name, around in _AROUND.items():
            outcomes = [
                fields.outcome(_put(around, key, value), "exec", name == "in a file")
                for value in VALUES
            ]
            told[f"{key} {name}"] = "".join(_OUTCOMES[one] for one in outcomes)
    inner: object = {"error": "x"}
    for depth in range(8):
        told[f"{depth} deep"] = "".join(
            _OUTCOMES[fields.outcome(answer, "", False)]
            for answer in ({"r": 1, "data": inner}, {"ok": True, "x": inner}, [inner])
        )
        inner = {"result": inner}
    return told


def of_requests() -> dict[str, str]:
    """Whether a request is known again: a sign for each way in which it is said once more."""
    told: dict[str, str] = {}
    for request in REQUESTS:
        words = request.split()
        said = [
            request.upper(),
            *(" ".join(words[:at] + words[at + 1 :]) for at in range(len(words))),
            *(" ".join([*words[:at], "blue", *words[at:]]) for at in range(len(words))),
            *(" ".join([*words[:at], word[::-1], *words[at + 1 :]]) for at, word in _at(words)),
            *(" ".join([*words[:at], word[1:], *words[at + 1 :]]) for at, word in _at(words)),
            *(" ".join([*words[:at], word.title(), *words[at + 1 :]]) for at, word in _at(words)),
            *(f"{request} {' '.join(f'more{number}' for number in range(n))}" for n in range(8)),
            *(f"please {request} again, I said {word}" for word in words),
            request.replace("3", "4"), request.replace("a", "e", 1), request * 2, request[:6],
        ]  # fmt: skip
        told[request] = "".join("+" if restates(text, request) else "." for text in said)
    return told


REQUESTS = (
    "count the lines of server.log", "list files", "Translate 'good morning' into French for Anna",
    "what is 3 + 4 * 5", "delete it", "write a polite email to my boss about the late delivery",
    "今日の天気を教えて", "写诗", "remind me tomorrow at 3 to call Dr. Smith",
)  # fmt: skip


def _at(words: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(words))


_AROUND: dict[str, Json] = {
    "alone": {},
    "beside data": {"order": 7},
    "of a success": {"success": True},
    "with a message": {"message": "Error: it broke", "order": 7},
    "inside": {"result": {}},
    "in a file": {"status": "error"},
}
_REPLIES: dict[str, Message] = {
    "words": reply("I wrote it."),
    "a question": reply("I can write it. Shall I?"),
    "a call": reply(None, ("call_1", "exec", "{}")),
}


def _put(around: Json, key: str, value: object) -> Json:
    return {"result": {key: value}} if "result" in around else {**around, key: value}


def _tools_case(result: ToolResult) -> Case:
    call = reply(None, ("call_1", result.tool, "{}"))
    return Case(1, "Do it.", call, [tool(result.text, "call_1")])


def _words_case(words: str, after: str) -> Case:
    came = [tool("Error: no such file", "call_1")] if after == "a call" else []
    return Case(1, REQUEST, _REPLIES[after], [*came, user(words)])


def _judged(case: Case) -> Found:
    verdict = asyncio.run(rule_judge(hints=True).judge(case))
    return verdict.value, {**verdict.detail}, verdict.weight


def _signs(found: list[Found]) -> str:
    return "".join(_SIGNS[value] for value, _, _ in found)


def _counted(found: list[Found]) -> dict[str, int]:
    """How often which rule decided, with what weight and with how many letters of hints."""
    named = (
        f"{_SIGNS[value]} {detail.pop('rule')} {weight:g}{' lasting' * ('lasting' in detail)}"
        for value, detail, weight in found
    )
    counts = dict(sorted(Counter(named).items()))
    rest = "".join(json.dumps(detail, sort_keys=True, default=str) for _, detail, _ in found)
    return {**counts, "letters of the rest": len(rest)}


@pytest.mark.parametrize("name", LISTS)
def test_results_of_tools_are_judged_as_they_were(name: str) -> None:
    assert of_results(name) == json.loads(GOLDEN.read_text("utf-8"))["results"][name]


def test_words_of_people_are_judged_as_they_were() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))["words"]
    now = of_words()
    assert now.keys() == golden.keys()
    for name, found in now.items():
        assert found == golden[name], name


def test_answers_in_json_are_read_as_they_were() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))["answers"]
    now = of_answers()
    assert now.keys() == golden.keys()
    assert {name: (now[name], golden[name]) for name in now if now[name] != golden[name]} == {}


def test_requests_are_known_again_as_they_were() -> None:
    assert of_requests() == json.loads(GOLDEN.read_text("utf-8"))["requests"]


if __name__ == "__main__":
    everything = {
        "results": {name: of_results(name) for name in LISTS},
        "words": of_words(),
        "answers": of_answers(),
        "requests": of_requests(),
    }
    GOLDEN.write_text(json.dumps(everything, indent=0, ensure_ascii=False) + "\n", "utf-8")
