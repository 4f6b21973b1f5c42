"""A root file system of a few programs, put together from the host's own."""

import re
import shutil
import subprocess
from pathlib import Path

_PROGRAMS = ("bash", "cat", "ls", "mkdir", "sleep", "touch", "id")


def make_root(folder):
    """Copy some programs and the libraries that they name into `folder`; returns it."""
    for name in ("usr/bin", "etc", "home"):
        (folder / name).mkdir(parents=True)
    (folder / "bin").symlink_to("usr/bin")
    (folder / "etc/motd").write_text("a root of our own\n")
    for program in _PROGRAMS:
        source = shutil.which(program, path="/usr/bin:/bin")
        assert source is not None
        shutil.copy(source, folder / "usr/bin" / program)
        listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=True)
        for library in re.findall(r"(/\S+)", listed.stdout):
            _copy_library(Path(library), folder)
    return folder


def _copy_library(library, folder):
    target = folder / str(library).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, target)
