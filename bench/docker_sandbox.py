"""Cost of a Docker sandbox beside `docker exec` and SWE-ReX, and what a killed owner leaves.

    python bench/docker_sandbox.py [--alive 200] [--threads 4] [--commands 200] [--no-swerex]

SWE-ReX is installed with pip into a folder that is thrown away, and its server runs in a container
of the same image, as in its own Docker deployment. Prints one line of JSON; nothing is left.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clawrl_gym.envs.sandbox.docker.engine import engine
from clawrl_gym.envs.sandbox.docker.images import BASE_IMAGE, ensure_image
from clawrl_gym.envs.sandbox.docker.ownership import OWNER_LABEL
from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox
from clawrl_gym.envs.sandbox.interface import Limits, SandboxSpec

_COMMAND_S = 60.0
_MOST_ALIVE = 500
_OWNER = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from bench_docker import open_sandbox
with ThreadPoolExecutor(4) as pool:
    kept = list(pool.map(lambda _: open_sandbox(), range(int(sys.argv[1]))))
print("up", flush=True)
time.sleep(600)
"""
_SWEREX_CLIENT = """
import asyncio, json, sys, time
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.remote import RemoteRuntime
async def main(port, token, commands):
    runtime = RemoteRuntime(host="http://127.0.0.1", port=port, auth_token=token, timeout=60)
    for _ in range(300):
        if await runtime.is_alive():
            break
        await asyncio.sleep(0.1)
    await runtime.create_session(CreateBashSessionRequest())
    taken = []
    for _ in range(commands):
        started_s = time.perf_counter()
        done = await runtime.run_in_session(BashAction(command="/bin/true", timeout=30))
        taken.append((time.perf_counter() - started_s) * 1e3)
        assert done.exit_code == 0
    await runtime.close()
    print(json.dumps(taken))
asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alive", type=int, default=200, help=f"at a time, at most {_MOST_ALIVE}")
    parser.add_argument("--threads", type=int, default=4, help="threads that start and stop")
    parser.add_argument("--commands", type=int, default=200, help="round trips")
    parser.add_argument("--no-swerex", action="store_true", help="leave SWE-ReX out")
    args = parser.parse_args()
    if not 1 <= args.alive <= _MOST_ALIVE:
        parser.error(f"got --alive {args.alive}, expected 1 to {_MOST_ALIVE}")
    ensure_image(BASE_IMAGE)
    figures = {"commands": args.commands, "alive": args.alive, "load": round(os.getloadavg()[0], 1)}
    figures |= _percentiles("command_ms", sandbox_exec(args.commands))
    figures |= _percentiles("exec_ms", docker_exec(max(20, args.commands // 10)))
    if not args.no_swerex:
        figures |= _percentiles("swerex_ms", swerex(args.commands))
    figures |= alive(args.alive, args.threads)
    figures["killed_owner_gone_s"] = killed_owner(min(args.alive, 20))
    print(json.dumps(figures))


def open_sandbox() -> Any:
    return open_docker_sandbox(Limits(memory_mb=256), SandboxSpec(), image=BASE_IMAGE)


def sandbox_exec(commands: int) -> list[float]:
    with open_sandbox() as sandbox:
        sandbox.exec("true", _COMMAND_S)
        return [_timed(lambda: sandbox.exec("/bin/true", _COMMAND_S)) for _ in range(commands)]


def docker_exec(commands: int) -> list[float]:
    """Through the engine's API, without the cost of starting its command line client."""
    api = engine().api

    def execute(container_id: str) -> None:
        execution = api.exec_create(container_id, ["/bin/true"])
        api.exec_start(execution["Id"])

    container = api.create_container(BASE_IMAGE, ["sleep", "600"])
    try:
        api.start(container["Id"])
        return [_timed(lambda: execute(container["Id"])) for _ in range(commands)]
    finally:
        api.remove_container(container["Id"], force=True)


def swerex(commands: int) -> list[float]:
    token = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-warn-conflicts"]
        subprocess.run([*pip, "--target", folder, "swe-rex"], check=True, timeout=600)
        api = engine().api
        server = ["python3", "-m", "swerex.server", "--host", "127.0.0.1"]
        container = api.create_container(
            BASE_IMAGE,
            [*server, "--port", str(port), "--auth-token", token],
            environment={"PYTHONPATH": "/swerex"},
            host_config=api.create_host_config(
                network_mode="host", binds=[f"{folder}:/swerex:ro"], init=True
            ),
        )
        try:
            api.start(container["Id"])
            client = subprocess.run(
                [sys.executable, "-c", _SWEREX_CLIENT, str(port), token, str(commands)],
                env=os.environ | {"PYTHONPATH": folder},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=600,
            )
            times_ms: list[float] = json.loads(client.stdout.splitlines()[-1])
            return times_ms
        finally:
            api.remove_container(container["Id"], force=True)


def alive(count: int, threads: int) -> dict[str, float]:
    """Start so many, have every one run a command while all are alive, end them."""
    before_kb = _available_kb()
    started_s = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        sandboxes = list(pool.map(lambda _: open_sandbox(), range(count)))
        wall_s = time.monotonic() - started_s
        each_kb = (before_kb - _available_kb()) / count
        started_s = time.monotonic()
        answers = list(pool.map(lambda box: box.exec("ls / | wc -l", _COMMAND_S), sandboxes))
        all_s = time.monotonic() - started_s
        ended = list(pool.map(lambda box: _timed(box.close), sandboxes))
    return {
        "alive_answered": sum(answer.exit_code == 0 for answer in answers),
        "starts_per_s": round(count / wall_s, 1),
        "commands_per_s_all": round(count / all_s),
        "memory_kb_each": round(each_kb),
        **_percentiles("close_ms", ended),
    }


def killed_owner(count: int) -> float:
    """Seconds from `kill -9` of a process with so many until the engine has none of them."""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path[1:]])
    code = _OWNER.replace("bench_docker", Path(__file__).stem)
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(count)],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        assert _owned_by(owner.pid) == count
        started_s = time.monotonic()
        os.kill(owner.pid, signal.SIGKILL)
    while _owned_by(owner.pid) and time.monotonic() - started_s < 120:
        time.sleep(0.05)
    return round(time.monotonic() - started_s, 2)


def _owned_by(pid: int) -> int:
    containers = engine().api.containers(all=True, filters={"label": OWNER_LABEL})
    return sum(f"-{pid}-" in container["Labels"][OWNER_LABEL] for container in containers)


def _timed(call: Callable[[], Any]) -> float:
    started_s = time.perf_counter()
    call()
    return (time.perf_counter() - started_s) * 1e3


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    per_s = 1e3 * len(ordered) / sum(ordered)
    figures = {"p50": ordered[len(ordered) // 2], "p95": ordered[len(ordered) * 95 // 100]}
    percentiles = {f"{name}_{key}": round(value, 2) for key, value in figures.items()}
    return percentiles | {f"{name.removesuffix('_ms')}_per_s": round(per_s, 1)}


def _available_kb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
