"""The device of engine and learner: CPU or GPU, as installed programs and this machine allow."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Literal

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.installation import check_torch_builds, how_to_install

Device = Literal["cpu", "cuda"]
ConfiguredDevice = Literal["auto", "cpu", "cuda"]


def torch_device(configured: ConfiguredDevice) -> Device:
    """The device of what torch alone computes; ConfigError when this machine has none such."""
    return resolve_device(configured, _torch_build(), "torch")


def resolve_device(configured: ConfiguredDevice, build: Device, program: str) -> Device:
    """The device to serve and learn on; ConfigError when this machine cannot.

    `build` is what the installed `program` was built for.
    """
    check_torch_builds()
    return choose_device(configured, build, program, has_gpu=has_gpu())


def choose_device(
    configured: ConfiguredDevice, build: Device, program: str, *, has_gpu: bool
) -> Device:
    """Pure part of `resolve_device`."""
    if configured not in ("auto", build):
        extra = "gpu" if configured == "cuda" else "cpu"
        raise ConfigError(
            f"policy.device={configured}, but the installed {program} is built for {build}: "
            f"run: {how_to_install(extra)}, or set policy.device={build}"
        )
    if build == "cuda" and not has_gpu:
        raise ConfigError(
            f"{program}'s CUDA build is installed, but this machine shows no CUDA device: "
            f"check nvidia-smi, or have the CPU build: {how_to_install('cpu')}"
        )
    return build


def has_gpu() -> bool:
    """Whether NVIDIA's driver shows a device on this machine."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def visible_gpus() -> list[str]:
    """Devices in CUDA_VISIBLE_DEVICES, else the numbers of all NVIDIA devices."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    numbers = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    return sorted(numbers, key=int)


def _torch_build() -> Device:
    """Its CUDA build computes on a CPU, too, where there is nothing else."""
    return "cuda" if has_gpu() and not metadata.version("torch").endswith("+cpu") else "cpu"
