"""Whole conversations through sessions and store: recorded ones of OpenClaw, and random ones.

Each must come out exact: every turn in its session, every next state at its turn, and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import INTERRUPTED, Message, Turn
from clawrl_gym.dialogue.graph import Branch
from clawrl_gym.gateway.wire.identify import TransientBlocks
from clawrl_gym.store import Store
from tests.gateway.test_sessions import assistant, calling, tool, user
from tests.gateway.test_transient import BEGIN, END
from tests.support.recordings import conversation, recorded, shipped
from tests.support.talk import Talk


@functools.cache
def warm() -> LiveConfig:
    """What `serve` runs with by default, but that it remembers one session."""
    return shipped().model_copy(update={"warm_sessions": 1})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    yield store
    await store.close()


async def replay(talk: Talk, *names: str) -> None:
    """Requests as OpenClaw sent them, answered as the server answered."""
    for name in names:
        request = recorded(name)
        async with talk.ask(request.messages, None, request.headers, **body_of(name)) as asked:
            await talk.sessions.recorder.record_next_states(asked)
            if request.reply is not None:
                await talk.record(asked, request.reply)


def body_of(name: str) -> dict[str, Any]:
    return {key: value for key, value in recorded(name).body.items() if key != "messages"}


def names_of(folder: str) -> list[str]:
    return [f"{folder}/{number + 1}" for number in range(len(conversation(folder)))]


async def told(talk: Talk, session_id: str) -> dict[int, list[str]]:
    """Next states as `role: text`, without stamps, by the index of their turn."""
    states = await talk.states(session_id)
    return {index: [_short(message) for message in state] for index, state in states.items()}


def _short(message: Message) -> str:
    text = " ".join(text_of(message).split())
    return f"{message['role']}: {re.sub(r'^.....{10,30} UTC. ', '', text)}"


EXPECTED: dict[str, tuple[str, dict[int, list[str]]]] = {
    "conversation": (
        "chat",
        {0: ["user: And half of that?"], 1: ["user: Thanks, that is right."]},
    ),
    "correction": ("wrong", {0: ["user: No, that is wrong. The capital is Canberra."]}),
    "tools": (
        "shop",
        {
            0: ["tool: Milk Bread Apples"],
            1: ["user: Write Eggs to eggs.txt please"],
            2: ["tool: Successfully wrote 4 bytes to eggs.txt"],
            3: ["user: Good, thank you."],
            4: ["user: Read both shopping.txt and eggs.txt please"],
            5: ["tool: Milk Bread Apples", "tool: Eggs"],
            6: ["user: Thanks, that is right."],
        },
    ),
    "parallel": (
        "both",
        {
            0: ["tool: Milk Bread Apples", "tool: Call the dentist"],
            1: ["user: Which one is shorter?"],
        },
    ),
    "retry": ("again", {0: ["user: And how are you?"]}),
    "retry_tools": ("again-tools", {0: ["tool: Call the dentist"], 1: ["user: Thanks."]}),
    "local": ("loc", {0: ["user: Thanks, that is right."]}),
    "steer": ("aa585a20-7900-4ada-839c-75b1d3ce46ee", {0: ["user: No, stop. Shorter."]}),
    "reset": ("1e1ae0b9-2b07-4bb3-8717-353babd85c7c", {}),
    "memory_flush": (
        "46ddd2f0-b1cf-44f4-82e7-163b6233c58a",
        {0: ["user: And I live in Porto."]},
    ),
    "heartbeat": (
        "7a8386ee-dc27-4cc3-a10d-a1a898258d3f",
        {0: ["user: And of Spain?"], 2: ["user: No, that is wrong. I asked for the capital."]},
    ),
}


@pytest.mark.parametrize("folder", EXPECTED)
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_recorded_conversation_comes_out_exact(
    store: Store, folder: str, restarts: bool
) -> None:
    """Also when a new process takes over before each request, knowing only the store."""
    session_id, expected = EXPECTED[folder]
    talk = Talk(store)
    for name in names_of(folder):
        if restarts:
            talk = Talk(store)
            await talk.sessions.start()
        await replay(talk, name)
    assert await told(talk, session_id) == expected
    answered = [request for request in conversation(folder) if request.reply is not None]
    turns = await store.turns_of(session_id)
    assert len(turns) == len(answered)
    assert [turn.messages for turn in turns] == [request.messages for request in answered]


async def test_sessions_that_begin_with_the_same_words_stay_apart(store: Store) -> None:
    talk = Talk(store)
    await replay(talk, *names_of("interleaved"))
    assert await told(talk, "left") == {0: ["user: Now add 10."]}
    assert await told(talk, "right") == {0: ["user: Now add 20."]}


async def test_the_turn_before_a_compaction_keeps_its_next_state(store: Store) -> None:
    """Its words, `You are welcome.`, were said before in the same session."""
    talk = Talk(store)
    await replay(talk, *names_of("tools"), "side/compaction", "compaction/1")
    _, expected = EXPECTED["tools"]
    assert await told(talk, "shop") == expected | {7: ["user: What was on the list?"]}
    assert [turn.index for turn in talk.judged] == list(range(8))


async def test_a_stopped_reply_that_openclaw_drops_takes_nothing(store: Store) -> None:
    talk = Talk(store)
    first = recorded("interrupted/1")
    async with talk.ask(first.messages, None, first.headers) as asked:
        await talk.record(asked, "one two", INTERRUPTED)
    await replay(talk, "interrupted/2")
    assert talk.judged == []
    assert [turn.finish_reason for turn in await store.turns_of(asked.session.id)] == [
        INTERRUPTED,
        "stop",
    ]


async def test_a_subagents_result_is_told_in_the_parents_session(store: Store) -> None:
    talk = Talk(store)
    await replay(talk, *names_of("subagent"))
    states = await told(talk, "parent")
    assert sorted(states) == [0], "its announcement is a side turn, which answers nothing"
    assert states[0][0].startswith("tool: ")
    rules = [turn.rule for turn in await store.turns_of("3711b2e2-9bbc-42a3-9be7-4f1e83c964dd")]
    assert rules == ["subagent"]


OK, POEM = assistant("HEARTBEAT_OK"), assistant("A poem.")
CLIENTS_OWN = [
    "Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.",
    "[Sat 2026-11-21 08:22 UTC] An async command you ran earlier has completed. The result is shown "  # noqa: E501
    "in the system messages above. Please relay it.",
    "A background task completed. Use this result to answer.\n\nsource: subagent\nok",
    "[Internal task completion event]\nsource: subagent\nsession_key: x",
    "A scheduled reminder has been triggered. The reminder content is:\n\nTea\n\nPlease relay it.",
    "Pre-compaction memory flush. Store durable memories now (use memory/x.md; create memory/ if "
    "needed). If nothing to store, reply with NO_REPLY.",
]
"""Messages that OpenClaw may leave in a history."""


@pytest.mark.parametrize("text", CLIENTS_OWN)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("kept", "answers"),
    [
        ([OK], {}),  # whoever answers next may mean what was said between
        ([], {0: ["user: Thank you, it rhymes."]}),  # its reply was left out
    ],
)
async def test_what_a_client_asks_for_itself_is_no_answer_to_the_reply_before_it(
    store: Store, text: str, restarts: bool, kept: list[Message], answers: dict[int, list[str]]
) -> None:
    talk = Talk(store)
    history = [user("Write a poem."), POEM]
    for request, reply in (([history[0]], POEM), ([*history, user(text)], OK)):
        await talk.say(request, reply)
        if restarts:
            talk = Talk(store)
            await talk.sessions.start()
    last = [*history, user(text), *kept, user("Thank you, it rhymes.")]
    await talk.say(last, "You are welcome.")
    assert await told(talk, "s") == answers
    rules = [turn.kind for turn in await store.turns_of("s")]
    assert rules == ["main", "side", "main"]


async def test_a_message_that_was_first_sent_as_a_side_turn_answers_when_it_is_sent_as_main(
    store: Store,
) -> None:
    talk = Talk(store)
    history = [user("Write a poem."), POEM, user("Thank you, it rhymes.")]
    await talk.say(history[:1], POEM)
    await talk.say(history, "Tags: poems", headers={"X-Turn-Type": "side"})
    await talk.say(history, "You are welcome.")
    assert await told(talk, "s") == {0: ["user: Thank you, it rhymes."]}


async def test_side_requests_make_no_main_turns(store: Store) -> None:
    talk = Talk(store)
    await replay(talk, *(f"side/{name}" for name in ("title", "slug", "cron", "probe")))
    kinds = {turn.kind for row in await store.sessions() for turn in await store.turns_of(row.id)}
    assert kinds == {"side"}
    assert len(await store.sessions()) == 4


# Random conversations of clients that change what they send back.

WORDS = ["ok", "yes", "no"]
"""Few, so that the same is said again and again."""
Owner = tuple[str, int]
"""A turn: its session and its index."""


@dataclass
class Client:
    """Somebody who talks, through a client that keeps a history in its own way."""

    name: str | None
    """Name of its session; None: it names none."""
    draw: random.Random
    wild: bool = False
    """It also edits and compacts its history, and forks from it."""
    sign: str = ""
    """Stands in all that is said; not in the first words where no session is named."""
    history: list[tuple[Message, Owner | None]] = field(default_factory=list)
    """As the client keeps it; our replies with their turns."""
    truth: dict[Owner, list[Message]] = field(default_factory=dict)
    """What was said to each reply first."""
    requests: int = 0

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def word(self) -> str:
        return self.draw.choice(WORDS) + self.sign

    def messages(self) -> list[Message]:
        """A request: the history, and what changes with each one."""
        self.requests += 1
        system: Message = {"role": "system", "content": f"It is {self.requests} o'clock."}
        block = user(f"{BEGIN}\nrequest {self.requests}\n{END}")
        told = [message for message, _ in self.history]
        at = len(told) - self.chance(0.3) if self.chance(0.5) else None
        if at is not None:
            told.insert(at, block)
        return [system, *told]

    def change(self) -> None:
        """Do to the history what clients do."""
        replies = [at for at, (message, _) in enumerate(self.history) if is_reply(message)]
        if len(replies) < 2:
            return
        match self.draw.randrange(3):
            case 0:
                del self.history[self.draw.choice(replies) + 1 :]
            case 1:
                keep = self.draw.choice(replies[-2:])
                self.history[:keep] = [(user(f"A summary of {self.requests} requests."), None)]
            case _:
                self.history[0] = (user(f"Edited at {self.requests} o'clock."), None)

    def speak(self) -> None:
        """Answer the last reply."""
        if not self.history:
            first = self.draw.choice(WORDS) if self.name is None else self.word()
            self.history.append((user(first), None))
            return
        reply, owner = self.history[-1]
        if not is_reply(reply):
            return
        calls = reply.get("tool_calls") or []
        said = [tool(self.word(), call["id"]) for call in calls] or [
            user(self.word()) for _ in range(1 + self.chance(0.2))
        ]
        if owner is not None:
            self.truth.setdefault(owner, said)
        self.history += [(message, None) for message in said]

    def keep(self, reply: Message, owner: Owner) -> None:
        """Take a reply into the history, as clients spell it."""
        kept: dict[str, Any] = dict(reply)
        if self.chance(0.5):
            kept.pop("reasoning_content", None)
        if not kept.get("content"):
            kept["content"] = self.draw.choice([None, ""])
        elif self.chance(0.5):
            kept["content"] = f" {kept['content']}\n"
        if kept.get("tool_calls") and self.chance(0.7):
            kept["tool_calls"] = [respelt(call) for call in kept["tool_calls"]]
        self.history.append((kept, owner))  # type: ignore[arg-type]


def is_reply(message: Message) -> bool:
    return message["role"] == "assistant"


def respelt(call: dict[str, Any]) -> dict[str, Any]:
    """A call as JavaScript writes it again."""
    arguments = json.loads(call["function"]["arguments"])
    function = call["function"] | {"arguments": json.dumps(arguments, separators=(",", ":"))}
    return call | {"id": call["id"].replace("_", ""), "function": function}


def some_reply(draw: random.Random) -> Message:
    if draw.random() < 0.3:
        calls = [
            json.dumps({"path": draw.choice("ab"), "n": 1}) for _ in range(draw.choice([1, 2]))
        ]
        return calling(*calls, text=draw.choice([None, "ok"]))
    more = {"reasoning_content": "hm"} if draw.random() < 0.3 else {}
    return assistant(draw.choice(WORDS), **more)


async def step(talk: Talk, client: Client) -> None:
    """One exchange, perhaps with a side turn, a retry, or an end in the middle."""
    headers = {"x-stainless-retry-count": "0"}
    if client.wild and client.chance(0.25):
        client.change()
    if client.history and client.chance(0.1):
        side = [*client.messages(), user("a title please")]
        await talk.say(side, "Words", client.name, headers=headers, turn_type="side")
    client.speak()
    messages = client.messages()
    if client.chance(0.1):
        turn = await talk.say(
            messages, "one two three", client.name, finish=INTERRUPTED, headers=headers
        )
        if client.chance(0.5):
            client.keep(assistant("one two"), (turn.session_id, turn.index))
        return
    turn = await talk.say(messages, some_reply(client.draw), client.name, headers=headers)
    if client.name is not None and client.chance(0.2):
        again = {"x-stainless-retry-count": "1"}
        retry = await talk.say(messages, "another", client.name, headers=again)
        assert retry.id == turn.id
    client.keep(turn.reply, (turn.session_id, turn.index))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was said, and what was recorded."""

    truth: dict[Owner, list[Message]]
    found: dict[Owner, list[Message]]
    turns: list[Turn]


