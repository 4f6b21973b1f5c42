"""More sandboxes than there is room for: they wait, are told, and are refused in the end."""

import logging
import threading

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.cgroup import CgroupHome
from clawrl_gym.envs.sandbox.memory import free_mb, limit_bytes
from clawrl_gym.envs.sandbox.room import Room, most_sandboxes


def plenty():
    return 10_000


def test_what_is_least_says_how_many_there_can_be():
    count, what = most_sandboxes(100)
    assert (count, what.split()[0]) == (100, "uid")
    assert 1 < most_sandboxes(None)[0] < most_sandboxes(10**9)[0] + 1
    assert "uid" not in most_sandboxes(None)[1]


def test_one_too_many_is_refused_with_what_is_missing(caplog):
    room = Room(2, "uid ranges", plenty, wait_s=0.0)
    room.enter()
    room.enter()
    with pytest.raises(
        SandboxError, match="no more uid ranges; 2 of this process are alive: run fewer"
    ):
        room.enter()
    room.leave()
    room.enter()


def test_whoever_waits_comes_in_when_another_leaves_and_is_told_once(caplog):
    room, inside = Room(1, "uid ranges", plenty), []

    def come_and_go():
        room.enter()
        inside.append(1)
        room.leave()

    room.enter()
    threads = [threading.Thread(target=come_and_go) for _ in range(5)]
    with caplog.at_level(logging.WARNING):
        for thread in threads:
            thread.start()
        room.leave()
        for thread in threads:
            thread.join(10)
    assert len(inside) == 5
    assert len(caplog.messages) <= 1


def test_memory_that_ends_refuses_the_next_and_not_those_alive():
    free = iter([2_000] * 300 + [100] * 3 + [2_000])
    room = Room(5_000, "uid ranges", lambda: next(free), wait_s=0.0)
    for _ in range(300):
        room.enter()
    with pytest.raises(SandboxError, match="100 MB of memory are free, and 256 stay so; 300 of"):
        room.enter()


@pytest.mark.parametrize(
    ("files", "free", "limit"),
    [
        ({"memory.max": "max"}, None, None),
        (
            {
                "memory.max": str(900 << 20),
                "memory.current": str(700 << 20),
                "memory.stat": f"anon 5\ninactive_file {100 << 20}\n",
            },
            300,
            900 << 20,
        ),
        (
            {
                "memory.limit_in_bytes": str(600 << 20),
                "memory.usage_in_bytes": str(650 << 20),
                "memory.stat": "total_inactive_file 0\n",
            },
            0,
            600 << 20,
        ),
    ],
)
def test_the_cgroup_that_this_runs_in_counts(tmp_path, files, free, limit):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    home = CgroupHome(2, {"": tmp_path / "inner"})
    machine = CgroupHome(2, {"": tmp_path / "none/here"} if not files else {"": tmp_path})
    assert free_mb(home) == free if free is not None else free_mb(home) > 0
    if limit is not None:
        assert limit_bytes(machine) == limit
