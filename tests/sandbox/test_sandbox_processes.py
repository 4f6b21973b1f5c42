"""Finding and killing processes, on ordinary ones."""

import os
import subprocess

from clawrl_gym.envs.sandbox.processes import (
    alive,
    children,
    identity,
    inner_pid,
    kill_all,
    namespace_members,
)


def test_children_and_namespace_members_are_found():
    child = subprocess.Popen(["/bin/sleep", "30"])
    try:
        assert child.pid in children(os.getpid())
        assert {child.pid, os.getpid()} <= set(namespace_members(os.getpid()))
        assert inner_pid(child.pid) == child.pid
    finally:
        child.kill()
        child.wait()
    assert inner_pid(child.pid) == 0
    assert children(child.pid) == []
    assert namespace_members(child.pid) == []


def test_all_are_killed_but_those_to_spare():
    sleepers = [subprocess.Popen(["/bin/sleep", "30"]) for _ in range(4)]
    pids = [sleeper.pid for sleeper in sleepers]

    def listed():
        return [sleeper.pid for sleeper in sleepers if sleeper.poll() is None]

    assert kill_all(listed, {pids[0]}, keep=pids[1]) >= 2
    assert listed() == pids[:2]
    kill_all(listed, set(), keep=0)
    assert listed() == []


def test_who_is_dead_and_not_yet_buried_is_dead():
    child = subprocess.Popen(["/bin/sleep", "30"])
    name = identity(child.pid)
    assert alive(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert not alive(name)
    child.wait()
    assert not alive(name)
    assert alive("somebody else's")
