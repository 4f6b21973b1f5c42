"""The real OpenClaw before a policy that says what the test wants: a call that it cannot carry out,
the correction after it, heartbeats and `/new`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ChatBody, Message, Turn, Verdict
from clawrl_gym.judge.queue import JudgeQueue
from clawrl_gym.judge.rules import RuleJudge
from tests.e2e.openclaw_client import OpenClaw
from tests.e2e.serve.test_openclaw import said_in
from tests.support.fakes import FakePolicy
from tests.support.fakes_judge import shipped_rules
from tests.support.gateway_rig import Bench
from tests.support.recordings import shipped

pytestmark = [pytest.mark.openclaw, pytest.mark.slow, pytest.mark.timeout(300)]

WRONG = "That's wrong, the file is called kitten.txt."
ARGUMENTS = "{path: garden.txt"
BROKEN: Any = {"id": "1", "type": "function", "function": {"name": "read", "arguments": ARGUMENTS}}


class Scripted(FakePolicy):
    """Calls a tool in no JSON when it is asked to read, says nothing to one question, is quiet at
    heartbeats, and else says something that it has not said before."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self._said = 0

    async def render(self, body: ChatBody) -> list[int]:
        """Without OpenClaw's own prompt, which is longer than the context in tokens of a letter."""
        said = [message for message in body["messages"] if message["role"] != "system"]
        return await super().render({**body, "messages": said, "tools": []})

    def _answer(self, messages: list[Message]) -> Message | str:
        said = [text_of(message) for message in messages if message["role"] == "user"]
        last = [text for text in said if not text.startswith("<<<BEGIN_OPENCLAW")][-1]
        if "Read the file" in last:
            return cast(Message, {"role": "assistant", "content": None, "tool_calls": [BROKEN]})
        if "heartbeat" in last:
            return "NO_REPLY"
        if "Are you there?" in last:
            return ""
        self._said += 1
        return f"Answer {self._said}."


@dataclass(frozen=True, slots=True)
class Desk:
    """An OpenClaw, the gateway that it talks to, and a judge."""

    claw: OpenClaw
    bench: Bench

    async def say(self, text: str, replied: str) -> None:
        """Send a message of the main session, as the web page does; until the reply that begins
        so has been stored and OpenClaw is at rest."""
        before = len(self.turns)
        message = {"message": text, "idempotencyKey": uuid.uuid4().hex}
        await self._call("chat.send", sessionKey="agent:main:main", **message)
        await self.until(lambda: _replies(self.turns[before:], replied), text)
        await self.rest()

    async def ask_in_vain(self, text: str) -> None:
        """The same where no reply but a call in no JSON comes, until OpenClaw has given up."""
        before = len(self.turns)
        message = {"message": text, "idempotencyKey": uuid.uuid4().hex}
        await self._call("chat.send", sessionKey="agent:main:main", **message)
        await self.until(lambda: self.turns[before:], text)
        await self.rest()

    def at(self, text: str) -> int:
        """The position of the first turn that answers the words."""
        return next(
            at
            for at, turn in enumerate(self.turns)
            if any(text in text_of(message) for message in turn.messages[-2:])
        )

    async def command(self, text: str) -> None:
        """A command that OpenClaw answers itself."""
        message = {"message": text, "idempotencyKey": uuid.uuid4().hex}
        await self._call("chat.send", sessionKey="agent:main:main", **message)
        await self.rest()

    async def wake(self) -> None:
        before = len(self.turns)
        await self._call("wake", mode="now", text="Backup finished")
        await self.until(lambda: self.turns[before:], "the heartbeat")
        await self.rest()

    async def rest(self) -> None:
        """Until the main session has no run: OpenClaw tries again what failed."""
        while True:
            told = await self._call("sessions.list", includeGlobal=True)
            if not any(session.get("hasActiveRun") for session in told["sessions"]):
                return
            await asyncio.sleep(0.2)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        try:
            async with asyncio.timeout(60):
                while not condition():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{what}: not seen\n{self.claw.logged()}") from None

    async def _call(self, method: str, **params: Any) -> Any:
        return await asyncio.to_thread(self.claw.call, method, **params)

    @property
    def turns(self) -> list[Turn]:
        return self.bench.told.turns

    async def judged(self, count: int) -> dict[int, Verdict]:
        """The verdicts on all turns that have a next state, as many as are told."""
        rules = shipped_rules()
        verdicts: list[Verdict] = []
        queue = JudgeQueue(RuleJudge(rules), self.bench.store, rules, verdicts.append)
        judging = asyncio.create_task(queue.run())
        try:
            await self.until(lambda: len(verdicts) >= count, f"{count} verdicts")
        finally:
            judging.cancel()
            await asyncio.gather(judging, return_exceptions=True)
        return {verdict.turn_id: verdict for verdict in verdicts}

    async def next_words(self, turn: Turn) -> list[str] | None:
        """The user's words in a turn's next state; None when it has none."""
        state = await self.bench.store.next_state_of(turn.id or 0)
        return None if state is None else said_in(cast(Any, state))


