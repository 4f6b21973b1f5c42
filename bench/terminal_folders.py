"""Number of tasks in others' folders that load, and why the rest does not.

    python bench/terminal_folders.py PATH...     # folders of Harbor or Terminal-Bench tasks

For each folder and each kind of sandbox: the counts, the reasons, and the time that trying took.
Nothing is built or run.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.folders.folder_tasks import FolderTasks
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures

_SANDBOXES = {
    "bubblewrap": SandboxFeatures(),
    "bubblewrap with rootfs": SandboxFeatures(rootfs=True),
    "docker": SandboxFeatures(images=True, users=True),
    "docker with a network": SandboxFeatures(images=True, users=True, network=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    for path in parser.parse_args().paths:
        for name, features in _SANDBOXES.items():
            started_s = time.monotonic()
            try:
                selection = FolderTasks.open(path, features).selection
                lines = selection.lines() or (selection.summary,)
            except TaskError as error:
                lines = (str(error),)
            took_s = time.monotonic() - started_s
            print(f"{path}, {name} ({took_s:.1f} s)", *lines, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
