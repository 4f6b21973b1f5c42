"""Ctrl-C and SIGTERM: one line, an exit code, nothing left behind, from the first import on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.processes.descendants import descendants
from clawrl_gym.core.processes.interrupt import Interrupts
from tests.e2e.runs import ROOT, still_alive

COMMAND = """
import asyncio, subprocess, sys
from clawrl_gym.config.part import Part
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.run.command import run_command

class Config(Part):
    dry_run: bool = False

async def main(config):
    with INTERRUPTS.goes_on("go on with: this"):
        try:
            # a child that ignores being asked, and one of its own in another session
            child = 'trap "" INT TERM; setsid sleep 1000 & sleep 1000'
            subprocess.Popen(["sh", "-c", child + "; true"], start_new_session=True)
            print("running", flush=True)
            await asyncio.sleep(1000)
        finally:
            print("closing", flush=True)
            CLOSING

INTERRUPTS.patience_s = PATIENCE
sys.exit(run_command(Config, lambda config: (), main))
"""


class Started:
    """A command in a process of its own."""

    def __init__(self, closing: str, patience_s: float) -> None:
        code = COMMAND.replace("CLOSING", closing).replace("PATIENCE", str(patience_s))
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n"

    def interrupted(self, number: signal.Signals) -> str:
        """Send a signal; standard error once the process has ended."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"]
)
def test_a_signal_has_everything_closed_and_names_how_to_go_on(
    number: signal.Signals, code: int
) -> None:
    command = Started("await asyncio.sleep(0)", 30)
    command.wait_for("running")
    below = descendants(command.process.pid)
    stderr = command.interrupted(number)
    assert command.process.returncode == code
    assert stderr.endswith(f"stopped by {number.name}: go on with: this\n")
    assert "Traceback" not in stderr
    assert below
    assert still_alive(below) == set()


@pytest.mark.parametrize("closing", ["await asyncio.sleep(1000)", "import time; time.sleep(1000)"])
def test_what_does_not_close_is_ended_when_patience_is_over(closing: str) -> None:
    command = Started(closing, 0.3)
    command.wait_for("running")
    below = descendants(command.process.pid)
    stderr = command.interrupted(signal.SIGINT)
    assert command.process.returncode == 130
    assert stderr.endswith("stopped by SIGINT: go on with: this\n")
    assert still_alive(below) == set()


def test_a_second_signal_ends_at_once() -> None:
    command = Started("await asyncio.sleep(1000)", 1000)
    command.wait_for("running")
    below = descendants(command.process.pid)
    command.process.send_signal(signal.SIGINT)
    command.wait_for("closing")
    assert "stopped by SIGINT: go on with: this" in command.interrupted(signal.SIGINT)
    assert command.process.returncode == 130
    assert still_alive(below) == set()


@pytest.fixture
def endless_import(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing gymnasium, the first thing there is, never ends."""
    (tmp_path / "gymnasium").mkdir()
    (tmp_path / "gymnasium/__init__.py").write_text(
        # Naps: a signal that comes just before one sleeps through it.
        "import time\nprint('importing', flush=True)\nwhile True:\n    time.sleep(0.05)\n"
    )
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


@pytest.mark.parametrize("name", ["train", "sft", "serve", "evaluate", "rejudge", "bench"])
def test_an_interrupt_while_a_command_imports_is_one_line(
    name: str, endless_import: dict[str, str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", f"clawrl_gym.{name}"],
        env=endless_import,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        try:
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, stderr) == (130, "stopped by SIGINT: nothing to resume\n")


def test_importing_the_library_leaves_signals_alone() -> None:
    code = (
        "import signal\n"
        "numbers = (signal.SIGINT, signal.SIGTERM)\n"
        "before = [signal.getsignal(number) for number in numbers]\n"
        "import clawrl_gym\n"
        "assert [signal.getsignal(number) for number in numbers] == before\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts().caught():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_says_how_to_go_on_but_a_refused_configuration_does_not() -> None:
    interrupts = Interrupts()
    with pytest.raises(ExceptionGroup) as failed, interrupts.goes_on("go on with: this"):
        raise ExceptionGroup("in a task", [TrainerError("lost")])
    assert failed.value.__notes__ == ["go on with: this"]
    with pytest.raises(ConfigError) as refused, interrupts.goes_on("go on with: this"):
        raise ConfigError("no such model")
    assert not hasattr(refused.value, "__notes__")


def test_a_process_whose_cluster_has_no_head_ends_without_waiting_for_ray() -> None:
    """Ray's handler of the process's end waits for the head, and then breaks the process."""
    code = (
        "import atexit, sys, threading\n"
        "from clawrl_gym.core.errors import HeadLost\n"
        "from clawrl_gym.core.files.scratch import Scratch\n"
        "from clawrl_gym.run.command import exit_code_of\n"
        "atexit.register(threading.Event().wait)\n"
        "print(Scratch('test').path, flush=True)\n"
        "def run():\n"
        "    raise HeadLost('it is gone')\n"
        "sys.exit(exit_code_of(run))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr == "error: HeadLost: it is gone\n"
    assert not Path(done.stdout.strip()).exists()


def test_descendants_are_all_generations_and_all_are_ended() -> None:
    code = (
        "import os, subprocess, sys\n"
        "from clawrl_gym.core.processes.descendants import descendants, end_descendants\n"
        "subprocess.Popen(['sh', '-c', 'setsid sh -c \"sleep 1000; true\" & sleep 1000; true'])\n"
        "while len(descendants(os.getpid())) < 4: pass\n"
        "below = descendants(os.getpid())\n"
        "end_descendants()\n"
        "print(len(below), descendants(os.getpid()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "4 set()\n", done.stderr


def test_ending_descendants_where_there_are_none_does_nothing() -> None:
    code = (
        "from clawrl_gym.core.processes.descendants import end_descendants\n"
        "end_descendants(); print('on')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "on\n", done.stderr