def _replies(turns: list[Turn], begin: str) -> bool:
    return any(text_of(t.reply).startswith(begin) and t.kind == "main" for t in turns)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    bench = Bench(tmp_path)
    bench.live, bench.policy = shipped(), Scripted()
    await bench.start()
    folder, key = tmp_path / "claw", bench.gateway.key
    claw = await asyncio.to_thread(OpenClaw, folder, bench.url, key, plugin=False)
    try:
        yield Desk(claw, bench)
    finally:
        await asyncio.to_thread(claw.stop)
        await bench.stop()


async def test_corrections_reach_the_failed_call_and_heartbeats_and_new_reach_nobody(
    desk: Desk,
) -> None:
    await desk.say("Hello", "Answer")
    await desk.ask_in_vain("Read the file garden.txt")
    await desk.say(WRONG, "Answer")
    await desk.wake()
    await desk.say("Thanks, that is right.", "Answer")
    await desk.command("/new")
    await desk.say("Good morning", "Answer")
    await desk.say("Are you there?", "Answer")
    await desk.ask_in_vain("Read the file garden.txt")
    await desk.wake()
    await desk.say(WRONG, "Answer")

    _, *tries, corrected, beat, _ = desk.turns[: desk.at("Thanks, that is right.") + 1]
    _, silent, _, *more, second_beat, _ = desk.turns[desk.at("Good morning") :]
    assert text_of(silent.reply) == ""
    assert all("tool_calls" in turn.reply for turn in (*tries, *more))
    assert {t.kind for t in desk.turns} == {"main", "side"}
    assert [t for t in desk.turns if t.kind == "side"] == [beat, second_beat]
    assert len({turn.session_id for turn in desk.turns}) == 1
    said = [await desk.next_words(turn) for turn in desk.turns]
    nothing: list[None] = [None]
    assert said == [
        ["Read the file garden.txt"],
        *nothing * (len(tries) - 1),
        [WRONG],  # OpenClaw asks the same again before it gives up: it answers the last of them
        ["Thanks, that is right."],
        None,
        None,  # nobody answered before /new
        ["Are you there?"],
        None,  # it said nothing: OpenClaw asks again, in words of its own
        ["Read the file garden.txt"],
        *nothing * (len(more) - 1),
        [WRONG],
        None,
        None,
    ]
    verdicts = await desk.judged(sum(state is not None for state in said))
    for failed in (tries[-1], more[-1]):
        verdict = verdicts[failed.id or 0]
        assert (verdict.value, verdict.detail["rule"]) == (-1, "unexecutable call")
        assert ARGUMENTS in verdict.hints[0]
    assert verdicts[corrected.id or 0].value == 1
    judged = {t.id for t, state in zip(desk.turns, said, strict=True) if state is not None}
    assert verdicts.keys() == judged
