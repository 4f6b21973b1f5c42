"""kill -9 at random moments loses nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from clawrl_gym.jsonl import read_json_lines
from clawrl_gym.store import SessionRow, Store, StoreReader
from clawrl_gym.types import Message, Turn

KILLS = 50
WRITERS = 8


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
    """The child: many writers, each of which prints what was acknowledged."""
    store = Store.open(folder)

    async def writer(session_id: str) -> None:
        await store.add_session(SessionRow(session_id, None, None, "train", "live", 0.0))
        index = len(await store.turns_of(session_id))
        while True:
            position = await store.add_turn(make_turn(session_id, index))
            sys.stdout.write(f"{session_id} {index} {position}\n")
            sys.stdout.flush()
            await store.add_next_state(position, [{"role": "user", "content": "go on"}])
            index += 1

    async with asyncio.TaskGroup() as writers:
        for number in range(WRITERS):
            writers.create_task(writer(f"s{number}"))


def kill_while_writing(folder: Path, after_lines: int, pause_s: float) -> list[list[str]]:
    """Start the child, kill it, and return what it had acknowledged."""
    command = [sys.executable, "-m", "tests.test_store_kill", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(after_lines)]
        try:
            child.wait(pause_s)
        except subprocess.TimeoutExpired:
            child.kill()
        lines += child.stdout.read().splitlines(keepends=True)
    assert child.returncode == -9, "the child ended by itself"
    return [line.split() for line in lines if line.endswith("\n")]


def test_nothing_acknowledged_is_lost_by_50_kills(tmp_path: Path) -> None:
    random.seed(5)
    acknowledged: list[list[str]] = []
    for _ in range(KILLS):
        acknowledged += kill_while_writing(tmp_path, random.randrange(3), random.uniform(0, 0.06))
    reader = StoreReader(tmp_path)
    found = {turn.id: turn for row in reader.sessions() for turn in reader.turns_of(row.id)}
    reader.close()
    assert len(acknowledged) > 10 * KILLS
    for session_id, index, position in acknowledged:
        turn = found[int(position)]
        expected = make_turn(session_id, int(index))
        assert (turn.session_id, turn.index) == (expected.session_id, expected.index)
        assert turn.prompt_ids_T == expected.prompt_ids_T
        assert turn.messages == expected.messages
        assert turn.logprobs_T == expected.logprobs_T
    logs_hold_all(tmp_path, set(found))


def logs_hold_all(folder: Path, turn_ids: set[int | None]) -> None:
    """Reopening adds what a kill kept from the log; no line is there twice."""

    async def reopen() -> None:
        await Store.open(folder).close()

    asyncio.run(reopen())
    lines = read_json_lines(folder / "conversations.jsonl")
    logged = [line["id"] for line in lines if line["type"] == "turn"]
    assert sorted(logged) == sorted(turn_ids, key=lambda turn_id: turn_id or 0)


if __name__ == "__main__":
    asyncio.run(write_forever(Path(sys.argv[1])))
