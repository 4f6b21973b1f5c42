from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.port import reserve_port
from clawrl_gym.inference.vllm import launch
from clawrl_gym.inference.weights.adapters import adapter_slots


def value(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "float32"}))
    return tmp_path


def test_the_server_listens_on_loopback_and_asks_for_the_key_on_every_route(model: Path) -> None:
    argv = launch.command(PolicyConfig(), model, 1234, "cpu")
    assert value(argv, "--host") == "127.0.0.1"
    assert value(argv, "--port") == "1234"
    outermost_last = [argv[at + 1] for at, flag in enumerate(argv) if flag == "--middleware"]
    assert outermost_last[-1] == "clawrl_gym.inference.vllm.middleware.RequireKey"


def test_logprobs_are_asked_for_as_sampled(model: Path) -> None:
    argv = launch.command(PolicyConfig(), model, 1, "cpu")
    assert value(argv, "--logprobs-mode") == "processed_logprobs"
    assert "--enable-scale-out" in argv


def test_probes_have_seats_that_no_request_has(model: Path) -> None:
    argv = launch.command(PolicyConfig(max_num_seqs=7), model, 1, "cpu")
    assert value(argv, "--max-num-seqs") == str(7 + launch.PROBE_SEATS)
    assert value(argv, "--scheduling-policy") == "priority"
    assert value(argv, "--scheduler-cls") == "clawrl_gym.inference.vllm.scheduler.make"


def test_float32_is_not_rounded_on_a_gpu_whatever_the_machine_says(model: Path) -> None:
    said = {"VLLM_FLOAT32_MATMUL_PRECISION": "high", "TRITON_F32_DEFAULT": "tf32"}
    values = launch.environment(PolicyConfig(), "k", "cuda", said)
    assert values["VLLM_FLOAT32_MATMUL_PRECISION"] == "highest"
    assert values["TRITON_F32_DEFAULT"] == "ieee"


def test_auto_dtype_is_the_checkpoints_own(model: Path) -> None:
    assert value(launch.command(PolicyConfig(), model, 1, "cpu"), "--dtype") == "float32"
    config = PolicyConfig(dtype="bfloat16")
    assert value(launch.command(config, model, 1, "cpu"), "--dtype") == "bfloat16"


@pytest.mark.parametrize(("rank", "room"), [(1, "1"), (4, "8"), (16, "16"), (512, "512")])
def test_adapters_get_room_for_their_rank_and_are_off_without_one(
    model: Path, rank: int, room: str
) -> None:
    config = PolicyConfig(max_adapters=3)
    form = AdapterConfig(rank=rank, modules=("q_proj", "v_proj"))
    argv = launch.command(config, model, 1, "cpu", adapter=form)
    assert value(argv, "--max-lora-rank") == room
    assert value(argv, "--max-loras") == "3"
    at = argv.index("--lora-target-modules")
    assert argv[at + 1 : at + 3] == ["q_proj", "v_proj"]
    assert launch.environment(config, "k", "cpu", {}, adapters=True).keys() - launch.environment(
        config, "k", "cpu", {}
    ).keys() == {"VLLM_ALLOW_RUNTIME_LORA_UPDATING"}
    assert "--enable-lora" not in launch.command(config, model, 1, "cpu")


@pytest.mark.parametrize(("users", "slots"), [(0, 4), (1, 4), (5, 8), (29, 32), (200, 32)])
def test_each_user_has_an_adapters_room_up_to_a_bound(users: int, slots: int) -> None:
    assert adapter_slots(PolicyConfig(), users) == slots
    assert adapter_slots(PolicyConfig(max_adapters=2), users) == 2


def test_an_adapter_of_all_layers_leaves_the_output_head_alone() -> None:
    form = AdapterConfig(modules="all-linear")
    argv = launch.command(PolicyConfig(), shipped_dir("tiny"), 1, "cpu", adapter=form)
    named = argv[argv.index("--lora-target-modules") + 1 :][:7]
    assert named == [
        "down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"
    ]  # fmt: skip
    assert not {"lm_head", "embed_tokens"} & set(argv)