async def talk_at_random(people: list[Client], steps: int) -> Outcome:
    draw = people[0].draw
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder), record=False)
        talk = Talk(store, warm())
        for _ in range(steps):
            if draw.random() < 0.1:
                talk = Talk(store, warm())  # another process takes over
                await talk.sessions.start()
            await step(talk, draw.choice(people))
        turns = [turn for row in await store.sessions() for turn in await store.turns_of(row.id)]
        states = [await store.next_state_of(turn.id or 0) for turn in turns]
        await store.close()
    owners = [(turn.session_id, turn.index) for turn in turns]
    return Outcome(
        truth={owner: state for one in people for owner, state in one.truth.items()},
        found={owner: state for owner, state in zip(owners, states, strict=True) if state},
        turns=turns,
    )


seeds, lengths, numbers = st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 3)
PROPERTY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def clients(seed: int, number: int, **values: Any) -> list[Client]:
    draw = random.Random(seed)
    return [Client(f"s{at}", draw, **values) for at in range(number)]


@given(seed=seeds, number=numbers, steps=lengths)
@PROPERTY
def test_every_next_state_is_found_and_is_the_true_one(seed: int, number: int, steps: int) -> None:
    """Clients that spell our replies anew, add blocks, repeat requests, stop, make side turns."""
    outcome = asyncio.run(talk_at_random(clients(seed, number), steps))
    assert outcome.found == outcome.truth


