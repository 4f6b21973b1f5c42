"""Conversations whose outcome must never change: which session and turn each request joins, which
next states it brings, what the database holds of it, and what is trained.

`python -m tests.project.dialogue_cases FOLDER` writes the outcomes, and a database; only for a
change that is meant. All randomness is seeded here, so that the cases are the same with any test
runner.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import INTERRUPTED, ChatBody, Message, ToolCall, Turn
from clawrl_gym.dialogue.delta import diff_ids, diff_messages
from clawrl_gym.dialogue.graph import (
    Branch,
    SessionIndex,
    TurnGraph,
    TurnNode,
    interrupted_before,
)
from clawrl_gym.dialogue.merging import Segment, merge_turns
from clawrl_gym.dialogue.prompts import insert_addition, make_prompt
from clawrl_gym.gateway.wire.requests import Labels
from clawrl_gym.judge.enhance import with_hint
from clawrl_gym.store import Store, StoreReader
from tests.support.fakes import FakePolicy, decode, sampled, spell
from tests.support.recordings import NAMES, recorded, shipped
from tests.support.talk import Talk

FOLDER = Path(__file__).parents[1] / "fixtures" / "dialogue"
OUTCOMES = "outcomes.json"
DATABASE = "run.db"
DATABASE_SEEDS = (3, 5, 12)
"""Random conversations that the database holds, one client name each."""
WORDS = ["ok", "yes", "no", "cab |> ab"]
"""Few, so that the same is said again; one that a chat template spells otherwise."""
STYLES = ("plain", "wild", "shared", "unnamed", "rollout")
SCENARIOS = 150
COLUMNS = (
    "id, session_id, idx, kind, rule, base_id, base_tokens, copies, prompt, sampled, logprobs, "
    "versions, finish_reason, base_messages, messages, reply, mark"
)

Outcome = dict[str, Any]


def fingerprint(value: object) -> str:
    """Eight bytes of a hash of any JSON."""
    text = json.dumps(value, sort_keys=True, default=_plain)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else list(value)  # type: ignore[call-overload]


@dataclass
class Speaker:
    """Somebody who talks through a client that keeps the history in a way of its own."""

    name: str | None
    draw: random.Random
    style: str
    history: list[Message] = field(default_factory=list)
    requests: int = 0

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def edit(self) -> None:
        """Fork, compact, or change the past."""
        replies = [at for at, m in enumerate(self.history) if m["role"] == "assistant"]
        if len(replies) < 2:
            return
        match self.draw.randrange(4):
            case 0:
                del self.history[self.draw.choice(replies) + 1 :]
            case 1:
                cut = self.draw.choice(replies[-2:])
                self.history[:cut] = [user(f"A summary of {self.requests} requests.")]
            case 2:
                self.history[0] = user(f"Edited at {self.requests} o'clock.")
            case _:
                self.history[self.draw.choice(replies)] = assistant("words of another model")

    def speak(self) -> None:
        if not self.history:
            self.history.append(user(self.draw.choice(WORDS)))
        elif self.history[-1]["role"] == "assistant":
            calls = self.history[-1].get("tool_calls") or []
            words = f"{self.draw.choice(WORDS)} {self.name or ''}"
            self.history += [
                {"role": "tool", "tool_call_id": call["id"], "content": words} for call in calls
            ] or [user(words)]

    def messages(self) -> list[Message]:
        """A request: the history with what changes at each one."""
        self.requests += 1
        messages = list(self.history)
        if self.style != "rollout" and self.chance(0.3):
            block = (
                "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\n"
                f"request {self.requests}\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
            )
            messages.insert(len(messages) - self.chance(0.5), user(block))
        rules = "Be kind. " * 40
        clock = f"It is {self.requests} o'clock." if self.chance(0.3) else ""
        return [{"role": "system", "content": rules + clock}, *messages]

    def hear(self, reply: Message) -> None:
        """Take a reply into the history, as clients spell it."""
        copied: Any = dict(reply)
        if self.style != "rollout":
            if self.chance(0.4):
                copied.pop("reasoning_content", None)
            if self.chance(0.4):
                copied["content"] = f" {copied['content']}\n" if copied.get("content") else None
        self.history.append(copied)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def drawn_reply(draw: random.Random) -> Message:
    if draw.random() < 0.25:
        calls: list[ToolCall] = [
            {
                "id": f"call_{at}",
                "type": "function",
                "function": {"name": "read", "arguments": json.dumps({"path": "a", "n": at})},
            }
            for at in range(draw.choice([1, 2]))
        ]
        return {"role": "assistant", "content": draw.choice(["", "ok"]), "tool_calls": calls}
    reply = assistant(draw.choice(WORDS))
    if draw.random() < 0.2:
        reply["reasoning_content"] = "hm"
    return reply


class Conversation:
    """Speakers, a policy without a model, a store; remembers how each request was taken."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.draw = random.Random(seed)
        self.talk = Talk(store, shipped().model_copy(update={"warm_sessions": 1}))
        self.policy = FakePolicy()
        self.policy.forgets_replies = self.draw.random() < 0.2
        self.sessions: dict[str, int] = {}
        self.requests: list[str] = []

    async def run(self, style: str, prefix: str = "s") -> None:
        names: dict[str, Any] = {"shared": ["s", "s", "s"], "unnamed": [None] * 3, "rollout": ["r"]}
        people = [
            Speaker(name and f"{prefix}{name}", self.draw, style)
            for name in names.get(style, ["a", "b"])
        ]
        for _ in range(self.draw.randrange(2, 16)):
            if self.draw.random() < 0.1:
                self.talk = Talk(self.store, shipped().model_copy(update={"warm_sessions": 1}))
                await self.talk.sessions.start()
            await self.exchange(self.draw.choice(people))

    async def exchange(self, speaker: Speaker) -> None:
        if speaker.style not in ("plain", "rollout") and speaker.chance(0.25):
            speaker.edit()
        headers = {"x-stainless-retry-count": "0"}
        if speaker.style != "rollout" and speaker.history and speaker.chance(0.1):
            title = [*speaker.messages(), user("a title please")]
            await self.ask(speaker, title, assistant("Words"), headers, turn_type="side")
        speaker.speak()
        messages, reply = speaker.messages(), drawn_reply(self.draw)
        if speaker.style != "rollout" and speaker.chance(0.1):
            whole = assistant("one two three")
            await self.ask(speaker, messages, whole, headers, finish=INTERRUPTED)
            if speaker.chance(0.5):
                speaker.hear(assistant("one two"))
            return
        turn = await self.ask(speaker, messages, reply, headers)
        if speaker.chance(0.15):
            again = {"x-stainless-retry-count": "1"}
            turn = await self.ask(speaker, messages, assistant("another"), again)
        speaker.hear(turn.reply)

    async def ask(
        self,
        speaker: Speaker,
        messages: list[Message],
        reply: Message,
        headers: dict[str, str],
        finish: str = "stop",
        **body: Any,
    ) -> Turn:
        labels = Labels.model_validate({"X-Task-Id": "t"}) if speaker.style == "rollout" else None
        context = self.talk.ask(messages, speaker.name, headers, labels, **body)
        async with context as request:
            identity = request.identity
            number = self.sessions.setdefault(identity.session_id, len(self.sessions))
            stored = await self.talk.sessions.recorder.stored_reply(request)
            if stored is not None:
                self.requests.append(f"{number}.{stored.index} again")
                assert isinstance(stored, Turn)
                return stored
            await self.talk.sessions.recorder.record_next_states(request)
            rendered: ChatBody = {"messages": messages}
            if self.draw.random() < 0.1:
                rendered["tools"] = [{"type": "function", "function": {"name": "ls"}}]
            previous = await self.talk.sessions.recorder.previous_turn(request)
            prompt = await make_prompt(self.policy.render, rendered, previous)
            cut = finish == "stop" and self.draw.random() < 0.1
            ids_T = sampled(spell(reply), end=not cut and finish == "stop")
            if self.draw.random() < 0.05:
                ids_T[-1:] = sampled("!", end=False)
            turn = Turn(
                session_id=request.session.id,
                index=0,
                kind=identity.kind,
                rule=identity.rule,
                prompt_ids_T=prompt.ids_T,
                sampled_ids_T=ids_T,
                logprobs_T=[-0.25 if at % 5 else None for at in range(len(ids_T))],
                versions_T=[len(self.requests)] * len(ids_T),
                finish_reason="length" if cut else finish,
                messages=messages,
                reply=reply,
                created_s=time.time(),
                tools=rendered.get("tools", []),
            )
            turn = await self.talk.sessions.recorder.record(request, turn, prompt.rendered_ids_T)
            self.talk.sessions.recorder.set_delivered(request, turn)
            self.requests.append(
                f"{number}.{turn.index} {identity.matched_by} {turn.kind} {prompt.fit}"
            )
            return turn

    async def outcome(self, folder: Path) -> Outcome:
        """Closes the store."""
        turns = {row.id: await self.store.turns_of(row.id) for row in await self.store.sessions()}
        order = sorted(turns, key=lambda name: self.sessions[name])
        states = {
            f"{self.sessions[name]}.{turn.index}": [brief(message) for message in state]
            for name in order
            for turn in turns[name]
            if (state := await self.store.next_state_of(turn.id or 0)) is not None
        }
        hinted = [await self.hinted(turn) for name in order for turn in turns[name]]
        await self.store.close()
        return {
            "requests": self.requests,
            "next_states": states,
            "rows": fingerprint(list(stored_rows(folder / "run.db", self.sessions))),
            "segments": [segments_of(turns[name]) for name in order],
            "hinted": fingerprint(hinted),
        }

    async def hinted(self, turn: Turn) -> list[int]:
        messages = with_hint(turn.messages, "\n\n[hint] ab")
        if messages is None:
            return []
        plain_T = await self.policy.render({"messages": turn.messages})
        return insert_addition(
            turn.prompt_ids_T, plain_T, await self.policy.render({"messages": messages})
        )


