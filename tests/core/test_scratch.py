"""Folders that go with their process: at its end, at a signal, and after a kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawrl_gym.core.files.scratch import Scratch, sweep

ROOT = Path(__file__).resolve().parents[2]
HOLDS = """
import sys, time
from pathlib import Path
from clawrl_gym.core.files.scratch import Scratch
scratch = Scratch("x", Path(sys.argv[1]))
(scratch.path / "file").write_text("x")
print(scratch.path, flush=True)
"""


def started(parent: Path, then: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS + then, str(parent)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_its_owners_alone_and_gone_with_the_block(tmp_path: Path) -> None:
    with Scratch("name", tmp_path) as folder:
        assert folder.name.startswith("clawrl-name-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "deep/er").mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0"])
def test_it_goes_with_its_process(tmp_path: Path, end: str) -> None:
    process, folder = started(tmp_path, f"import sys; sys.stderr = open('/dev/null', 'w')\n{end}")
    process.communicate(timeout=60)
    assert not folder.exists()


def test_what_a_killed_process_left_is_swept_and_what_lives_is_not(tmp_path: Path) -> None:
    killed, left = started(tmp_path, "time.sleep(1000)")
    living, held = started(tmp_path, "time.sleep(1000)")
    foreign = tmp_path / "clawrl-image-of-somebody"
    foreign.mkdir()
    try:
        killed.kill()
        killed.communicate()
        sweep(tmp_path)
        assert (left.exists(), held.exists(), foreign.exists()) == (False, True, True)
    finally:
        living.kill()
        living.communicate()


def test_a_fork_that_ends_takes_nothing_with_it(tmp_path: Path) -> None:
    scratch = Scratch("x", tmp_path)
    child = os.fork()
    if child == 0:
        scratch.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert scratch.path.exists()
    scratch.remove()
    scratch.remove()
    assert not scratch.path.exists()


def test_a_signal_that_ends_the_process_at_once_leaves_nothing(tmp_path: Path) -> None:
    ends = (
        "from clawrl_gym.core.processes.interrupt import INTERRUPTS\n"
        "INTERRUPTS.catch(); time.sleep(1000)"
    )
    process, folder = started(tmp_path, f"{ends}\n")
    while not _catches(process.pid):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert not folder.exists()


def _catches(pid: int) -> bool:
    """Whether the process has a handler of its own for SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.parametrize(("name", "code"), [("clawrl-forgotten", 1), ("node-compile-cache", 0)])
def test_the_tests_themselves_fail_where_one_leaves_something(
    tmp_path: Path, name: str, code: int
) -> None:
    (tmp_path / "test_it.py").write_text(
        "import tempfile, pathlib\n"
        f"def test_it(): (pathlib.Path(tempfile.gettempdir()) / {name!r}).mkdir()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", os.devnull, str(tmp_path)],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if "XDIST" not in key},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout
    assert (f"left in the temporary folder: {name}" in done.stdout) == bool(code)
