"""Finding the engine, and what is said where there is none."""

import subprocess
from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError, TaskError
from clawrl_gym.envs.sandbox.docker import engine as module
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call

SCRIPT = Path(__file__).resolve().parents[1] / "docker" / "engine.sh"


@pytest.fixture
def forgotten(monkeypatch):
    """This process has not asked for an engine yet."""
    monkeypatch.setattr(module, "_clients", {})
    return monkeypatch


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "nonsense"])
def test_without_an_engine_the_cure_and_what_still_works_are_said(forgotten, host):
    forgotten.setenv("DOCKER_HOST", host)
    with pytest.raises(
        SandboxError, match=r"docker/engine\.sh start.*sandbox=bubblewrap"
    ) as raised:
        engine()
    assert host in str(raised.value)


def test_the_engines_trouble_is_a_sandbox_error_and_a_tasks_stays_one():
    with pytest.raises(SandboxError, match="doing: gone"), engine_call("doing"):
        raise ConnectionError("gone")
    with pytest.raises(TaskError), engine_call("doing"):
        raise TaskError("its own")


@pytest.mark.parametrize("arguments", [[], ["start"], ["install", "x"], ["remove", "x"]])
def test_the_script_refuses_what_it_does_not_know(arguments):
    done = subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 1
    assert "usage" in done.stderr or "needs root" in done.stderr


@pytest.mark.root
@pytest.mark.docker
def test_the_scripts_engine_starts_where_it_is_told_and_stops(forgotten, tmp_path):
    address = run("start", tmp_path)
    try:
        assert run("start", tmp_path) == address  # it is the same one
        forgotten.setenv("DOCKER_HOST", address)
        client = engine()
        root = client.info()["DockerRootDir"]
        client.close()
        assert root == str(tmp_path / "data")
    finally:
        run("stop", tmp_path)
    assert not (tmp_path / "pid").exists()
    run("stop", tmp_path)


def run(verb, folder):
    done = subprocess.run(
        [str(SCRIPT), verb, str(folder)], capture_output=True, text=True, check=True, timeout=90
    )
    return done.stdout.strip()
