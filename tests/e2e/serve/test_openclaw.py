"""The real OpenClaw talks to the real `serve`: the owner's as it comes, and a user's with our
plugin, a key and weights of their own."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from clawrl_gym.core.ownership import stored_id
from clawrl_gym.store import StoreReader
from clawrl_gym.store.users import Users
from tests.e2e.openclaw_client import OpenClaw
from tests.e2e.serve.conftest import USERS
from tests.e2e.serving import Serving

pytestmark = [
    pytest.mark.openclaw,
    pytest.mark.vllm,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

USER, OTHER = USERS
WRONG = "No, that is wrong."
RIGHT = "Thanks, that is right."
COMPLAINTS = ("No, that is wrong.", "Das ist leider falsch.", "不对,答案是错的。")
FILES = {"garden.txt": "willow raven\nsalt\n", "kitten.txt": "amber\n"}
STAMP = re.compile(r"^\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d [^\]]+\] ")


@dataclass(frozen=True, slots=True)
class Pair:
    """An OpenClaw and the server that it talks to."""

    claw: OpenClaw
    serving: Serving
    user: str
    """Whose OpenClaw it is; the owner's has no plugin."""
    http: httpx.Client
    """With the same key as OpenClaw's."""

    @property
    def plugin(self) -> bool:
        return bool(self.user)

    def name(self, words: str) -> str:
        """A session's name that the other OpenClaw does not use."""
        return f"{words}-{'plugin' if self.plugin else 'plain'}"

    def turns(self, session_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.session(session_id)["turns"]
        return found

    def session(self, session_id: str) -> dict[str, Any]:
        answer = self.http.get(f"/v1/sessions/{session_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def sessions(self) -> list[dict[str, Any]]:
        answer = self.http.get("/v1/sessions", params={"limit": 100})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return self.serving.wait_until(condition, what, 60)

    def chat(self, message: str) -> None:
        """A message in the main session, as the web page sends it."""
        self.claw.call(
            "chat.send",
            sessionKey="agent:main:main",
            message=message,
            idempotencyKey=uuid.uuid4().hex,
        )


@pytest.fixture(scope="module", params=["", USER], ids=["owner", "user"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    user = str(request.param)
    serving: Serving = request.getfixturevalue("serving_users" if user else "serving")
    key = key_of(serving, user) if user else serving.key
    claw = OpenClaw(tmp_path_factory.mktemp("claw"), serving.url, key, plugin=bool(user))
    try:
        for name, text in FILES.items():
            (claw.workspace / name).write_text(text)
        with client(serving, key) as http:
            yield Pair(claw, serving, user, http)
    finally:
        claw.stop()


def key_of(serving: Serving, user: str) -> str:
    """A new one."""
    return Users(serving.folder).renew_key(user)


def client(serving: Serving, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=serving.url, headers=headers, timeout=120)


OWNER_BY_DAY = pytest.mark.parametrize(
    "pair",
    ["", pytest.param(USER, marks=pytest.mark.nightly)],
    ids=["owner", "user"],
    indirect=True,
    scope="module",
)
"""Where a user's OpenClaw shows nothing that the owner's does not, whose sessions have no names."""


def said_in(state: list[dict[str, Any]]) -> list[str]:
    """The user's words in a next state, without the time that OpenClaw puts before them."""
    return [STAMP.sub("", str(message["content"])) for message in state]


def called(turn: dict[str, Any]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = [
        call["function"] for call in turn["reply"].get("tool_calls") or []
    ]
    return calls


def file_of(call: dict[str, Any]) -> str | None:
    """The text of the file that a call reads; None when it is another call."""
    path = json.loads(call["arguments"]).get("path") if call["name"] == "read" else None
    return FILES.get(path) if isinstance(path, str) else None


def has_failed(turn: dict[str, Any]) -> bool:
    """Whether OpenClaw says that a call of the turn failed."""
    contents = [str(message["content"]) for message in turn["next_state"] if called(turn)]
    return any('"status": "error"' in content for content in contents)


def values_until(pair: Pair, session_id: str, words: str) -> dict[int, int | None]:
    """The verdict on each turn up to the one that the words answer; empty before all are there."""
    turns = pair.turns(session_id)
    ends = [at for at, turn in enumerate(turns) if words in said_in(turn["next_state"] or [])]
    answered = turns[: ends[0] + 1] if ends else []
    if not all(turn["verdicts"] for turn in answered):
        return {}
    return {turn["id"]: turn["verdicts"][-1]["value"] for turn in answered}


def samples_of(pair: Pair, session_id: str, turn_ids: set[int]) -> dict[int, list[float]]:
    """The advantages of the turns' tokens; empty before each has a sample."""
    reader = StoreReader(pair.serving.folder)
    try:
        samples = reader.samples_of_session(stored_id(pair.user, session_id))
    finally:
        reader.close()
    found = {s.turn_id: s.advantages_T for s in samples if s.turn_id in turn_ids}
    return {turn_id: found[turn_id] for turn_id in turn_ids} if turn_ids == found.keys() else {}


def check_next_states(turns: list[dict[str, Any]], said: list[str]) -> None:
    """Each turn's next state is the tools' results, else the user's next words: nothing else."""
    words = iter(said[1:])
    for turn in turns[:-1]:
        state, calls = turn["next_state"], called(turn)
        assert state is not None, turn
        if calls:
            assert [message["role"] for message in state] == ["tool"] * len(calls)
            texts = [file_of(call) for call in calls]
            assert all(t is None or t == m["content"] for t, m in zip(texts, state, strict=True))
        else:
            assert [message["role"] for message in state] == ["user"]
            assert said_in(state) == [next(words)]
    assert turns[-1]["next_state"] is None
    assert list(words) == []


def test_sessions_kinds_next_states_and_verdicts_come_out_exact(pair: Pair) -> None:
    session_id = pair.name("files")
    said = ["Read the file garden.txt", WRONG, "Read the file kitten.txt", RIGHT]
    pair.claw.type(session_id, said[0])
    for text in said[1:]:
        pair.claw.say(session_id, text)
    session = pair.session(session_id)
    turns = session["turns"]
    assert session["matched_by"] == ("header" if pair.plugin else "runtime")
    assert {turn["kind"] for turn in turns} == {"main"}
    check_next_states(turns, said)
    assert any(file_of(call) for turn in turns for call in called(turn)), "no file was read"
    pair.until(
        lambda: all(turn["verdicts"] for turn in pair.turns(session_id)[:-1]), "all verdicts"
    )
    reacted = pair.turns(session_id)[:-1]
    values = {said_in(t["next_state"])[0]: t["verdicts"][-1]["value"] for t in reacted}
    assert (values[WRONG], values[RIGHT]) == (-1, 1)


@pytest.mark.parametrize(
    "words",
    [
        *(pytest.param(words, marks=pytest.mark.nightly) for words in COMPLAINTS[:-1]),
        COMPLAINTS[-1],
        RIGHT,
    ],
)
@pytest.mark.parametrize("pair", [""], ids=["owner"], indirect=True)
def test_failed_tools_and_complaints_in_three_languages_train_against_what_was_done(
    pair: Pair, words: str
) -> None:
    """And thanks do not cover what failed before them."""
    session_id = f"answered-{uuid.uuid4().hex[:6]}"
    pair.claw.say(session_id, "Read the file missing.txt")
    pair.claw.tell(session_id, words)
    values = pair.until(lambda: values_until(pair, session_id, words), "all verdicts")
    answered = [turn for turn in pair.turns(session_id) if turn["id"] in values]
    failed = [turn["id"] for turn in answered if has_failed(turn)]
    (reply,) = (turn["id"] for turn in answered if not called(turn))
    assert failed, "no tool failed"
    assert {values[turn_id] for turn_id in failed} == {-1}
    assert values[reply] == (1 if words == RIGHT else -1)
    wanted = {*failed, reply}
    samples = pair.until(lambda: samples_of(pair, session_id, wanted), "the samples")
    for turn_id, advantages in samples.items():
        assert all((a > 0) == (values[turn_id] > 0) for a in advantages if a)


@OWNER_BY_DAY
def test_two_sessions_at_once_stay_apart_even_with_the_same_words(pair: Pair) -> None:
    left, right = pair.name("left"), pair.name("right")
    for text in ("What is 2 plus 3?", RIGHT):
        pair.claw.say(left, text)
        pair.claw.say(right, text)
    for session_id in (left, right):
        check_next_states(pair.turns(session_id), ["What is 2 plus 3?", RIGHT])


def test_a_heartbeat_is_a_side_turn_and_no_reaction_of_the_user(pair: Pair) -> None:
    before = {session["id"] for session in pair.sessions()}
    pair.chat("Hello")
    (main,) = pair.until(lambda: {s["id"] for s in pair.sessions()} - before, "the main session")
    pair.claw.wake("Backup finished")
    pair.until(lambda: any(t["kind"] == "side" for t in pair.turns(main)), "the heartbeat")
    pair.chat(WRONG)
    pair.until(lambda: len(pair.turns(main)) >= 3, "the second reply")
    first, beat, second = pair.turns(main)[:3]
    assert [turn["kind"] for turn in (first, beat, second)] == ["main", "side", "main"]
    assert beat["next_state"] is None
    if beat["reply"]["content"].strip() == "NO_REPLY":
        assert said_in(first["next_state"]) == [WRONG]
    else:  # the user has read what the heartbeat said: the words are a reaction to that
        assert first["next_state"] is None


def test_a_title_is_a_side_turn_outside_the_conversation(pair: Pair) -> None:
    before = {session["id"] for session in pair.sessions()}
    created = pair.claw.call("sessions.create", message="Help me write a poem about rain")
    pair.until(lambda: len({s["id"] for s in pair.sessions()} - before) == 2, "both requests")
    chat = created["sessionId"]
    (title,) = {s["id"] for s in pair.sessions()} - before - {chat}
    pair.until(lambda: pair.turns(chat) and pair.turns(title), "both replies")
    assert [turn["kind"] for turn in pair.turns(chat)] == ["main"]
    assert [turn["kind"] for turn in pair.turns(title)] == ["side"]


def test_a_new_conversation_under_the_same_id_is_no_reaction_to_the_old_one(pair: Pair) -> None:
    session_id = pair.name("renewed")
    pair.claw.say(session_id, "Hello")
    pair.claw.call("sessions.reset", key=f"agent:main:explicit:{session_id}", reason="new")
    if pair.plugin:
        pair.until(lambda: pair.session(session_id)["ended_s"], "the session's end")
    assert (pair.session(session_id)["ended_s"] is not None) == pair.plugin
    pair.claw.say(session_id, WRONG)
    old, new = pair.turns(session_id)
    assert old["next_state"] is None
    assert old["messages"][1] != new["messages"][1]
    assert any(said.startswith(WRONG) for said in said_in(new["messages"]))


@OWNER_BY_DAY
def test_after_enough_turns_a_new_version_answers(pair: Pair) -> None:
    session_id = pair.name("taught")
    before = pair.serving.version()
    for _ in range(5):
        pair.claw.say(session_id, WRONG)
    pair.until(lambda: pair.serving.version() > before, "a new version")
    pair.claw.say(session_id, RIGHT)
    assert min(pair.turns(session_id)[-1]["versions"]) > before


@pytest.mark.parametrize("pair", [USER], ids=["user"], indirect=True)
def test_owner_and_user_say_the_same_and_have_sessions_of_their_own(pair: Pair) -> None:
    session_id, owners = "shared-name", "the-owners"
    pair.claw.say(session_id, "Hello")
    for name in (session_id, owners):
        pair.serving.chat(name, [{"role": "user", "content": "Hello"}])
    assert len(pair.turns(session_id)) == 1
    as_owner = pair.serving.http.get
    assert len(as_owner(f"/v1/sessions/{session_id}").json()["turns"]) == 1
    of_user = as_owner(f"/v1/sessions/{session_id}", params={"user": pair.user}).json()
    assert (of_user["user"], len(of_user["turns"])) == (pair.user, 1)
    assert {session["user"] for session in pair.sessions()} == {pair.user}
    assert pair.http.get(f"/v1/sessions/{owners}").status_code == 404


@pytest.mark.parametrize("pair", [USER], ids=["user"], indirect=True)
def test_who_corrects_their_openclaw_changes_its_weights_and_nobody_elses(pair: Pair) -> None:
    hello = [{"role": "user", "content": "Hello."}]
    pair.claw.say("day", hello[0]["content"])
    before = max(pair.turns("day")[-1]["versions"])
    for _ in range(2):
        pair.claw.tell("day", WRONG)
    pair.serving.wait_for(f"{USER}@{before + 1} serves")
    pair.claw.say("later", "Hello again.")
    assert min(pair.turns("later")[-1]["versions"]) > before
    with client(pair.serving, key_of(pair.serving, OTHER)) as other:
        body = {"model": "policy", "messages": hello, "max_tokens": 8}
        said = other.post("/v1/chat/completions", json=body, headers={"X-Session-Id": "day"})
        assert said.headers["X-Weight-Version"] == "0"
        assert len(other.get("/v1/sessions/day").json()["turns"]) == 1
        assert other.get("/v1/sessions/later").status_code == 404
    for name in USERS:
        has_learned = (pair.serving.folder / f"users/{name}/checkpoints/000001/adapter").is_dir()
        assert has_learned == (name == USER)
