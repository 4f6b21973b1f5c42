"""A server that does not start, or dies: what is told of it, and that nothing is left."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.inference.models.shipped import shipped_dir
from tests.support.stub_engine import StubServer
from tests.support.waiting import until


class Broken(StubServer):
    """Its program is some lines of Python."""

    program = ""

    def _argv(self) -> list[str]:
        return [sys.executable, "-c", self.program]


class Healing(Broken):
    """The second time its program is a stub that serves."""

    def _argv(self) -> list[str]:
        broken, self.program = self.program, ""
        return [sys.executable, "-c", broken] if broken else StubServer._argv(self)


def server(
    folder: Path, program: str = "", kind: type[StubServer] = Broken, **config: object
) -> tuple[StubServer, list[str]]:
    """It, and what is told of its phases."""
    phases: list[str] = []
    policy = PolicyConfig.model_validate({"device": "cpu", **config})
    made = (kind if program else StubServer)(
        policy, shipped_dir(), folder / "serving", folder / "vllm.log", phases.append
    )
    if isinstance(made, Broken):
        made.program = program
    return made, phases


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("print('ValueError: boom'); exit(3)", r"vLLM ended with exit code 3: .*boom; the whole l"),
        (
            "import os; os.kill(os.getpid(), 15)",
            r"vLLM died of signal 15.*; the whole log is .*log",
        ),
    ],
)
async def test_a_program_that_ends_while_it_starts_is_told_with_its_last_words(
    tmp_path: Path, program: str, says: str
) -> None:
    broken, phases = server(tmp_path, program)
    with pytest.raises(PolicyError, match=says):
        await broken.start()
    assert phases == ["starting vLLM"]
    assert (broken.pid, broken.alive) == (None, False)


KILLED = r"vLLM was killed \(signal 9: out of memory\?\); the whole log"
GONE = r"vLLM ended with exit code 1: its engine ended without a word"


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os; os.kill(os.getpid(), 9)", KILLED),
        ("print('RuntimeError: engine core exited unexpectedly.'); exit(1)", GONE),
    ],
)
async def test_what_is_killed_while_it_starts_is_started_once_more(
    tmp_path: Path, program: str, says: str
) -> None:
    broken, phases = server(tmp_path, program)
    with pytest.raises(PolicyError, match=says):
        await broken.start()
    assert phases[::2] == ["starting vLLM", "starting vLLM"]
    assert re.fullmatch(f"{says}.*; starting it again", phases[1])


async def test_it_serves_when_only_its_first_start_was_killed(tmp_path: Path) -> None:
    healing, phases = server(tmp_path, "import os; os.kill(os.getpid(), 9)", Healing)
    await healing.start()
    assert (phases[0], phases[2:]) == ("starting vLLM", ["starting vLLM", "ready"])
    await healing.stop()


async def test_a_reason_with_a_cure_is_a_matter_of_the_configuration(tmp_path: Path) -> None:
    broken, _ = server(tmp_path, "print('torch.OutOfMemoryError: CUDA out of memory'); exit(1)")
    with pytest.raises(ConfigError, match=r"exit code 1: .*out of memory; .* \(log: .*vllm\.log\)"):
        await broken.start()


async def test_a_program_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    silent, _ = server(tmp_path, "import time; time.sleep(600)", start_timeout_s=0.5)
    with pytest.raises(PolicyError, match=r"vLLM was not ready within 0\.5 s"):
        await silent.start()
    assert silent.pid is None


async def test_a_server_that_is_stopped_while_it_starts_says_so(tmp_path: Path) -> None:
    silent, phases = server(tmp_path, "import time; time.sleep(600)")
    starting = asyncio.create_task(silent.start())
    await until(lambda: "starting vLLM" in phases)
    await silent.stop()
    with pytest.raises(
        PolicyError, match=r"vLLM (was stopped while it started|died of signal|was killed)"
    ):
        await starting
    assert silent.pid is None


async def test_a_server_that_dies_too_often_is_given_up_with_the_reason(tmp_path: Path) -> None:
    mortal, phases = server(tmp_path, max_restarts=1)
    await mortal.start()
    try:
        first, was_alive = mortal.pid, mortal.alive
        watching = asyncio.create_task(mortal.watch())
        mortal.kill()
        await until(lambda: phases.count("ready") == 2)
        assert len({first, mortal.pid, None}) == 3
        died = "vLLM was killed (signal 9: out of memory?), starting it again"
        assert phases == ["starting vLLM", "ready", died, "starting vLLM", "ready"]
        mortal.kill()
        with pytest.raises(PolicyError, match=r"was killed .*, after 1 restarts in a row; the who"):
            await watching
    finally:
        await mortal.stop()
    assert (was_alive, mortal.pid, mortal.alive) == (True, None, False)
    mortal.kill()  # nobody is there
