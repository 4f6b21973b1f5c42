"""What a killed process has left is ended and removed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from clawrl_gym.core.processes.reaper import Reaper, end_all_of

ROOT = Path(__file__).resolve().parents[2]
OWNER = """
import subprocess, sys, time
from pathlib import Path
from clawrl_gym.core.processes.reaper import Reaper
folder = Path(sys.argv[1])
Reaper(folder)
code = "import sys, time; log = open(sys.argv[1], 'w'); print(flush=True); time.sleep(1000)"
left = subprocess.Popen([sys.executable, "-c", code, f"{folder}/x/log"], start_new_session=True)
time.sleep(1000)
"""


def test_a_killed_owner_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "x").mkdir(parents=True)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"\n"
    owner.kill()
    owner.wait()
    assert owner.stdout.read() == b""  # the process that it has left has ended, too
    owner.stdout.close()
    while folder.exists():
        pass


def test_who_only_looks_into_the_folder_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "log").write_text("")
    looks = subprocess.Popen(["tail", "-f", folder / "log"], cwd=folder)
    try:
        end_all_of(str(folder), os.getpid())
        assert looks.poll() is None
        assert not folder.exists()
    finally:
        looks.kill()
        looks.wait()


def test_an_owner_that_goes_on_may_have_it_done(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    reaper = Reaper(folder)
    with (folder / "log").open("w") as log, subprocess.Popen(["sleep", "1000"], stdout=log) as left:
        reaper.end_all()  # which leaves this process alone, although it writes there
        assert left.wait() == -signal.SIGKILL
    assert not folder.exists()
    reaper.end_all()
