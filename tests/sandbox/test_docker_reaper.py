"""What dead owners left is removed, and nothing else is."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from clawrl_gym.envs.sandbox.docker import ownership
from clawrl_gym.envs.sandbox.docker.engine import engine
from clawrl_gym.envs.sandbox.docker.images import BASE_IMAGE
from clawrl_gym.envs.sandbox.docker.reaper import reap
from tests.support.waiting import becomes_true

LATER = str(int(time.time()) + 3600)


def of(name, expires=LATER):
    return {ownership.OWNER_LABEL: name, ownership.EXPIRES_LABEL: expires}


def dead_name():
    namespace, boot, _, _ = ownership.own_name().replace(":", "-").split("-")
    return f"{namespace}:{boot}-4000000-1"


def test_only_the_dead_and_the_expired_are_left_over():
    own, dead = ownership.own_name(), dead_name()
    assert not ownership.is_left_over(of(own))
    assert ownership.is_left_over(of(own, "1000"))
    assert ownership.is_left_over(of(dead))


@pytest.mark.parametrize("labels", [{}, {"clawrl.owner": ""}, {"clawrl.owner": "x:y-1-1"}])
def test_what_cannot_be_judged_is_left_alone(labels):
    assert not ownership.is_left_over(labels)
    assert not ownership.is_left_over(labels | {ownership.EXPIRES_LABEL: "soon"})


def test_owners_on_other_machines_or_in_other_process_namespaces_are_not_judged():
    dead = dead_name()
    namespace, _, rest = dead.partition(":")
    assert not ownership.is_left_over(of(f"{int(namespace) + 1}:{rest}"))
    assert not ownership.is_left_over(of(f"{namespace}:000000000000-4000000-1"))


@pytest.fixture
def made():
    """Makes containers that never start; removes its own."""
    ids = []

    def make(labels):
        ids.append(engine().api.create_container(BASE_IMAGE, "true", labels=labels)["Id"])
        return ids[-1]

    yield make
    for identity in ids:
        if exists(identity):
            engine().api.remove_container(identity, force=True)


def exists(identity):
    found = engine().api.containers(all=True, filters={"id": identity})
    return bool(found)


@pytest.mark.docker
def test_s17_what_a_dead_run_left_is_removed_and_nothing_else(made):
    """S17: leases and containers of dead runs are never reaped in the reference."""
    dead, expired = made(of(dead_name())), made(of(ownership.own_name(), "1000"))
    living, foreign = made(of(ownership.own_name())), made({"other": "label"})
    assert reap() >= 2
    assert [exists(i) for i in (dead, expired, living, foreign)] == [False, False, True, True]


@pytest.mark.docker
def test_an_owner_that_is_killed_leaves_no_container():
    """Neither an idle one nor one whose command runs on; no reaper is needed."""
    code = f"""
        import time
        from clawrl_gym.envs.sandbox.interface import Limits, SandboxSpec
        from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox
        idle = open_docker_sandbox(Limits(), SandboxSpec(), image={BASE_IMAGE!r})
        busy = open_docker_sandbox(Limits(), SandboxSpec(), image={BASE_IMAGE!r})
        print(idle._container.id, busy._container.id, flush=True)
        busy.exec("sleep 300; sleep 301", 600)
    """
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        ids = run.stdout.readline().split()
        assert len(ids) == 2
        time.sleep(0.3)
        os.kill(run.pid, signal.SIGKILL)
    assert becomes_true(lambda: not any(exists(i) for i in ids))