def test_each_device_gets_its_own_memory_flag(model: Path) -> None:
    config = PolicyConfig(kv_cache_gb=0.5, gpu_memory_utilization=0.3)
    cpu, cuda = (launch.command(config, model, 1, device) for device in ("cpu", "cuda"))
    assert value(cpu, "--kv-cache-memory-bytes") == str(2**29)
    assert "--gpu-memory-utilization" not in cpu
    assert value(cuda, "--gpu-memory-utilization") == "0.3"
    assert "--kv-cache-memory-bytes" not in cuda


def test_no_tool_parser_switches_tool_calls_off(model: Path) -> None:
    assert "--tool-call-parser" in launch.command(PolicyConfig(), model, 1, "cpu")
    argv = launch.command(PolicyConfig(tool_parser=None, enforce_eager=False), model, 1, "cpu")
    assert "--tool-call-parser" not in argv
    assert "--enable-auto-tool-choice" not in argv
    assert "--enforce-eager" not in argv


def test_the_key_is_in_the_environment_and_not_in_the_command(model: Path) -> None:
    environment = launch.environment(PolicyConfig(), "secret", "cpu", {})
    assert environment["VLLM_API_KEY"] == "secret"
    assert "secret" not in " ".join(launch.command(PolicyConfig(), model, 1, "cpu"))


def test_telemetry_and_the_network_are_off() -> None:
    base = {"HTTPS_PROXY": "http://proxy", "https_proxy": "http://proxy", "HOME": "/home/me"}
    environment = launch.environment(PolicyConfig(), "k", "cpu", base)
    assert environment["VLLM_NO_USAGE_STATS"] == environment["DO_NOT_TRACK"] == "1"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert not {"HTTPS_PROXY", "https_proxy"} & set(environment)
    assert environment["HOME"] == "/home/me"


def test_the_engine_gets_the_configured_threads_on_a_cpu_only() -> None:
    config = PolicyConfig(threads=3)
    assert launch.environment(config, "k", "cpu", {})["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in launch.environment(config, "k", "cuda", {})


def test_an_eager_engine_on_a_cpu_needs_no_compiler() -> None:
    compiled = PolicyConfig(enforce_eager=False)
    assert launch.environment(PolicyConfig(), "k", "cpu", {})["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in launch.environment(compiled, "k", "cpu", {})
    assert "TORCHDYNAMO_DISABLE" not in launch.environment(PolicyConfig(), "k", "cuda", {})


def test_a_reserved_port_is_kept_for_the_server_which_can_listen_there_again_and_again() -> None:
    with reserve_port(0) as reserved:
        port = reserved.getsockname()[1]
        assert port >= 1024
        for _ in range(2):
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("127.0.0.1", port))
                server.listen()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def test_a_port_behind_the_last_one_is_a_configuration_error() -> None:
    """The second server has no port when the first has the last one."""
    with pytest.raises(ConfigError, match=r"policy\.port=65536 .*smaller policy\.port"):
        reserve_port(65536)


def test_a_port_that_is_taken_is_a_configuration_error() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"policy\.port={port} .*another program"):
            reserve_port(port)


def test_a_server_names_its_model_as_every_other_run_does() -> None:
    """What vLLM compiles is found again under the name of the model only."""
    argv = launch.command(PolicyConfig(), shipped_dir("tiny"), 1, "cpu", path="current")
    assert argv[argv.index("--model") + 1] == "current"
    assert argv[argv.index("--dtype") + 1] == "float32", "read from the folder itself"


def test_a_process_in_another_folder_finds_the_same_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch.module_path({"PYTHONPATH": ".:/a"}) == f"{tmp_path}:/a:{tmp_path}"
    assert launch.module_path({}) == str(tmp_path)


def test_nothing_is_compiled_until_somebody_decides_it() -> None:
    assert launch.is_eager(PolicyConfig())
    assert launch.is_eager(PolicyConfig(enforce_eager=True))
    assert not launch.is_eager(PolicyConfig(enforce_eager=False))