def brief(message: Message) -> str:
    return f"{message['role']}: {' '.join(text_of(message).split())[:40]}"


def stored_rows(database: Path, sessions: dict[str, int]) -> Iterator[list[Any]]:
    """What the database holds of each turn but for its time; blobs as they were compressed."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        for row in db.execute(f"SELECT {COLUMNS} FROM turns ORDER BY id"):
            values = [zlib.decompress(v) if isinstance(v, bytes) and v else v for v in row]
            values[1] = sessions[row[1]]
            yield values


def _streams(segment: Segment) -> tuple[object, ...]:
    """All of a segment but the temperature, which databases of before do not know."""
    *streams, temperature = astuple(segment)
    assert temperature is None
    return tuple(streams)


def segments_of(turns: Sequence[Turn]) -> Outcome:
    exact, guessed = merge_turns(turns, decode), merge_turns(turns)
    return {
        "lengths": [len(segment.ids_T) for segment in exact.sequences],
        "merged": exact.merged,
        "forks": [dict(sorted(merged.forks.items())) for merged in (exact, guessed)],
        "all": fingerprint([_streams(segment) for segment in exact.sequences]),
    }


async def random_conversation(seed: int) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        conversation = Conversation(Store.open(Path(name)), seed)
        await conversation.run(STYLES[seed % len(STYLES)])
        return await conversation.outcome(Path(name))


async def recorded_conversation(folder: str) -> Outcome:
    """Requests of a real client, answered as they were."""
    with tempfile.TemporaryDirectory() as name:
        conversation = Conversation(Store.open(Path(name)), 0)
        for request in (recorded(one) for one in NAMES if one.startswith(folder)):
            body = {key: value for key, value in request.body.items() if key != "messages"}
            if request.reply is not None:
                speaker = Speaker(None, conversation.draw, "plain")
                await conversation.ask(
                    speaker, request.messages, request.reply, request.headers, **body
                )
        return await conversation.outcome(Path(name))


def random_ids(draw: random.Random) -> tuple[list[int], list[int]]:
    """Two lists with runs in common."""
    runs = [[1] * 40, list(range(50)), [7, 8, 9], list(range(190, 20, -1)), list(range(99))]
    old, new = (
        [number for _ in range(draw.randrange(8)) for number in draw.choice(runs)] for _ in "ab"
    )
    return old, old[: draw.randrange(len(old) + 1)] + new if draw.random() < 0.5 else new


def random_messages(draw: random.Random) -> tuple[list[str], list[str]]:
    contents = ["", "ok", "a" * 300, "a" * 200 + "b" * 200, "é\ud800 \x00" * 100, None, [1, True]]
    old, new = (
        [{"role": "user", "content": draw.choice(contents)} for _ in range(draw.randrange(7))]
        for _ in "ab"
    )
    if old and draw.random() < 0.6:
        new = [*old[: draw.randrange(len(old))], *new, *old[draw.randrange(len(old)) :]]
    return [json.dumps(one) for one in old], [json.dumps(one) for one in new]


def random_index(draw: random.Random) -> list[str | None]:
    """What an index answers to requests, while turns come and sessions are forgotten."""
    index = SessionIndex(max_keys=60)
    turns: list[tuple[list[Message], TurnNode]] = []
    answers: list[str | None] = []
    for number in range(60):
        sessions = [f"s{at}" for at in range(6)]
        messages = list(draw.choice(turns)[0]) if turns and draw.random() < 0.7 else []
        messages.append(user(draw.choice(WORDS)))
        if draw.random() < 0.15:
            messages[0] = user("a summary")
        branch = Branch.of(messages, draw.choice(["", "", "ann"]))
        claims, is_retry = draw.random() < 0.8, draw.random() < 0.2
        session_id = index.find(branch, claims=claims, is_retry=is_retry)
        answers.append(session_id)
        session_id = session_id or draw.choice(sessions)
        if draw.random() < 0.2:
            index.add_request(session_id, branch)
            continue
        reply = assistant(draw.choice(WORDS))
        turn = Turn(
            session_id, number, "main", [1], [2], [0.0], [0],
            INTERRUPTED if draw.random() < 0.1 else "stop", messages, reply, 0.0, id=number,
        )  # fmt: skip
        node = TurnNode.of(turn, branch, b"", [])
        index.add_turn(session_id, node, draw.random() < 0.9)
        turns.append(([*messages, reply], node))
        if draw.random() < 0.2:
            index.set_answered(session_id, draw.choice(turns)[1])
        if draw.random() < 0.05:
            index.forget(draw.choice(sessions))
    return [*answers, str(len(index))]


def random_matching(draw: random.Random) -> list[Any]:
    """Which turns requests follow and what they answer, where the same is said all the time."""
    nodes: list[TurnNode] = []
    conversations: list[list[Message]] = []
    outcomes: list[Any] = []
    for number in range(1, 25):
        messages = list(draw.choice(conversations)) if draw.random() < 0.85 and nodes else []
        if len(messages) > 2 and draw.random() < 0.35:
            cut = draw.randrange(1, len(messages))
            messages = [user("a summary") for _ in range(draw.randrange(2))] + messages[cut:]
        messages.append(user(draw.choice(["a", "b"])))
        branch = Branch.of(messages)
        waiting = {node.turn_id for node in nodes if draw.random() < 0.6}
        under_way = {Branch.of(draw.choice(conversations)[:-1]).leaf for _ in nodes[:2]}
        under_way |= {node.request for node in nodes if draw.random() < 0.1}
        outcomes.append(matching_of(branch, nodes, waiting, under_way))
        reply = assistant(draw.choice(["ok", "no"]))
        turn = Turn(
            "s", number, "side" if draw.random() < 0.15 else "main", [1], [2], [0.0], [0],
            INTERRUPTED if draw.random() < 0.15 else "stop", messages, reply, 0.0, id=number,
        )  # fmt: skip
        nodes.append(TurnNode.of(turn, branch, b"", []))
        conversations.append([*messages, reply])
    return outcomes


def matching_of(
    branch: Branch, nodes: list[TurnNode], waiting: set[int], under_way: set[bytes]
) -> list[Any]:
    graph = TurnGraph(nodes, waiting)
    parent = graph.parent_of(branch)
    return [
        [[node.turn_id, len(answer)] for node, answer in graph.next_states(branch, under_way)],
        [[node.turn_id, len(answer)] for node, answer in graph.straight_next_state(branch)],
        None if parent is None else parent.turn_id,
        [node.turn_id for node in interrupted_before(branch, nodes)],
    ]


def random_addition(draw: random.Random) -> list[int]:
    """Ids with an addition, where the used ids differ from the rendering here or there."""
    before, after, added = ([draw.randrange(3) for _ in range(draw.randrange(6))] for _ in "abc")
    used = [before, after]
    changed_side = draw.randrange(3)
    if changed_side:
        used[changed_side - 1] = [draw.randrange(3, 6) for _ in range(draw.randrange(6))]
    return insert_addition(used[0] + used[1], before + after, before + added + after)


def small_cases() -> Outcome:
    """Outcomes without a store, for each of many seeds."""
    outcomes: dict[str, list[Any]] = {
        "ids": [], "messages": [], "index": [], "matching": [], "additions": [],
    }  # fmt: skip
    for seed in range(80):
        draw = random.Random(seed)
        old, new = random_ids(draw)
        prefix, own, copies = diff_ids(array("i", old), array("i", new))
        outcomes["ids"].append([prefix, len(own), list(map(list, copies)), fingerprint(list(own))])
        texts, changed = random_messages(draw)
        prefix, delta = diff_messages(texts, changed)
        outcomes["messages"].append([prefix, fingerprint(delta)])
        outcomes["index"].append(fingerprint(random_index(draw)))
        outcomes["matching"] += map(fingerprint, (random_matching(draw) for _ in range(4)))
        outcomes["additions"] += [random_addition(draw) for _ in range(5)]
    return outcomes


def outcomes() -> Outcome:
    """All cases by their names."""
    folders = sorted({name.split("/")[0] for name in NAMES if "/" in name})
    return {
        "small": small_cases(),
        **{f"recorded {name}": asyncio.run(recorded_conversation(name)) for name in folders},
        **{f"random {seed}": asyncio.run(random_conversation(seed)) for seed in range(SCENARIOS)},
    }


# A database of before.


async def write_database(folder: Path) -> None:
    """A run's database with a few conversations, as one file."""
    with tempfile.TemporaryDirectory() as name:
        store = Store.open(Path(name))
        for seed in DATABASE_SEEDS:
            conversation = Conversation(store, seed)
            await conversation.run(STYLES[seed % len(STYLES)], prefix=f"{seed}-")
        await store.close()
        (folder / DATABASE).unlink(missing_ok=True)
        with closing(sqlite3.connect(Path(name) / "run.db")) as db:
            db.execute("VACUUM INTO ?", (str(folder / DATABASE),))


