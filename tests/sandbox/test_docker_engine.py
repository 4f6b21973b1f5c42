"""The client of the engine, and the script that starts one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError, TaskError
from clawrl_gym.envs.sandbox.docker.addresses import find_engine
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call
from tests.support.fake_engine import FakeEngine

SCRIPT = Path(__file__).resolve().parents[2] / "docker" / "engine.sh"


@pytest.fixture
def forgotten(without_engine: None, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process has not asked for an engine yet."""
    return monkeypatch


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "x://y"])
def test_without_an_engine_the_cure_and_what_still_works_are_said(forgotten, host):
    forgotten.setenv("DOCKER_HOST", host)
    with pytest.raises(SandboxError, match=r"mend DOCKER_HOST.*make.*sandbox=bubblewrap") as raised:
        engine()
    assert host in str(raised.value)


def test_what_answers_and_is_no_engine_is_told(forgotten, tmp_path):
    with FakeEngine(tmp_path / "x.sock") as fake:
        forgotten.setenv("DOCKER_HOST", fake.url)
        with pytest.raises(SandboxError, match=r"no Docker engine answers: DOCKER_HOST \(unix"):
            engine()


def test_the_engines_trouble_is_a_sandbox_error_and_a_tasks_stays_one():
    with pytest.raises(SandboxError, match="doing: gone"), engine_call("doing"):
        raise ConnectionError("gone")
    with pytest.raises(TaskError), engine_call("doing"):
        raise TaskError("its own")


@pytest.mark.parametrize("arguments", [[], ["start"], ["install", "x"], ["remove", "x"]])
def test_the_script_refuses_what_it_does_not_know(arguments):
    assert "usage: " in refused(*arguments)


@pytest.mark.root
@pytest.mark.parametrize("verb", ["start", "stop"])
def test_the_script_tells_an_ordinary_user_what_to_type(tmp_path, verb):
    words = refused(verb, str(tmp_path), user=65534)
    assert f"needs root: sudo {SCRIPT} {verb} {tmp_path}" in words
    assert "sandbox=bubblewrap" in words


@pytest.mark.root
def test_the_script_without_dockerd_says_what_installs_it(tmp_path):
    words = refused("start", str(tmp_path / "e"), PATH="/nowhere:/bin", BASH_ENV=hidden(tmp_path))
    assert words == f"engine.sh: no dockerd here; first, as root: {SCRIPT} install\n"
    assert not (tmp_path / "e").exists()


@pytest.mark.root
def test_an_engine_that_ends_at_its_start_is_told_at_once(tmp_path):
    daemon = tmp_path / "dockerd"
    daemon.write_text("#!/bin/sh\necho no overlay here; exit 1\n")
    daemon.chmod(0o755)
    words = refused("start", str(tmp_path / "e"), PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert words.startswith("no overlay here\nengine.sh: the engine in ")
    assert f"all are in {tmp_path}/e/log" in words
    assert not (tmp_path / "e/host").exists()


@pytest.mark.root
@pytest.mark.docker
def test_the_scripts_engine_starts_where_it_is_told_is_found_and_stops(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUDO_UID", "12345")
    folder = tmp_path / ".docker"
    address, words = run("start", folder)
    try:
        assert run("start", folder)[0] == address  # it is the same one
        assert "export DOCKER_HOST=" in words
        assert Path(address.removeprefix("unix://")).stat().st_uid == 12345  # may ask it, too
        search = find_engine()
        assert search.address is not None
        assert (search.address.url, search.address.origin) == (address, f"the engine of {folder}")
        assert root_of_the_engine() == str(folder / "data")
    finally:
        run("stop", folder)
    assert not (folder / "pid").exists()
    assert not (folder / "host").exists()
    assert "no engine runs" in run("stop", folder)[1]


def root_of_the_engine():
    """Root of the engine that a separate process finds: earlier tests use theirs in this one."""
    code = (
        "from clawrl_gym.envs.sandbox.docker.engine import engine\n"
        "print(engine().info()['DockerRootDir'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90
    )
    return done.stdout.strip()


def run(verb, folder):
    done = subprocess.run(
        [str(SCRIPT), verb, str(folder)], capture_output=True, text=True, check=True, timeout=90
    )
    return done.stdout.strip(), done.stderr


def refused(*arguments, user=None, **environment):
    done = subprocess.run(
        [str(SCRIPT), *arguments],
        capture_output=True, text=True, check=False, timeout=60, user=user,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


def hidden(folder):
    """A start file of bash after which there is no dockerd, wherever it lies."""
    path = folder / "hide.sh"
    path.write_text(
        'command() { [ "$2" != dockerd ] && builtin command "$@"; }\n', encoding="utf-8"
    )
    return str(path)
