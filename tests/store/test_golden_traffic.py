"""A day of requests at the gateway, and each answer as it was: statuses, bodies, what is kept.

Clients of all kinds, at and beyond every limit that the API has. `python -m
tests.store.test_golden_traffic` writes the new file; what changed in it is what clients will see.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.types import Message
from clawrl_gym.store.users import Users
from tests.support.fakes import FakeKeeper, FakePolicy
from tests.support.gateway_rig import HELLO, Bench, parse_events, user

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden" / "traffic.json"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
_LONGEST = 360
_FRESH = re.compile(r"\b[0-9a-f]{32}\b")
"""Ids that the gateway makes."""
_TIME = re.compile(r'("(?:created|created_s|ended_s|last_s)": ?)[\d.]+')
_WHY = re.compile(r"not JSON \(.*?\), expected")
"""In Python's own words."""
_PASSING = ("_bucket", "_sum", "_created", "_count")
"""Series of what takes time."""
_OF_THE_PROCESS = re.compile(r"(clawrl_replaced_characters_total\{[^}]*\} )[0-9.]+")
"""Counts that other tests in this process add to."""
CALL: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    ],
}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]


def says(text: str) -> Message:
    return {"role": "assistant", "content": text}


class Day:
    """One client after another; what each was told."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.told: list[str] = []
        self._fresh: dict[str, str] = {}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else None
        sent = None if isinstance(body, bytes) else body
        async with self.bench.http.request(
            method, path, json=sent, data=data, headers=named
        ) as answer:
            raw = await answer.read()
            shown = [f"{name}={answer.headers[name]}" for name in _SHOWN if name in answer.headers]
            if answer.content_type == "text/event-stream":
                text = "\n".join(json.dumps(one) for one in parse_events(raw))
            elif path == "/metrics":
                lines = raw.decode().splitlines()
                text = "\n".join(line for line in lines if not _passes(line))
            else:
                text = raw.decode()
        self.tell(f"{method} {path} {answer.status}", *shown, text)

    async def chat(self, *messages: Message, path: str = CHAT, **fields: Any) -> None:
        headers = fields.pop("headers", {})
        await self.ask("POST", path, {"messages": list(messages), **fields}, **headers)

    def tell(self, *parts: str) -> None:
        text = _TIME.sub(r"\g<1>0", " ".join(parts))
        text = _OF_THE_PROCESS.sub(r"\g<1>0", text)
        text = _FRESH.sub(lambda found: self._name(found[0]), text)
        text = _WHY.sub("not JSON (why), expected", text)
        if len(text) > _LONGEST and "/metrics" not in text:
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            text = f"{text[:_LONGEST]}... {digest}"
        self.told.append(text)

    def _name(self, fresh: str) -> str:
        return self._fresh.setdefault(fresh, f"fresh{len(self._fresh)}")


_SHOWN = ("X-Session-Id", "X-Turn-Id", "X-Weight-Version", "Retry-After", "Allow")


def _passes(line: str) -> bool:
    return line.startswith("#") or any(passing in line.split("{")[0] for passing in _PASSING)


async def conversations(day: Day) -> None:
    """Turns with next states, forks, retries, side requests, tools, streams."""
    await day.chat(*HELLO, path="/sessions/s1" + CHAT)
    await day.chat(*HELLO, says("ok"), user("more"), path="/sessions/s1" + CHAT)
    await day.chat(*HELLO, says("ok"), user("other"), path="/sessions/s1" + CHAT)
    again = {"X_Stainless_Retry_Count": "1"}
    await day.chat(*HELLO, says("ok"), user("other"), path="/sessions/s1" + CHAT, headers=again)
    await day.chat(*HELLO, headers={"X_Session_Id": "s2", "X_Turn_Type": "side"})
    await day.chat(*HELLO, session_id="s3", turn_type="main", stream=True)
    options = {"include_usage": True}
    await day.chat(
        *HELLO, says("ok"), user("x"), session_id="s3", stream=True, stream_options=options
    )
    await day.chat(user("nobody's"), metadata={"session_id": "s4"}, session_done=True)
    await day.chat(user("nobody's"), metadata={"session_id": "no such name"})
    await day.chat(user("nobody's"), says("ok"), user("history"))
    await day.chat(user("nobody's"), says("ok"), user("history"), user="ann")
    await day.chat(user("look"), tools=TOOLS, session_id="t1", tool_choice="auto")
    found: Message = {"role": "tool", "content": "seen", "tool_call_id": "c1"}
    await day.chat(user("look"), CALL, found, tools=TOOLS, session_id="t1", stream=True)
    await day.chat(user("look"), CALL, found, says("ok"), user("?"), session_id="t1", user="x")
    parts: Any = [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]
    await day.chat({"role": "user", "content": parts}, session_id="p1")
    developer: Any = {"role": "developer", "content": "be short"}
    await day.chat(developer, user("hi"), session_id="p2", reasoning_effort="low")
    labels = {"X_Task_Id": "task", "X_Group_Id": "4", "X_Split": "heldout"}
    await day.chat(*HELLO, path="/sessions/e1" + CHAT, headers=labels)
    await day.ask("POST", "/sessions/e1/end", {"reward": 0.5, "stop_reason": "deadline"}, **labels)
    await day.chat(*HELLO, path="/sessions/e1" + CHAT, headers=labels)
    await day.ask("POST", "/sessions/e2/begin", **labels)
    await day.ask("POST", "/sessions/e2/end", {"error": "broke", "split": "train"}, **labels)
    flush = "Pre-compaction memory flush. Store durable memories only in x"
    await day.chat(user(flush), headers={"X_Session_Id": "s1"})
    runtime = "hi\n\nRuntime: agent=main | session=agent:main:m | sessionId=run1 | host=vm"
    await day.chat(user(runtime))
    await day.ask("POST", TEXT, {"prompt": "once upon"})
    await day.ask("POST", "/sessions/s5" + TEXT, {"prompt": [17, 18], "stream": True})
    day.bench.policy.cut = True
    await day.chat(*HELLO, session_id="cut", max_tokens=1)
    day.bench.policy.cut = False


async def feedback(day: Day) -> None:
    opinions: tuple[dict[str, Any], ...] = (
        {"session_id": "s1", "thumb": "up"}, {"turn_id": 1, "thumb": "down"},
        {"turn_id": 1, "score": 0}, {"turn_id": 1, "score": 1}, {"turn_id": 1, "score": -1},
        {"turn_id": 1, "score": 1.01}, {"turn_id": 1, "score": 0.5, "thumb": "up"}, {"turn_id": 1},
        {"turn_id": 1, "text": "say hi"}, {"turn_id": 1, "text": ""}, {"turn_id": 0, "score": 1},
        {"turn_id": 2**63 - 1, "score": 1}, {"turn_id": 2**63, "score": 1}, {"score": 1},
        {"session_id": "s2", "score": 1}, {"session_id": "s3", "turn_id": 1, "score": 1},
        {"session_id": "e1", "score": 1}, {"turn_id": 5, "score": 1},
    )  # fmt: skip
    for opinion in opinions:
        await day.ask("POST", "/v1/feedback", opinion)
    await day.ask("POST", "/sessions/s3/v1/feedback", {"thumb": "up"})


async def sessions(day: Day) -> None:
    for query in (
        "",
        "?limit=1",
        "?limit=0",
        "?limit=10000",
        "?limit=10001",
        "?open=true",
        "?user=x",
    ):
        await day.ask("GET", f"/v1/sessions{query}")
    queries = ("", "?count=1", "?count=0", "?count=1000", "?count=1001", "?first=1&count=1")
    for query in (*queries, "?first=-1", f"?first={2**62}", f"?first={2**62 + 1}"):
        await day.ask("GET", f"/v1/sessions/s1{query}")
    for name in (
        "s2",
        "s3",
        "s4",
        "t1",
        "p1",
        "e1",
        "e2",
        "run1",
        "cut",
        "nobody",
        "a b",
        "x" * 201,
    ):
        await day.ask("GET", f"/sessions/{name}")
    await day.ask("POST", "/v1/sessions/s3/end")
    await day.ask("POST", "/v1/sessions/s3/end", {"reward": 1})
    await day.ask("POST", "/v1/sessions/nobody/end", {})
    for body in ({"reward": "x"}, {"stop_reason": "bored"}, {"next_state": "x"}, {"split": "x"}):
        await day.ask("POST", "/v1/sessions/s1/end", body)
    await day.ask("POST", "/v1/sessions/s1/end", {"next_state": [user("bye")]})
    for name in ("s2", "s2", "nobody"):
        await day.ask("DELETE", f"/v1/sessions/{name}")
    await day.chat(*HELLO, session_id="s2")


LIMITS: tuple[dict[str, Any], ...] = (
    {"temperature": 0}, {"temperature": 100}, {"temperature": 100.5}, {"temperature": -0.1},
    {"top_p": 0}, {"top_p": 0.01}, {"top_p": 1}, {"top_p": 1.01},
    {"max_tokens": 0}, {"max_tokens": 1}, {"max_tokens": 2**31 - 1}, {"max_tokens": 2**31},
    {"max_completion_tokens": 0}, {"max_completion_tokens": 1, "max_tokens": 9},
    {"max_completion_tokens": 2**31}, {"seed": 2**63 - 1}, {"seed": 2**63}, {"seed": -(2**63)},
    {"seed": -(2**63) - 1}, {"stop": ["x"] * 16}, {"stop": ["x"] * 17}, {"stop": [""]},
    {"stop": "end"}, {"n": 1}, {"n": 2}, {"logprobs": False}, {"logprobs": True},
    {"tool_choice": "none"}, {"tool_choice": "required"}, {"tools": []}, {"tools": [{}]},
    {"parallel_tool_calls": False}, {"model": "tiny"}, {"model": "policy"}, {"model": "gpt"},
    {"chat_template_kwargs": {"enable_thinking": False}}, {"session_id": ""},
    {"session_id": "x" * 201}, {"session_id": "-x"}, {"session_id": "a.b_c:d~e@f+g=h-"},
    {"session_id": "x" * 200},
)  # fmt: skip
PROMPTS: tuple[Any, ...] = (
    "", [], [[]], ["one"], ["one", "two"], [[17]], [[17], [18]], [-1], [0], [2**31 - 1], [2**31],
    [True],
)  # fmt: skip


async def limits(day: Day) -> None:
    for number, fields in enumerate(LIMITS):
        await day.chat(*HELLO, **{"session_id": f"l{number}", **fields})
    for prompt in PROMPTS:
        await day.ask("POST", TEXT, {"prompt": prompt, "session_id": "prompts"})
    for fields in ({"best_of": 2}, {"echo": True}, {"suffix": "x"}, {"echo": False, "best_of": 1}):
        await day.ask("POST", TEXT, {"prompt": "x", **fields})
    kwargs: Any = {}
    for levels in range(1, 67):
        kwargs = {"a": kwargs}
        if levels in (62, 63, 64, 65):
            await day.chat(*HELLO, session_id=f"deep{levels}", chat_template_kwargs=kwargs)
            await day.chat(*HELLO, session_id=f"deep{levels}", tools=[{**TOOLS[0], "more": kwargs}])
    group = str(2**63 - 1)
    for name, value in (
        ("X_Group_Id", "-1"), ("X_Group_Id", "0"), ("X_Group_Id", group),
        ("X_Group_Id", str(2**63)), ("X_Task_Id", "x" * 500), ("X_Task_Id", "x" * 501),
        ("X_Split", "train"), ("X_Split", "x"),
        ("X_Turn_Type", "Main"), ("X_Turn_Type", "odd"), ("X_Session_Done", "yes"),
        ("X_Stainless_Retry_Count", "0"), ("X_Stainless_Retry_Count", "many"),
    ):  # fmt: skip
        await day.chat(*HELLO, session_id=f"h{len(day.told)}", headers={name: value})
    for raw in (b"", b"[1]", b"{", b'{"seed": 1e999}', b'{"messages": "\\ud800"}', b"\xff"):
        await day.ask("POST", CHAT, raw)
    calls: Any = {**CALL, "tool_calls": [{"function": {"name": "f", "arguments": "cut off"}}]}
    await day.chat(*HELLO, calls, user("go on"), session_id="mended")
    no_arguments: Any = {**CALL, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}
    await day.chat(*HELLO, no_arguments, user("go on"), session_id="mended2")
    bodies = day.bench.policy.bodies[-2:]
    day.tell("the policy reads", json.dumps(bodies))
    await day.chat(*HELLO, {**CALL, "tool_calls": [{"function": {}}]}, user("go on"))


async def elsewhere(day: Day) -> None:
    for path in ("/healthz", "/readyz", "/v1/models", "/v1/models/tiny", "/v1/models/policy"):
        await day.ask("GET", path)
    for path in ("/v1/models/gpt", "/sessions/s1/v1/models", "/v1/nothing", "/v1/outages"):
        await day.ask("GET", path)
    for query in ("?last_s=0", "?last_s=-1", "?last_s=nan", "?last_s=inf"):
        await day.ask("GET", f"/v1/outages{query}")
    await day.ask("PUT", CHAT)
    await day.ask("GET", "/v1/versions")
    await day.ask("POST", "/v1/versions/0")
    for version in ("x", "1" * 18, "1" * 19):
        await day.ask("POST", f"/v1/versions/{version}")
    day.bench.gateway.versions.keeper = FakeKeeper()
    await day.ask("GET", "/v1/versions?user=ann")
    await day.ask("POST", "/v1/versions/3")
    await day.ask("POST", "/sessions/s1/film", b"no jpeg")
    strange = {"Authorization": "Bearer nobody"}
    for path in ("/v1/models", "/metrics", "/readyz", "/healthz"):
        await day.ask("GET", path, **strange)
    ann = {"Authorization": f"Bearer {day.bench.users.add('ann')}"} if day.bench.users else {}
    await day.chat(*HELLO, session_id="s1", headers=ann)
    for path in ("/v1/sessions", "/v1/sessions/s1", "/v1/sessions/s3", "/metrics", "/v1/versions"):
        await day.ask("GET", path, **ann)
    await day.ask("GET", "/v1/versions?user=ben", **ann)
    day.bench.policy.max_prompt = 3
    await day.chat(*HELLO, session_id="long")
    day.bench.policy.max_prompt = None
    day.bench.policy.down = 10**6
    await day.ask("GET", "/readyz")
    await day.ask("GET", "/metrics")
    day.bench.policy.down = 0
    await day.ask("GET", "/metrics")


async def traffic(folder: Path) -> dict[str, list[str]]:
    """What was told, by part of the day, and what is known of it at its end."""
    bench = Bench(folder)
    bench.live = compose("serve", [], ServeConfig).live
    bench.users = Users(folder)
    bench.policy = FakePolicy(_reply)
    bench.policy.is_one_by_one = True
    await bench.start()
    told: dict[str, list[str]] = {}
    for part in (conversations, feedback, sessions, limits, elsewhere):
        day = Day(bench)
        await part(day)
        told[part.__name__] = day.told
    day = Day(bench)
    for sampling in bench.policy.samplings:
        day.tell(json.dumps(asdict(sampling)))
    usual = day.told[0]
    told["sampled with"] = [usual, *(one for one in day.told if one != usual)]
    kinds = [f"{turn.kind} {turn.rule} {turn.index}" for turn in bench.told.turns]
    states = [str(turn.id) for turn in bench.told.next_states]
    told["hooks"] = [", ".join(kinds), " ".join(states), " ".join(bench.told.deleted)]
    told["verdicts"] = [
        f"{one.turn_id} {one.value} {one.reward} {json.dumps(one.detail)}"
        for one in bench.told.verdicts
    ]
    await bench.stop()
    return told


def _reply(messages: list[Message]) -> Message | str:
    return CALL if messages[-1].get("content") == "look" else "ok"


async def test_every_answer_is_as_it_was(tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    now = await traffic(tmp_path)
    assert now.keys() == golden.keys()
    for part, told in now.items():
        for one, kept in zip(told, golden[part], strict=True):
            assert one == kept, part


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = asyncio.run(traffic(Path(place)))
    GOLDEN.write_text(json.dumps(made, indent=0, ensure_ascii=False) + "\n", "utf-8")