def _told(turn: Turn) -> tuple[object, ...]:
    """All of a turn but what a database of before does not know."""
    *told, temperature, untrainable, stop_text, answer_id, turn_id = astuple(turn)
    assert (temperature, untrainable, stop_text, answer_id) == (None, "", None, "")
    return (*told, turn_id)


def read_database(database: Path) -> Outcome:
    """All turns and next states of a database, as a reader gives them."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(database, Path(name) / "run.db")
        reader = StoreReader(Path(name))
        read = {}
        for row in sorted(reader.sessions(), key=lambda row: row.id):
            turns = reader.turns_of(row.id)
            states = reader.next_states_of(row.id)
            read[row.id] = {
                "turns": [[turn.index, turn.kind, fingerprint(_told(turn))] for turn in turns],
                "next_states": {str(key): fingerprint(states[key]) for key in sorted(states)},
            }
        reader.close()
        return read


async def continued_database(database: Path) -> Outcome:
    """How conversations of a database go on in a new process."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(database, Path(name) / "run.db")
        store = Store.open(Path(name))
        conversation = Conversation(store, 0)
        rows = sorted(await store.sessions(), key=lambda row: row.id)
        conversation.sessions = {row.id: number for number, row in enumerate(rows)}
        await conversation.talk.sessions.start()
        for row in rows:
            for turn in (await store.turns_of(row.id))[-3:]:
                messages = [*turn.messages, turn.reply, user("go on")]
                style = "rollout" if row.source == "rollout" else "plain"
                speaker = Speaker(row.id, conversation.draw, style)
                if style == "plain" and turn.kind == "main":
                    speaker.name = None if conversation.draw.random() < 0.5 else row.id
                await conversation.ask(speaker, messages, assistant("cab"), {})
        return await conversation.outcome(Path(name))


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    asyncio.run(write_database(folder))
    database = folder / DATABASE
    cases = outcomes() | {
        "database read": read_database(database),
        "database continued": asyncio.run(continued_database(database)),
    }
    lines = (f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    (folder / OUTCOMES).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
