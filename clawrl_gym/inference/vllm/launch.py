"""vLLM's command line and environment, made from the policy's configuration. Starts nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.core.files.files import cache_root
from clawrl_gym.core.provenance import threads_of
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.interface import MODEL_NAME
from clawrl_gym.inference.models.resolve import checkpoint_dtype, sees
from clawrl_gym.inference.port import LOOPBACK
from clawrl_gym.inference.vllm.process import PARENT_VARIABLE
from clawrl_gym.inference.weights.adapters import adapter_slots
from clawrl_gym.inference.weights.files import layer_shapes, weight_files

PROBE_PRIORITY, PROBE_SEATS = -1, 4
"""Priority and seats of requests that verify a publication: these never wait, see `scheduler`."""
ADAPTER_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM makes room for; an adapter of a smaller rank fits."""


def is_eager(config: PolicyConfig) -> bool:
    """Whether vLLM compiles nothing, as where nobody has decided."""
    return config.enforce_eager is not False


def _servers_here(config: PolicyConfig) -> int:
    """Number of servers that share this machine's cores."""
    return config.servers if config.placement == "driver" else 1


def compile_cache() -> Path:
    """Folder of vLLM's compiled code, for the next run with the same model and settings."""
    return cache_root() / "vllm"


def command(
    config: PolicyConfig,
    model_dir: Path,
    port: int,
    device: Device,
    host: str = LOOPBACK,
    adapter: AdapterConfig | None = None,
    path: str | None = None,
) -> list[str]:
    """The server's argv. The key is not in it: other users can read it.

    `adapter`: the form of those that are loaded while it serves; None: there are none. `path`: how
    the server itself names `model_dir`; what it compiled is found again under the same name only.
    """
    # vLLM's own `auto` would serve a float32 checkpoint in bfloat16
    dtype = checkpoint_dtype(model_dir) if config.dtype == "auto" else config.dtype
    argv = [sys.executable, "-m", "clawrl_gym.inference.vllm.process"]
    argv += ["--model", str(path or model_dir), "--served-model-name", MODEL_NAME]
    argv += ["--dtype", dtype]
    argv += ["--host", host, "--port", str(port)]
    argv += ["--max-model-len", str(config.max_model_len)]
    argv += ["--max-num-seqs", str(config.max_num_seqs + PROBE_SEATS)]
    argv += ["--scheduling-policy", "priority"]
    argv += ["--scheduler-cls", "clawrl_gym.inference.vllm.scheduler.make"]
    argv += ["--enable-scale-out", "--logprobs-mode", "processed_logprobs"]
    argv += ["--generation-config", "vllm", "--enable-prefix-caching"]
    # vLLM has one backend for all, that of the first form: another's features would be ignored
    argv += ["--structured-outputs-config", json.dumps({"backend": "xgrammar"})]
    argv += ["--worker-extension-cls", "clawrl_gym.inference.vllm.worker_extension.Reload"]
    argv += ["--middleware", "clawrl_gym.inference.vllm.middleware.PolicyRoutes"]
    argv += [
        "--middleware",
        "clawrl_gym.inference.vllm.middleware.RequireKey",
    ]  # the last one is outermost
    argv += ["--disable-uvicorn-access-log", "--uvicorn-log-level", "warning"]
    argv += ["--disable-fastapi-docs"]
    if sees(model_dir):
        argv += [
            "--limit-mm-per-prompt",
            json.dumps({"image": config.images.max_count, "video": 0}),
        ]
        if config.images.processor:
            argv += ["--mm-processor-kwargs", json.dumps(config.images.processor)]
    argv += [] if adapter is None else _adapter_options(config, model_dir, adapter)
    if is_eager(config):
        argv += ["--enforce-eager"]
    if config.tool_parser:
        argv += ["--enable-auto-tool-choice", "--tool-call-parser", config.tool_parser]
    if config.reasoning_parser:
        argv += ["--reasoning-parser", config.reasoning_parser]
    if device == "cpu":
        argv += ["--kv-cache-memory-bytes", str(int(config.kv_cache_gb * 2**30))]
        argv += ["--distributed-executor-backend", "uni"]
        argv += ["--worker-cls", "clawrl_gym.inference.vllm.cpu_worker.CpuWorker"]
    else:
        argv += ["--gpu-memory-utilization", str(config.gpu_memory_utilization)]
    return argv


def module_path(base: Mapping[str, str]) -> str:
    """PYTHONPATH of a process in another folder, which finds the modules that this one finds."""
    entries = filter(None, base.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([*map(os.path.abspath, entries), str(Path.cwd())])


def _adapter_options(config: PolicyConfig, model_dir: Path, adapter: AdapterConfig) -> list[str]:
    """The output head has no adapter, so vLLM must not make room for one there: it would be asked
    at every token, and on a CPU the engine dies of it when log-probs of a prompt are."""
    rank = next(rank for rank in ADAPTER_RANKS if rank >= adapter.rank)
    options = ["--enable-lora", "--max-lora-rank", str(rank)]
    slots = adapter_slots(config)
    options += ["--max-loras", str(slots)]
    options += ["--max-cpu-loras", str(2 * slots)]  # some are about to leave
    is_all = adapter.modules == "all-linear"
    modules = sorted(layer_shapes(weight_files(model_dir))) if is_all else adapter.modules
    return [*options, "--lora-target-modules", *modules]


def environment(
    config: PolicyConfig,
    key: str,
    device: Device,
    base: Mapping[str, str],
    *,
    adapters: bool = False,
) -> dict[str, str]:
    """The server's environment: `base` with what vLLM needs to be quiet, offline and ours.

    `adapters`: some are loaded while it serves.
    """
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
    if adapters:
        values["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if device == "cuda":  # what is float32 is computed so: by cuBLAS, and by Triton's attention
        values |= {"VLLM_FLOAT32_MATMUL_PRECISION": "highest", "TRITON_F32_DEFAULT": "ieee"}
    if device == "cpu":
        values |= {
            "OMP_NUM_THREADS": str(threads_of(config.threads, _servers_here(config))),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores are shared with the learner
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker lives in the engine's process
        }
        if is_eager(config):  # else vLLM compiles helpers at the first request, by g++
            values["TORCHDYNAMO_DISABLE"] = "1"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        values.pop(name, None)
        values.pop(name.lower(), None)
    return values