@given(seed=seeds, number=numbers, steps=lengths)
@PROPERTY
def test_no_next_state_is_wrong_whatever_clients_do(seed: int, number: int, steps: int) -> None:
    """They also fork, edit the past, and compact it; then one may be missed, and none is wrong."""
    outcome = asyncio.run(talk_at_random(clients(seed, number, wild=True), steps))
    assert {owner: outcome.truth.get(owner) for owner in outcome.found} == outcome.found


@given(seed=seeds, steps=lengths, wild=st.booleans())
@PROPERTY
def test_people_who_share_a_session_get_their_own_next_states(
    seed: int, steps: int, wild: bool
) -> None:
    people = clients(seed, 3, wild=wild)
    for at, one in enumerate(people):
        one.name, one.sign = "shared", f" {at}"
    outcome = asyncio.run(talk_at_random(people, steps))
    assert {owner: outcome.truth.get(owner) for owner in outcome.found} == outcome.found
    assert wild or outcome.found == outcome.truth


@given(seed=seeds, number=numbers, steps=lengths)
@settings(PROPERTY, derandomize=True)
def test_people_whose_clients_name_no_session_are_not_mixed(
    seed: int, number: int, steps: int
) -> None:
    """They all begin with the same few words; each session is one person's nevertheless.

    Who of two that had the same conversation so far goes on first takes either's session; a side
    request that comes before that may be kept with either. What is not promised: two people whose
    conversations are equal word for word up to a reply that both interrupted (a rare draw, so these
    are fixed).
    """
    people = clients(seed, number)
    for at, one in enumerate(people):
        one.name, one.sign = None, f" {at}"
    outcome = asyncio.run(talk_at_random(people, steps))
    keys = {(turn.session_id, turn.index): key_of(turn) for turn in outcome.turns}
    assert counted(outcome.found, keys) == counted(outcome.truth, keys)
    signs: dict[str, set[str]] = {}
    for turn in outcome.turns:
        if turn.kind == "main":
            signs.setdefault(turn.session_id, set()).update(signs_in(turn.messages))
    assert all(len(own) <= 1 for own in signs.values()), signs


def signs_in(messages: list[Message]) -> set[str]:
    texts = [text_of(message) for message in messages]
    return {text[-2:] for text in texts if re.search(r" \d$", text)}


def key_of(turn: Turn) -> bytes:
    """The same for turns that nothing tells apart."""
    stable = TransientBlocks(warm().rules.transient).removed_from(turn.messages)
    return Branch.of([*stable, turn.reply]).leaf


def counted(
    states: dict[Owner, list[Message]], keys: dict[Owner, bytes]
) -> Counter[tuple[bytes, str]]:
    return Counter((keys[owner], json.dumps(state)) for owner, state in states.items())
