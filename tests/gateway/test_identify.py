"""Which session a request belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import INTERRUPTED, Message
from clawrl_gym.dialogue.graph import Branch, SessionIndex, TurnNode
from clawrl_gym.gateway.wire.identify import Identifier, Identity, Origin
from clawrl_gym.gateway.wire.refusals import Refusal
from tests.gateway.test_sessions import assistant, make_turn, user
from tests.support.recordings import CLIENTS, conversation, recorded, shipped

SYSTEM: Message = {"role": "system", "content": "Be kind."}


class Bench:
    """An identifier, and turns as they are recorded."""

    def __init__(self) -> None:
        self.identifier = Identifier(shipped())
        self.turns = 0

    def ask(self, *messages: Message, retry: int | None = None, **body: Any) -> Identity:
        headers = {} if retry is None else {"X-Stainless-Retry-Count": str(retry)}
        return self.identifier.identify(list(messages), body, Origin(headers=headers))

    def answer(self, identity: Identity, reply: str, finish_reason: str = "stop") -> None:
        self.turns += 1
        turn = make_turn([], reply, id=self.turns, finish_reason=finish_reason)
        node = TurnNode.of(turn, identity.branch, identity.exact_request, [])
        self.identifier.add_turn(identity.session_id, node)

    def say(self, *messages: Message, reply: str = "ok", **body: Any) -> Identity:
        identity = self.ask(*messages, **body)
        self.answer(identity, reply)
        return identity


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_session_is_named_by_path_then_header_then_body(bench: Bench) -> None:
    def told(path: str | None, headers: dict[str, str], body: dict[str, Any]) -> tuple[str, str]:
        identity = bench.identifier.identify([user("hi")], body, Origin("", path, headers))
        return identity.session_id, identity.matched_by

    header, body = {"X-Session-Id": "h"}, {"session_id": "b", "metadata": {"session_id": "m"}}
    assert told("p", header, body) == ("p", "path")
    assert told(None, header, body) == ("h", "header")
    assert told(None, {"x-session-id": " "}, body) == ("b", "body")
    assert told(None, {}, {"metadata": {"session_id": "m"}}) == ("m", "body")
    assert told(None, {}, {"session_id": 7}) == ("7", "body")


def test_a_client_that_names_no_session_is_never_put_into_a_common_one(bench: Bench) -> None:
    """Reference defect: all anonymous clients shared one session called `unknown`."""
    told = [bench.say(user("hi")) for _ in range(20)]
    assert len({identity.session_id for identity in told}) == 20
    assert {identity.matched_by for identity in told} == {"new"}
    assert not any("unknown" in identity.session_id for identity in told)


@pytest.mark.parametrize("bad", ["a b", "../x", "", "x" * 201, "a\nb", "-a", "a/b"])
def test_a_name_that_cannot_be_a_session_is_refused(bench: Bench, bad: str) -> None:
    with pytest.raises(Refusal, match="got session id"):
        bench.identifier.identify([user("hi")], {}, Origin(path_id=bad))
    if bad.strip():
        with pytest.raises(Refusal, match="got session id"):
            bench.identifier.identify([user("hi")], {"session_id": bad}, Origin())
    metadata = {"metadata": {"session_id": bad}}
    told = bench.identifier.identify([user("hi")], metadata, Origin())
    assert told.matched_by == "new", "it may be meant for somebody else"


def test_a_users_name_is_no_session_but_keeps_histories_apart(bench: Bench) -> None:
    ann, bob = (bench.say(user("hi"), user=name) for name in ("ann", "bob"))
    assert ann.session_id != bob.session_id
    for identity, name in ((bob, "bob"), (ann, "ann")):
        again = bench.ask(user("hi"), assistant("ok"), user("more"), user=name)
        assert (again.session_id, again.matched_by) == (identity.session_id, "history")
    nobody = bench.ask(user("hi"), assistant("ok"), user("more"))
    assert nobody.matched_by == "new"


@pytest.mark.parametrize(
    ("folder", "session_id"),
    [("conversation", "chat"), ("tools", "shop"), ("local", "loc"), ("compaction", "shop")],
)
def test_openclaws_runtime_line_names_the_session(
    bench: Bench, folder: str, session_id: str
) -> None:
    for request in conversation(folder):
        identity = bench.ask(*request.messages)
        assert (identity.session_id, identity.matched_by) == (session_id, "runtime")


@pytest.mark.parametrize(
    ("release", "threads"),
    [
        (
            "claude-code-2.1",
            [
                "question tool_result second_question",
                "agent agent_started subagent subagent_result compaction after_compaction",
                "title side_question",
            ],
        ),
        (
            "codex-0.171",
            [
                "question tool_result second_question",
                "spawn spawned",
                "subagent",
                "review",
                "compaction after_compaction",
            ],
        ),
    ],
)
def test_claude_code_and_codex_name_their_sessions_in_a_header(
    bench: Bench, release: str, threads: list[str]
) -> None:
    seen: list[set[str]] = []
    for thread in threads:
        told = [recorded(f"{release}/{name}", CLIENTS) for name in thread.split()]
        identities = [
            bench.identifier.identify(one.messages, one.body, Origin(headers=one.headers))
            for one in told
        ]
        assert {identity.matched_by for identity in identities} == {"header"}
        seen.append({identity.session_id for identity in identities})
    assert [len(ids) for ids in seen] == [1] * len(threads)
    assert len(set.union(*seen)) == len(threads)


def test_a_clients_header_comes_after_ours_and_before_the_body() -> None:
    client = {"session_headers": ["X-Thread", "X-Chat"]}
    identifier = Identifier(LiveConfig.model_validate({"clients": {"mine": client}}))

    def told(**headers: str) -> tuple[str, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        identity = identifier.identify([user("hi")], {"session_id": "b"}, Origin(headers=named))
        return identity.session_id, identity.matched_by

    assert told(x_session_id="s", x_thread="t", x_chat="c") == ("s", "header")
    assert told(x_chat="c", x_thread=" t ") == ("t", "header")
    assert told(X_Chat="c", x_thread="no id") == ("c", "header")
    assert told(x_thread="no id") == ("b", "body"), "it may be meant for somebody else"


def test_a_header_of_a_client_that_says_main_decides_nothing() -> None:
    rule = {"name": "nightly", "last_user": "Nightly"}
    client = {"kind_headers": ["X-Class"], "kinds": [rule], "subagent_headers": ["X-Agent"]}
    identifier = Identifier(LiveConfig.model_validate({"clients": {"mine": client}}))

    def told(text: str, **headers: str) -> tuple[str, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        identity = identifier.identify([user(text)], {}, Origin(headers=named))
        return identity.kind, identity.rule

    assert told("hi", x_class="main") == told("hi", x_class=" ") == ("main", "")
    assert told("hi", X_Class="compaction") == ("side", "header")
    assert told("Nightly", x_class="main") == ("side", "nightly")
    assert told("hi", x_class="subagent", x_agent="a1") == ("side", "subagent")
    assert told("hi", x_class="compaction", x_turn_type="main") == ("main", "header")


def test_only_the_first_messages_last_line_is_the_runtime_line(bench: Bench) -> None:
    line = "Runtime: agent=main | session=agent:main:main | sessionId={} | host=h"
    own, others = line.format("mine"), line.format("yours")
    assert bench.ask(user(f"look: {others}\n\n{own}")).session_id == "mine"
    assert bench.ask(user("hi"), assistant("ok"), user(f"see\n{others}")).matched_by == "new"
    assert bench.ask(user(f"{others}\nwhat is this?")).matched_by == "new"
    assert bench.ask(SYSTEM, user(f"hi\n\n{own}")).session_id == "mine"
    bad = line.format("a\u00e9")
    assert bench.ask(user(f"hi\n\n{bad}")).matched_by == "new", "cannot be a session"


def test_two_chats_whose_names_have_spaces_are_not_one_session(bench: Bench) -> None:
    line = "Runtime: agent=main | session=agent:main:explicit:{0} | sessionId={0} | host=pc"
    first = bench.say(user(f"Hello\n\n{line.format('my chat')}"), reply="hi")
    second = bench.say(user(f"Hello\n\n{line.format('my dog')}"), reply="hi")
    assert first.session_id != second.session_id
    again = bench.ask(
        user(f"Hello\n\n{line.format('my dog')}"), assistant("hi"), user("How are you?")
    )
    assert (again.session_id, again.matched_by) == (second.session_id, "history")


def test_a_header_wins_over_the_runtime_line(bench: Bench) -> None:
    request = recorded("conversation/1")
    headers = request.headers | {"X-Session-Id": "plugin"}
    identity = bench.identifier.identify(request.messages, request.body, Origin(headers=headers))
    assert (identity.session_id, identity.matched_by) == ("plugin", "header")


def test_a_history_leads_to_its_session(bench: Bench) -> None:
    first = bench.say(SYSTEM, user("a"), reply="one")
    told = [user("a"), assistant("one"), user("b")]
    changed: Message = {"role": "system", "content": "Be kind. It is Sunday now."}
    second = bench.say(changed, *told, reply="two")
    assert (second.session_id, second.matched_by) == (first.session_id, "history")
    third = bench.ask(*told, assistant(" two\n"), user("c"))
    assert third.session_id == first.session_id, "white space says nothing"


def test_a_fork_belongs_to_the_session_that_it_left(bench: Bench) -> None:
    first = bench.say(user("a"), reply="one")
    bench.say(user("a"), assistant("one"), user("b"), reply="two")
    fork = bench.ask(user("a"), assistant("one"), user("other"))
    assert fork.session_id == first.session_id


def test_a_reply_that_was_not_ours_is_passed_over(bench: Bench) -> None:
    first = bench.say(user("a"), reply="one")
    told = [user("a"), assistant("one"), user("b"), assistant("of another model"), user("c")]
    assert bench.ask(*told).session_id == first.session_id
    assert bench.ask(user("a"), assistant("of another model"), user("c")).matched_by == "new"


def test_two_people_with_the_same_first_words_are_not_mixed(bench: Bench) -> None:
    """Each goes on with a session of his own, whichever comes first, and stays there."""
    one, two = bench.say(user("hi"), reply="hello"), bench.say(user("hi"), reply="hello")
    assert one.session_id != two.session_id
    told = [user("hi"), assistant("hello")]
    ann, bob = bench.say(*told, user("ann"), reply="x"), bench.say(*told, user("bob"), reply="x")
    assert {ann.session_id, bob.session_id} == {one.session_id, two.session_id}
    for name, own in (("bob", bob), ("ann", ann)):
        later = bench.ask(*told, user(name), assistant("x"), user("more"))
        assert later.session_id == own.session_id


def test_asking_the_same_again_stays_in_its_session(bench: Bench) -> None:
    """A regenerated reply must not go to the other person with the same history."""
    bench.say(user("hi"), reply="hello")
    bench.say(user("hi"), reply="hello")
    told = [user("hi"), assistant("hello"), user("a poem please")]
    first = bench.say(*told, reply="roses")
    again = bench.ask(*told)
    assert again.session_id == first.session_id


def test_a_first_message_never_leads_to_an_old_session_unless_it_is_a_retry(bench: Bench) -> None:
    first = bench.say(user("hi"), reply="hello")
    assert bench.ask(user("hi")).matched_by == "new"
    assert bench.ask(user("hi"), retry=0).matched_by == "new"
    retry = bench.ask(user("other"), retry=1)
    assert retry.matched_by == "new", "nothing such was asked before"
    del first


def test_a_retry_finds_the_request_that_has_no_reply_yet(bench: Bench) -> None:
    bench.say(user("hi"), reply="hello")
    waiting = bench.ask(user("hi"))
    bench.say(user("hi"), reply="hello")
    retry = bench.ask(user("hi"), retry=1)
    assert (retry.session_id, retry.is_retry) == (waiting.session_id, True)


def test_a_retry_finds_a_request_whose_answer_was_lost(bench: Bench) -> None:
    done = bench.say(user("hi"), reply="hello")
    assert bench.ask(user("hi"), retry=2).session_id == done.session_id


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, None), ("0", False), ("3", True), ("-1", None), ("x", None), ("\u0663", None)],
)
def test_the_retry_count_says_whether_it_is_one(
    bench: Bench, count: str | None, expected: bool | None
) -> None:
    headers = {} if count is None else {"x-stainless-retry-count": count}
    assert bench.identifier.identify([user("hi")], {}, Origin(headers=headers)).is_retry is expected


def test_part_of_an_interrupted_reply_leads_to_its_session(bench: Bench) -> None:
    first = bench.ask(user("count"))
    bench.answer(first, "one two three four", INTERRUPTED)
    told = [user("count"), assistant("one two"), user("faster")]
    assert bench.ask(*told).session_id == first.session_id
    under_way = bench.ask(user("sing"))
    told = [user("sing"), assistant("la la"), user("louder")]
    assert bench.ask(*told).session_id == under_way.session_id, "still being made"


def test_part_of_a_later_reply_leads_to_who_asked_for_it(bench: Bench) -> None:
    """Not to the other person whose conversation began in the same words."""
    bench.say(user("hi"), reply="hello")
    bench.say(user("hi"), reply="hello")
    told = [user("hi"), assistant("hello"), user("count")]
    first = bench.ask(*told)
    bench.answer(first, "one two three", INTERRUPTED)
    bench.say(user("hi"), assistant("hello"), user("sing"), reply="la")
    later = bench.ask(*told, assistant("one two"), user("faster"))
    assert later.session_id == first.session_id


def test_a_compacted_history_leads_to_its_session_by_its_tail(bench: Bench) -> None:
    first = bench.say(user("a"), reply="one")
    bench.say(user("a"), assistant("one"), user("b"), reply="two")
    summary = user("Summary: they talked about letters.")
    tail = [user("b"), assistant("two"), user("c")]
    assert bench.ask(summary, *tail).session_id == first.session_id
    bench.say(user("x"), reply="y")
    bench.say(user("x"), assistant("y"), user("b"), reply="two")
    assert bench.ask(user("Another summary"), *tail).matched_by == "new", "two sessions fit"


def test_a_side_turn_claims_nothing(bench: Bench) -> None:
    one, two = bench.say(user("hi"), reply="hello"), bench.say(user("hi"), reply="hello")
    told = [user("hi"), assistant("hello")]
    bench.ask(*told, user("a title"), turn_type="side")
    answered = {bench.ask(*told, user(name)).session_id for name in ("ann", "bob")}
    assert answered == {one.session_id, two.session_id}


@pytest.mark.parametrize("value", ["1", "true", "YES", "on", True, 1])
def test_a_client_can_say_that_its_session_is_over(bench: Bench, value: Any) -> None:
    in_body = bench.identifier.identify([user("hi")], {"session_done": value}, Origin())
    headers = {"X-Session-Done": str(value)}
    assert in_body.ends_session
    assert bench.identifier.identify([user("hi")], {}, Origin(headers=headers)).ends_session


@pytest.mark.parametrize("value", ["", "0", "false", "no", None, 0, False, [], "later"])
def test_anything_else_leaves_it_open(bench: Bench, value: Any) -> None:
    assert not bench.identifier.identify(
        [user("hi")], {"session_done": value}, Origin()
    ).ends_session


def test_two_requests_are_the_same_only_with_the_same_tools_and_wishes(bench: Bench) -> None:
    def same(**body: Any) -> bytes:
        return bench.ask(SYSTEM, user("hi"), **body).exact_request

    assert same() == same(stream=True, stream_options={"include_usage": True})
    others = {same(tools=[{}]), same(temperature=0.5), same(turn_type="side"), same()}
    assert len(others) == 4
    assert bench.ask(user("hi")).exact_request != same(), (
        "another system message is another request"
    )


def test_a_pattern_without_a_group_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="runtime_session: got a pattern without a group"):
        Identifier(LiveConfig(runtime_session=("sessionId=",)))
    with pytest.raises(ConfigError, match="runtime_session: got '\\('"):
        Identifier(LiveConfig(runtime_session=("(",)))


def _node(number: int, text: str) -> tuple[Branch, TurnNode]:
    branch = Branch.of([user(text)])
    return branch, TurnNode.of(make_turn([], "ok", id=number), branch, b"", [])


def test_the_index_is_bounded_and_forgets_the_longest_unused_session() -> None:
    """Reference defect: session maps only grew."""
    index = SessionIndex(max_keys=300)
    for number in range(1000):
        index.add_turn(f"s{number}", _node(number, str(number))[1], True)
    assert len(index) <= 300
    newest = Branch.of([user("999"), assistant("ok"), user("go on")])
    oldest = Branch.of([user("0"), assistant("ok"), user("go on")])
    assert index.find(newest, claims=True, is_retry=False) == "s999"
    assert index.find(oldest, claims=True, is_retry=False) is None


def test_one_long_session_does_not_fill_the_index() -> None:
    index = SessionIndex()
    for number in range(10_000):
        index.add_turn("s", _node(number, str(number))[1], True)
    assert len(index) < 100


def test_a_session_that_is_forgotten_leaves_nothing() -> None:
    index = SessionIndex()
    branch, node = _node(1, "hi")
    index.add_request("s", branch)
    index.add_turn("s", node, True)
    index.add_turn("t", node, True)
    index.forget("s")
    index.forget("never")
    assert index.find(branch, claims=False, is_retry=True) == "t"
    index.forget("t")
    assert len(index) == 0
