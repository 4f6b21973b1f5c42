"""A disk that fills up: one clear error, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.jsonl import read_json_lines
from clawrl_gym.store import Store
from tests.test_store import SESSION, make_turn

LIMIT_BYTES = 400_000


async def write_until_full(folder: Path) -> None:
    """The child: no file of it may grow beyond the limit, as on a full disk."""
    store = Store.open(folder)
    await store.add_session(SESSION)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
    acknowledged = 0
    try:
        while True:
            await store.add_turn(make_turn(acknowledged))
            acknowledged += 1
    except StoreError as error:
        sys.stdout.write(f"{acknowledged}\n{error}\n")
    await store.close()


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.test_store_full_disk", str(tmp_path)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    acknowledged, message = told.stdout.splitlines()
    assert int(acknowledged) > 10
    assert message.startswith("cannot write to the run's database: ")
    assert message.endswith("make room on the disk, then go on with resume=")

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
    asyncio.run(write_until_full(Path(sys.argv[1])))
