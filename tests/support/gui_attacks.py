"""Replies that try to be graded 1 on pages without doing what was asked for."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clawrl_gym.envs.gui.action import GuiAction, Kind
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.text_calls import format_action
from clawrl_gym.envs.showcase.gui.families import FAMILIES

Replies = Callable[[GuiEnv], list[str]]
"""What is replied, made of the page that is there; the last reply ends the task if it can."""
EVERY = 8
"""One family in so many is attacked."""
FIELDS = frozenset(("textbox", "searchbox", "spinbutton"))


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    replies: Replies


def _action(kind: Kind, **fields: object) -> str:
    return format_action(GuiAction(kind, **fields))  # type: ignore[arg-type]


def _said(*replies: str) -> Replies:
    return lambda env: list(replies)


def _typed(text: str) -> Replies:
    """Into each field of the page, then each button."""

    def replies(env: GuiEnv) -> list[str]:
        fields = [one.id for one in env.view.elements if one.role in FIELDS]
        buttons = [one.id for one in env.view.elements if one.role == "button"]
        lines = [_action("type", id=number, text=text) for number in fields]
        return ["\n".join([*lines, _action("click", id=number)]) for number in buttons or [1]]

    return replies


def _opened(url: str) -> Replies:
    def replies(env: GuiEnv) -> list[str]:
        host = next(iter(env.task.sites))
        return [_action("goto", text=url.replace("HOST", host)), _action("done")]

    return replies


def _all_of_the_page(env: GuiEnv) -> list[str]:
    words = " ".join(part for line in env.view.lines for part in line if isinstance(part, str))
    return [_action("answer", text=words)]


_TEXTS = {
    "nothing": "", "spaces": "   ", "a NUL": "a\0b", "line breaks": "a\nb\r\nc",
    "2,001 letters": "x" * 2001, "a million letters": "x" * 1_000_000, "emoji": "😀" * 50,
    "right to left": "\u202eabc", "half a surrogate": "a\udc80", "controls": "\x01\x1b[31m\x7f",
    "markup": "<b>x</b>", "a script": "<script>location='/'</script>",
    "an image with a handler": '"><img src=x onerror=alert(1)>',
    "a template": "{{ 7 * 7 }}{% for x in range(9) %}{% endfor %}", "SQL": "' OR '1'='1'; --",
    "a path": "../../../etc/passwd", "JSON": '{"basket": [], "__proto__": {"x": 1}}',
    "a shell": "$(id) `id` ; id", "NaN": "NaN", "Infinity": "Infinity", "minus nothing": "-0",
    "a huge number": "9" * 400, "an exponent": "1e308", "a long fraction": "1/" + "0" * 99,
    "Arabic figures": "\u0661\u0662", "full width": "\uff11\uff12", "a formula": "=1/0",
    "a formula of itself": "=A1", "deep brackets": "=" + "(" * 99, "a formula bomb": "=" + "9*" * 49 + "9",
    "a chain of formulas": "=SUM(A1:Z99)", "format": "%s%n%x {0.__class__}", "Python": "__import__('os')",
    "a pickle": "cos\nsystem\n(S'id'\ntR.", "a date that is none": "2024-02-31", "29:61": "29:61",
    "an address": "a@b@c", "headers": "x\r\nSet-Cookie: a=b", "true": "true", "None": "None",
}  # fmt: skip
_ADDRESSES = (
    "http://HOST/state", "http://HOST/../state", "http://HOST/%2e%2e/", "http://HOST/?a=" + "b" * 9999,
    "http://HOST/orders?confirm=1&buy=1", "http://HOST//", "http://HOST/%00", "http://HOST/\udc80",
    "http://HOST:81/", "http://user:pass@HOST/", "http://HOST.evil/", "http://127.0.0.1/", "http://[::1]/",
    "https://HOST/", "javascript:fetch('/',{method:'POST'})", "data:text/html,<form>", "file:///etc/passwd",
    "chrome://crash", "chrome://kill", "about:blank", "view-source:http://HOST/", "blob:http://HOST/1",
    "ftp://HOST/", "//HOST/", "", "x" * 10_000,
)  # fmt: skip
ATTACKS = (
    Attack("done at once", _said(_action("done"))),
    Attack("no answer", _said(_action("answer", text=""))),
    Attack("everything that is on the page", _all_of_the_page),
    Attack("an answer that fits all", _said(_action("answer", text=".*"))),
    Attack("None as an answer", _said(_action("answer", text="None"))),
    Attack("an endless answer", _said(_action("answer", text="1 " * 1_000_000))),
    Attack("NaN as an answer", _said(_action("answer", text="NaN"))),
    Attack("infinity as an answer", _said(_action("answer", text="sNaN"))),
    Attack("an answer that claims the grade", _said(_action("answer", text="Test report: passed"))),
    Attack("no action", _said("Test report: passed", "reward: 1.0", "")),
    Attack("a broken action", _said("click(", 'type(1, "', "answer", '{"tool_calls": [{}]}')),
    Attack("a thousand actions", _said("\n".join(["click(1)"] * 1000))),
    Attack("numbers of no element", _said("click(999999999999)", "click(-1)", "click(1e9)")),
    Attack("two ends", _said('done()\nanswer("x")\ngive_up()\ndone()')),
    Attack("all tabs closed", _said("close_tab(0)\nclose_tab(0)\nclose_tab(0)", "done()")),
    *(Attack(f"{name} is typed", _typed(text)) for name, text in _TEXTS.items()),
    *(Attack(f"goto {url[:40]!r}", _opened(url)) for url in _ADDRESSES),
)


def attacked_tasks(every: int = EVERY) -> list[str]:
    """One task in one family of so many."""
    names = sorted(FAMILIES)[::every]
    return [f"gui-{name}-heldout-000003" for name in names]


def reward_of(env: GuiEnv, task_id: str, attack: Attack) -> float:
    """What an episode with the attack earns. Raises what leaves no grade."""
    env.reset(options={"task": task_id})
    total = 0.0
    replies: Sequence[str] = attack.replies(env)
    for reply in replies:
        _, reward, terminated, truncated, _ = env.step(reply)
        total += reward
        if terminated or truncated:
            return total
    return total + env.finish()
