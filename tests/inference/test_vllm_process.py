from __future__ import annotations

import os
import signal
import subprocess
import sys

from clawrl_gym.inference.vllm.process import PARENT_VARIABLE
from tests.support.waiting import becomes_true

PARENT = """
import subprocess, sys, time
code = "from clawrl_gym.core.processes.descendants import die_with_parent; die_with_parent();" \
    "print('ready', flush=True); import time; time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""

FORKING = """
import os, sys, time
from clawrl_gym.core.processes.descendants import forks_die_with_parent
parent = os.getpid()
def outlive_the_parent():
    while os.getppid() == parent:
        time.sleep(0.01)
os.register_at_fork(after_in_child=outlive_the_parent)
forks_die_with_parent()
if os.fork() == 0:
    print("lives", flush=True)
    os._exit(0)
os._exit(0)
"""


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_dies_with_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert becomes_true(lambda: not alive(child))


def test_it_does_not_start_for_a_parent_that_is_gone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clawrl_gym.inference.vllm.process"],
        env={**os.environ, PARENT_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "is gone" in done.stderr


def test_importing_it_loads_no_vllm() -> None:
    code = "import sys, clawrl_gym.inference.vllm.process; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_fork_whose_parent_died_before_the_kernel_was_asked_ends_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b""  # the pipe is closed: nobody holds it any more
