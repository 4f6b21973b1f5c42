"""kill -9 at random moments loses nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from clawrl_gym.jsonl import read_json_lines
from clawrl_gym.store import SessionRow, Store, StoreReader
from clawrl_gym.types import Message, Turn

KILLS = 50
WRITERS = 8
END = "ended\n"


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
            os.write(1, f"{session_id} {index} {position}\n".encode())
            await store.add_next_state(position, [{"role": "user", "content": "go on"}])
            index += 1

    async with asyncio.TaskGroup() as writers:
        for number in range(WRITERS):
            writers.create_task(writer(f"s{number}"))


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
    command = [sys.executable, "-m", "tests.test_store_kill", str(tmp_path)]
    pipe = subprocess.PIPE
    acknowledged: list[list[str]] = []
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(KILLS):
            lines, pause_s = draw.choice([0, 1, 1, 5]), draw.uniform(0, 0.06)
            acknowledged += kill_one(child.stdin, child.stdout, lines, pause_s)
        child.stdin.close()
    assert len(acknowledged) > 5 * KILLS
    check_all_there(tmp_path, acknowledged)
    check_logs(tmp_path)


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


def check_logs(folder: Path) -> None:
    """Reopening adds what a kill kept from the log; no line is there twice."""

    async def reopen() -> list[int]:
        store = Store.open(folder)
        turns = [await store.turns_of(row.id) for row in await store.sessions()]
        await store.close()
        return sorted(turn.id or 0 for own in turns for turn in own)

    stored = asyncio.run(reopen())
    lines = read_json_lines(folder / "conversations.jsonl")
    assert sorted(line["id"] for line in lines if line["type"] == "turn") == stored


if __name__ == "__main__":
    fork_writers(Path(sys.argv[1]))
