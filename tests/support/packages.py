"""The package as archives, and an environment that holds its wheel."""

import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Literal


def build(kind: Literal["wheel", "sdist"], source: Path, out: Path) -> Path:
    """Build it from `source`; returns the archive in `out`."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (archive,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return archive


def unpack(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")
    return into / archive.name.removesuffix(".tar.gz")


def environment(wheel: Path, folder: Path) -> Path:
    """A virtual environment of the wheel alone, beside the packages that are installed here.

    They are on its path and not copied; their own .pth files, one of which names the checkout, are
    not read. Returns its Python.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120
    )
    python = folder / "bin" / "python"
    installer = [sys.executable, "-m", "uv", "pip", "install", "--python", str(python)]
    subprocess.run(
        [*installer, "--no-deps", "--offline", "--quiet", str(wheel)], check=True, timeout=120
    )
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
