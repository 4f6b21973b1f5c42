"""A disk that fills up: one clear error, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

from clawrl_gym.core.errors import DiskFull
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.store import Store
from tests.store.test_store import SESSION, make_turn

LIMIT_BYTES = 400_000
MOST = 2_000
"""Turns that need more room than that."""


async def write_until_full(folder: Path, record: bool) -> None:
    """The child: no file of it may grow beyond the limit, as on a full disk."""
    store = Store.open(folder, record)
    await store.add_session(SESSION)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
    acknowledged = 0
    try:
        while acknowledged < MOST:
            await store.add_turn(make_turn(acknowledged))
            acknowledged += 1
    except DiskFull as error:
        sys.stdout.write(f"{acknowledged}\n{error}\n")
    else:
        sys.stdout.write(f"{acknowledged}\n")
    await store.close()


def child(folder: Path, record: str) -> list[str]:
    """What the child printed."""
    command = [sys.executable, "-m", "tests.store.test_store_full_disk", str(folder), record]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_what_is_not_recorded_needs_no_room(tmp_path: Path) -> None:
    assert child(tmp_path, "unrecorded") == [str(MOST)]


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    acknowledged, message = child(tmp_path, "record")
    assert int(acknowledged) > 5
    assert message.startswith("cannot write to the run's database: ")
    assert message.endswith("make room on the disk, then resume with resume=")

    async def reopen() -> int:
        store = Store.open(tmp_path)
        turns = await store.turns_of("s1")
        await store.add_turn(make_turn(10_000))
        await store.close()
        return len(turns)

    assert asyncio.run(reopen()) == int(acknowledged)
    lines = read_json_lines(tmp_path / "conversations.jsonl")
    assert len(lines) == int(acknowledged) + 1


if __name__ == "__main__":
    asyncio.run(write_until_full(Path(sys.argv[1]), record=sys.argv[2] == "record"))
