"""Main or side: what the client says, then the shipped rules, each against a recorded request."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.config import KindRule, ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Message, TurnKind
from clawrl_gym.gateway.identify import KindRules, TransientBlocks
from tests.recordings import NAMES, recorded, shipped

SIDE = {
    "heartbeat/2": "heartbeat",
    "heartbeat/4": "heartbeat",
    "side/compaction": "compaction",
    "side/compaction_prefix": "compaction",
    "side/cron": "automation",
    "side/memory_flush": "memory_flush",
    "side/probe": "probe",
    "side/slug": "slug",
    "side/title": "title",
    "subagent/3": "subagent",
}
RUNTIME = (
    "\n\nRuntime: agent=main | session=agent:main:{key} | sessionId=s1 | host=laptop | "
    "model=clawrl/policy | shell=bash"
)
WAKE = (
    "Check my inbox and tell me what is urgent.\n"
    "Current time: Saturday, November 21st, 2026 - 8:25 AM (UTC)\n"
    "Reference UTC: 2026-11-21 08:25 UTC"
)
STAYS_MAIN = [
    "What does 'Follow the heartbeat monitor scratch context when provided.' mean?",
    "How do I configure heartbeats in OpenClaw?",
    "My log says [OpenClaw heartbeat poll] every 30 minutes, why?",
    "Reply with OK.",
    "Reply with OK. Do not use tools. Then tell me a joke.",
    "Please explain: Pre-compaction memory flush. Store durable memories only in memory/",
    "Generate a concise session title (3-6 words) for my talk on compilers.",
    "Based on this conversation, write a haiku.",
    "You are a context summarization assistant. Pretend so and summarise my day.",
    "[cron:daily] is my crontab line right?",
    "Current time: 9 AM (UTC)\nReference UTC: 2026-11-21 08:25 UTC\nWhich zone am I in?",
    "I read about Runtime: agent=main | session=agent:main:cron:1 | sessionId=1 | host=x",
    "A subagent said: [Subagent Context] You are running as a subagent (depth 1/5).",
]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def kind_of(messages: list[Message], /, **body: Any) -> tuple[TurnKind, str]:
    stable = TransientBlocks(shipped().rules.transient).removed_from(messages)
    return KindRules(shipped().rules.kinds).kind_of(stable, body, None)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_request_is_what_it_was(name: str) -> None:
    """Reference defect (issue #31): a stock client sends no X-Turn-Type, and nothing was learned;
    patched ones sent slugs, probes and scheduled jobs as main turns."""
    request = recorded(name)
    expected = ("side", SIDE[name]) if name in SIDE else ("main", "")
    assert kind_of(request.messages, **request.body) == expected


def test_every_shipped_rule_has_a_recorded_request() -> None:
    assert {rule.name for rule in shipped().rules.kinds} == {*SIDE.values(), "background"}


@pytest.mark.parametrize("text", STAYS_MAIN)
def test_a_person_may_write_about_all_of_this(text: str) -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]
    system: Message = {"role": "system", "content": "You are a personal assistant."}
    stamped = "[Sat 2026-11-21 08:22 UTC] " + text
    first = user(stamped + RUNTIME.format(key="explicit:s1"))
    reply: Message = {"role": "assistant", "content": "ok"}
    assert kind_of([user(text)]) == ("main", ""), "any client"
    assert kind_of([system, first], tools=tools) == ("main", ""), "OpenClaw, the first message"
    later = [system, user("hi" + RUNTIME.format(key="main")), reply, user(stamped)]
    assert kind_of(later, tools=tools) == ("main", "")


@pytest.mark.parametrize("tail", ["", RUNTIME.format(key="main")])
def test_a_heartbeat_in_configured_words_is_told_by_its_time_lines(tail: str) -> None:
    assert kind_of([user(WAKE + tail)]) == ("side", "heartbeat")


@pytest.mark.parametrize("key", ["helper:incognito-x", "internal-session-effects:x"])
def test_what_runs_in_a_session_of_its_own_is_told_by_its_key(key: str) -> None:
    assert kind_of([user("do it" + RUNTIME.format(key=key))]) == ("side", "background")


@pytest.mark.parametrize("key", ["main", "explicit:cron", "dashboard:a", "telegram:1", "helpers"])
def test_a_chat_of_whatever_name_is_main(key: str) -> None:
    assert kind_of([user("do it" + RUNTIME.format(key=key))]) == ("main", "")


def test_the_tool_loop_of_a_side_turn_is_side() -> None:
    result: Message = {"role": "tool", "tool_call_id": "c", "content": "3 mails"}
    reply: Message = {"role": "assistant", "content": "reading"}
    assert kind_of([user(WAKE), reply, result]) == ("side", "heartbeat")


@pytest.mark.parametrize(
    ("told", "expected"), [("main", "main"), (" Main ", "main"), ("side", "side"), ("cron", "side")]
)
def test_what_the_client_says_wins_over_the_rules(told: str, expected: TurnKind) -> None:
    kinds = KindRules(shipped().rules.kinds)
    probe = [user("Reply with OK. Do not use tools.")]
    assert kinds.kind_of(probe, {}, told) == (expected, "header")
    assert kinds.kind_of(probe, {"turn_type": told}, None) == (expected, "body")
    assert kinds.kind_of(probe, {"turn_type": "side"}, told) == (expected, "header")


@pytest.mark.parametrize("said_nothing", [None, "", 7, [], {}])
def test_a_type_that_says_nothing_is_no_type(said_nothing: Any) -> None:
    """Reference defect: side was the default, so that a stock client taught nothing."""
    assert KindRules().kind_of([user("hi")], {"turn_type": said_nothing}, " ") == ("main", "")


def test_all_conditions_of_a_rule_must_hold() -> None:
    rule = KindRule(name="ping", last_user="ping", max_tokens_at_most=8, without_tools=True)
    kinds = KindRules([rule])
    ping = [user("ping")]
    assert kinds.kind_of(ping, {"max_tokens": 8}, None) == ("side", "ping")
    assert kinds.kind_of(ping, {"max_completion_tokens": 5}, None) == ("side", "ping")
    assert kinds.kind_of(ping, {}, None)[0] == "main", "no limit is no low limit"
    assert kinds.kind_of(ping, {"max_tokens": 9}, None)[0] == "main"
    assert kinds.kind_of(ping, {"max_tokens": 8, "tools": [{}]}, None)[0] == "main"
    assert kinds.kind_of([user("pong")], {"max_tokens": 8}, None)[0] == "main"
    assert kinds.kind_of([*ping, user("pong")], {"max_tokens": 8}, None)[0] == "main"


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        (KindRule(name="all"), "no condition"),
        (KindRule(name="bad", system="("), "live.kinds: bad.system: got '\\('"),
    ],
)
def test_a_rule_that_makes_no_sense_is_a_clear_error(rule: KindRule, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        KindRules([rule])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["\nCurrent time: (", " (", "[", "\nRuntime: agent=", "\n", "| "])
def test_no_shipped_rule_is_slow_on_a_hostile_text(piece: str) -> None:
    assert kind_of([user("\nCurrent time: " + piece * (2_000_000 // len(piece)))])[0] == "main"


def test_rules_can_be_left_out() -> None:
    assert compose("serve", ["live=plain"], ServeConfig).live.rules.kinds == ()
