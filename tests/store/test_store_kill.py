"""kill -9 at random moments loses nothing that was acknowledged, and a deletion is whole or not."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Message, Turn, Verdict
from clawrl_gym.store import SessionRow, Store, StoreReader, effective

KILLS = 50
WRITERS = 8
TALKS = 4
TALK_TURNS = 3
END = "ended\n"
WORDS = ("turn", "rule", "feedback", "whole", "deleting", "deleted")


def make_turn(session_id: str, index: int) -> Turn:
    """Its content follows from its name, so that a reader can tell whether it is whole."""
    messages: list[Message] = [{"role": "user", "content": f"{session_id} {index} " + "x" * 300}]
    return Turn(
        session_id=session_id,
        index=index,
        kind="main",
        prompt_ids_T=list(range(index % 7, 300)),
        sampled_ids_T=[index] * 20,
        logprobs_T=[-float(index)] * 20,
        versions_T=[index] * 20,
        finish_reason="stop",
        messages=messages,
        reply={"role": "assistant", "content": f"{index}"},
        created_s=0.0,
    )


async def write_forever(folder: Path) -> None:
    """Many writers, each of which tells what was acknowledged to it."""
    store = Store.open(folder)

    async def writer(session_id: str) -> None:
        await store.add_session(SessionRow(session_id, None, None, "train", "live", 0.0))
        index = len(await store.turns_of(session_id))
        while True:
            position = await store.add_turn(make_turn(session_id, index))
            tell("turn", session_id, index, position)
            await store.add_next_state(position, [{"role": "user", "content": "go on"}])
            index += 1
            for kind, value in (("rule", 1), ("feedback", -1)):
                said = Verdict(position, kind, value, value, {"reason": session_id}, 0.0)  # type: ignore[arg-type]
                tell(kind, position, await store.add_verdict(said))

    async def deleter(session_id: str) -> None:
        """Sessions that begin, end and are deleted; two processes never use the same id."""
        for number in range(10**6):
            name = f"{session_id}-{os.getpid()}-{number}-talk"
            await store.add_session(SessionRow(name, None, None, "train", "live", 0.0))
            for index in range(TALK_TURNS):
                position = await store.add_turn(make_turn(name, index))
                await store.add_verdict(Verdict(position, "rule", 1, 1.0, {"reason": name}, 0.0))
            tell("whole", name)
            if number % 2 == 0:
                tell("deleting", name)
                await store.delete_session(name)
                tell("deleted", name)

    async with asyncio.TaskGroup() as writers:
        for number in range(WRITERS):
            writers.create_task(writer(f"s{number}"))
        for number in range(TALKS):
            writers.create_task(deleter(f"d{number}"))


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def fork_writers(folder: Path) -> None:
    """The child process: for each line that comes in, a process that writes until it is killed.

    Forking a process that has everything loaded makes 50 kills a matter of seconds.
    """
    for _ in sys.stdin:
        writer = os.fork()
        if writer == 0:
            asyncio.run(write_forever(folder))
            os._exit(0)
        os.write(1, f"writer {writer}\n".encode())
        os.waitpid(writer, 0)
        os.write(1, END.encode())


def kill_one(orders: IO[str], told: IO[str], after_lines: int, pause_s: float) -> list[list[str]]:
    """Let one process write, kill it, and return what it had acknowledged."""
    orders.write("write\n")
    orders.flush()
    first = [told.readline().split() for _ in range(1 + after_lines)]
    (writer,) = (int(line[1]) for line in first if line[0] == "writer")
    time.sleep(pause_s)
    os.kill(writer, signal.SIGKILL)
    rest = [line.split() for line in iter(told.readline, END)]
    return [line for line in [*first, *rest] if line[0] != "writer"]


def test_nothing_acknowledged_is_lost_by_50_kills(tmp_path: Path) -> None:
    draw = random.Random(5)
    command = [sys.executable, "-m", "tests.store.test_store_kill", str(tmp_path)]
    pipe = subprocess.PIPE
    acknowledged: list[list[str]] = []
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(KILLS):
            lines, pause_s = draw.choice([0, 1, 30, 120]), draw.uniform(0, 0.06)
            acknowledged += kill_one(child.stdin, child.stdout, lines, pause_s)
        child.stdin.close()
    told = {word: [rest for first, *rest in acknowledged if first == word] for word in WORDS}
    assert len(told["turn"]) > 3 * KILLS
    assert len(told["deleting"]) > len(told["deleted"]) > 3
    check_all_there(tmp_path, told["turn"])
    check_verdicts(tmp_path, told)
    reopen(tmp_path)
    check_logs(tmp_path)
    check_deletions(tmp_path, told)


def check_all_there(folder: Path, acknowledged: list[list[str]]) -> None:
    reader = StoreReader(folder)
    found = {turn.id: turn for row in reader.sessions() for turn in reader.turns_of(row.id)}
    reader.close()
    for session_id, index, position in acknowledged:
        turn = found[int(position)]
        expected = make_turn(session_id, int(index))
        assert (turn.session_id, turn.index) == (expected.session_id, expected.index)
        assert turn.prompt_ids_T == expected.prompt_ids_T
        assert turn.messages == expected.messages
        assert turn.logprobs_T == expected.logprobs_T


def check_verdicts(folder: Path, told: dict[str, list[list[str]]]) -> None:
    """Each that was acknowledged is there under its id, and feedback wins."""
    reader = StoreReader(folder)
    found = {
        turn: own for row in reader.sessions() for turn, own in reader.verdicts_of(row.id).items()
    }
    reader.close()
    for kind in ("rule", "feedback"):
        for position, verdict_id in told[kind]:
            ids = [verdict.id for verdict in found[int(position)] if verdict.kind == kind]
            assert ids == [int(verdict_id)]
    for position, _ in told["feedback"]:
        verdict = effective(found[int(position)])
        assert verdict is not None
        assert (verdict.kind, verdict.value) == ("feedback", -1)


def reopen(folder: Path) -> None:
    """Does what a kill kept from being done."""

    async def open_and_close() -> None:
        await Store.open(folder).close()

    asyncio.run(open_and_close())


def check_logs(folder: Path) -> None:
    """What a kill kept from the log is there; no line is there twice, none of a deleted turn."""
    reader = StoreReader(folder)
    ids = [row.id for row in reader.sessions()]
    turns = sorted(turn.id or 0 for name in ids for turn in reader.turns_of(name))
    verdicts = sorted(
        verdict.id or 0
        for name in ids
        for own in reader.verdicts_of(name).values()
        for verdict in own
    )
    reader.close()
    lines: list[dict[str, Any]] = read_json_lines(folder / "conversations.jsonl")
    assert sorted(line["id"] for line in lines if line["type"] == "turn") == turns
    lines = [*read_json_lines(folder / "evaluations.jsonl")]
    assert sorted(line["id"] for line in lines if line["type"] == "verdict") == verdicts


def check_deletions(folder: Path, told: dict[str, list[list[str]]]) -> None:
    """A deletion that was begun has left all or nothing; one that was acknowledged, no byte."""
    deleting = {name for (name,) in told["deleting"]}
    deleted = {name for (name,) in told["deleted"]}
    reader = StoreReader(folder)
    turns = {row.id: len(reader.turns_of(row.id)) for row in reader.sessions()}
    reader.close()
    for (name,) in told["whole"]:
        assert turns.get(name) in ((TALK_TURNS, None) if name in deleting else (TALK_TURNS,))
    gone = deleted | {name for name in deleting if name not in turns}
    assert not deleted & turns.keys()
    for path in folder.iterdir():
        told_bytes = path.read_bytes()
        assert [name for name in gone if name.encode() in told_bytes] == [], path.name


if __name__ == "__main__":
    fork_writers(Path(sys.argv[1]))
