"""Hand-written judges, and live turns as the gateway would have stored them."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.core.types import Message, Turn, Verdict, VerdictKind
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.models.chat_models import Completion
from clawrl_gym.judge.models.endpoint import JudgeEndpoint
from clawrl_gym.judge.signals.resemblance import Odds
from clawrl_gym.judge.signals.user_rules import Hit
from clawrl_gym.store import SessionRow, Store

RULES = Path(__file__).parents[2] / "conf" / "judge" / "rule.yaml"


@functools.cache  # it is long, and many tests begin with it
def _written_rules() -> dict[str, Any]:
    rules: dict[str, Any] = plain_values(RULES.read_text())
    return rules


def shipped_rules(**changes: Any) -> JudgeConfig:
    """What `judge=rule` runs with."""
    return JudgeConfig.model_validate(_written_rules() | changes)


class RulesAlone:
    """Finds every answer like what its rule says, and nothing else like anything."""

    def odds(self, text: str, request: str, reply: str, hit: Hit | None) -> Odds:
        value = 0 if hit is None else hit.value
        return Odds(
            complaint=-9.0 * value if value else -9.0, praise=9.0 * value if value else -9.0
        )


VOTES = "You judge one reply of an assistant by what came after it."
HINTS = "You look for what an assistant should have done, by what came after its reply."


def model_judge(**changes: Any) -> JudgeConfig:
    """A judge that asks a model, with short instructions."""
    given = {"type": "model", "instructions": VOTES, "hint_instructions": HINTS} | changes
    return JudgeConfig.model_validate(given)


def a_case(*next_state: Message, **changes: Any) -> Case:
    """A case with an answer of a person, unless another next state is given."""
    came = list(next_state) or [user("no, shorter please")]
    return replace(Case(7, "plan my day", reply("Get up, then work."), came), **changes)


def whole(text: str) -> Completion:
    return Completion(text, finished=True)


Answer = str | Completion | Exception | float
"""What is said; a number: seconds of silence, and then that all is well."""


class ScriptedChatModel:
    """Says one answer after another, the last one for ever; hints and votes have their own."""

    def __init__(self, *votes: Answer, hints: tuple[Answer, ...] = ("\\boxed{-1}",)) -> None:
        self._answers = {VOTES: list(votes), HINTS: list(hints)}
        self.asked: list[tuple[list[Message], float, int]] = []
        self.cancelled = 0

    def count(self, instructions: str) -> int:
        """Questions with these instructions."""
        return sum(messages[0]["content"] == instructions for messages, _, _ in self.asked)

    async def complete(
        self, messages: list[Message], temperature: float, max_tokens: int
    ) -> Completion:
        self.asked.append((messages, temperature, max_tokens))
        answers = self._answers[str(messages[0]["content"])]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            try:
                await asyncio.sleep(answer)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            answer = "\\boxed{1}"
        return answer if isinstance(answer, Completion) else whole(answer)


class JudgeServer:
    """An OpenAI-compatible server whose answers a test writes; also a classifier."""

    def __init__(self) -> None:
        self.base_url = ""
        self.answer: Callable[[int], Any] = lambda at: completion("\\boxed{1}")
        """The body of the answer to the request of this number, counted from 0."""
        self.status = 200
        self.silent = False
        """No request is answered."""
        self.refusals: list[tuple[int, dict[str, str], Any]] = []
        """Status, headers and body of the answers to the first requests, before any other."""
        self.takes: set[str] | None = None
        """Fields of a request; one with any other is 400 and names it. None: all."""
        self.requests: list[tuple[str, Any, str]] = []
        """Path, body and authorization of each, but not of those for /models."""
        self.open = 0
        self.most_open = 0

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "first"}, {"id": "second"}]})
        at, auth = len(self.requests), request.headers.get("Authorization", "")
        self.requests.append((request.path, await request.json(), auth))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(3600 if self.silent else 0.002)
            answer, status, headers = self.answer(at), self.status, dict[str, str]()
        finally:
            self.open -= 1
        unknown = [] if self.takes is None else sorted({*self.requests[at][1]} - self.takes)
        if self.refusals:
            status, headers, answer = self.refusals.pop(0)
        elif unknown:
            status, answer = 400, {"error": {"message": f"Unsupported parameter: '{unknown[0]}'"}}
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status, headers=headers)
        return web.json_response(answer, status=status, headers=headers)


def completion(text: Any, reason: str = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion as OpenAI's API gives it."""
    said = {"role": "assistant", "content": text} | message
    return {"choices": [{"index": 0, "message": said, "finish_reason": reason}]}


def hint_answer(hint: str) -> str:
    """An answer that offers a hint."""
    return f"\\boxed{{1}} [HINT_START]{hint}[HINT_END]"


@asynccontextmanager
async def judge_server(
    timeout_s: float = 5.0, most: int = 100
) -> AsyncIterator[tuple[JudgeServer, JudgeEndpoint]]:
    """A server on loopback, and connections to it."""
    server = JudgeServer()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    endpoint = JudgeEndpoint(server.base_url, "the-key", timeout_s, most, first_wait_s=0.01)
    try:
        yield server, endpoint
    finally:
        await endpoint.close()
        await runner.cleanup()


class ScriptedJudge:
    """Judges by a function of the last message that came back."""

    kind: VerdictKind = "rule"

    def __init__(self, value: Callable[[str], Any] = lambda text: 1) -> None:
        self._value = value
        self.cases: list[Case] = []
        self.asking = 0
        self.most_asking = 0
        self.go = asyncio.Event()
        """Cleared: every question waits."""
        self.go.set()
        self._came = asyncio.Event()

    async def asked(self, count: int) -> None:
        """Wait until so many questions are open."""
        async with asyncio.timeout(60):
            while self.asking < count:
                self._came.clear()
                await self._came.wait()

    async def judge(self, case: Case) -> Verdict:
        self.cases.append(case)
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        self._came.set()
        try:
            await asyncio.sleep(0)
            await self.go.wait()
            value = self._value(text_of(case.next_state[-1]))
            if isinstance(value, Exception):
                raise value
            return Verdict(case.turn_id, "rule", value, float(value), {}, time.time())
        finally:
            self.asking -= 1


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def tool(text: str, call_id: str = "") -> Message:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def reply(text: str | None, *calls: tuple[str, str, str]) -> Message:
    """A reply; calls are id, name and arguments."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}
            for call_id, name, given in calls
        ]
    return message


def a_turn(session_id: str = "s", index: int = 0, **changes: Any) -> Turn:
    turn = Turn(
        session_id=session_id,
        index=index,
        kind="main",
        prompt_ids_T=[1, 2, 3],
        sampled_ids_T=[4, 5],
        logprobs_T=[-0.5, -0.25],
        versions_T=[0, 0],
        finish_reason="stop",
        messages=[user("plan my day")],
        reply=reply("Get up, then work."),
        created_s=time.time(),
    )
    return replace(turn, **changes)


async def live_session(store: Store, session_id: str = "s", source: Any = "live") -> None:
    await store.add_session(SessionRow(session_id, None, None, "train", source, time.time()))


async def stored(store: Store, turn: Turn, *next_state: Message) -> Turn:
    """The turn as stored, with its next state when there is one."""
    kept = replace(turn, id=await store.add_turn(turn))
    assert kept.id is not None
    if next_state:
        await store.add_next_state(kept.id, list(next_state))
    return kept
