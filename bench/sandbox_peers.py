"""Others in the same run as `bench/sandbox.py`: AsyncVectorEnv, and SWE-ReX in Docker."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.task_env import UnicodeEnv

Figures = dict[str, float | int | str]
_COMMANDS = {"echo": "echo", "fork": "/bin/true"}
_COMMAND_S = 60.0
_CLIENT_S = 300.0
_SWEREX_CLIENT = """
import asyncio, json, sys, time
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.remote import RemoteRuntime
async def connect(port, token):
    runtime = RemoteRuntime(host="http://127.0.0.1", port=port, auth_token=token, timeout=60)
    for _ in range(300):
        if await runtime.is_alive():
            break
        await asyncio.sleep(0.1)
    await runtime.create_session(CreateBashSessionRequest())
    return runtime
async def main(ports, token, seconds, commands):
    runtimes = [await connect(port, token) for port in ports]
    async def go_round(runtime, command, end_s):
        count = 0
        while time.perf_counter() < end_s:
            done = await runtime.run_in_session(BashAction(command=command, timeout=30))
            assert done.exit_code == 0
            count += 1
        return count
    rates = {}
    for name, command in commands.items():
        started_s = time.perf_counter()
        end_s = started_s + seconds
        counts = await asyncio.gather(*[go_round(one, command, end_s) for one in runtimes])
        rates[name] = sum(counts) / (time.perf_counter() - started_s)
    for runtime in runtimes:
        await runtime.close()
    print(json.dumps(rates))
asyncio.run(main(*json.loads(sys.argv[1])))
"""


class ShellEnv(UnicodeEnv):
    """A sandbox's shell without tasks or an end: nothing but steps."""

    def __init__(self) -> None:
        super().__init__(1, None)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[str, dict[str, object]]:
        super().reset(seed=seed)
        self.close()
        self._sandbox = open_sandbox(Limits())
        return "", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        return self._sandbox.exec(action, _COMMAND_S).output, 0.0, False, False, {}

    def close(self) -> None:
        if hasattr(self, "_sandbox"):
            self._sandbox.close()


def gymnasium(count: int, threads: int, seconds: float) -> Figures:
    """Steps a second of so many shell environments: each in a process, and all in this one."""
    from gymnasium.vector import AsyncVectorEnv

    figures: Figures = {"gym_environments": count}
    envs = AsyncVectorEnv([ShellEnv] * count, shared_memory=False)
    try:
        envs.reset(seed=0)
        for name, command in _COMMANDS.items():
            steps, started_s = 0, time.monotonic()
            while time.monotonic() - started_s < seconds:
                envs.step((command,) * count)
                steps += count
            figures[f"gym_{name}_per_s"] = round(steps / (time.monotonic() - started_s))
    finally:
        envs.close()
    return figures | _ours([ShellEnv() for _ in range(count)], threads, seconds)


def _ours(envs: Sequence[ShellEnv], threads: int, seconds: float) -> Figures:
    figures: Figures = {}
    for seed, env in enumerate(envs):
        env.reset(seed=seed)

    def go_round(share: Sequence[ShellEnv], command: str, end_s: float) -> int:
        count = 0
        while time.monotonic() < end_s:
            share[count % len(share)].step(command)
            count += 1
        return count

    with ThreadPoolExecutor(threads) as pool:
        for name, command in _COMMANDS.items():
            shares = [share for at in range(threads) if (share := envs[at::threads])]
            started_s = time.monotonic()
            go = partial(go_round, command=command, end_s=started_s + seconds)
            steps = sum(pool.map(go, shares))
            figures[f"ours_same_{name}_per_s"] = round(steps / (time.monotonic() - started_s))
    for env in envs:
        env.close()
    return figures


def swerex(python: str, count: int, seconds: float) -> Figures:
    """Commands a second of SWE-ReX in so many containers, or why not."""
    if not python:
        return {"swerex": "left out: give --swerex PYTHON"}
    from clawrl_gym.envs.sandbox.docker.engine import engine
    from clawrl_gym.envs.sandbox.docker.images import BASE_IMAGE, ensure_image

    try:
        ensure_image(BASE_IMAGE)
        api = engine().api
    except SandboxError as error:
        return {"swerex": f"left out: {error}"}
    where = "import swerex, pathlib; print(pathlib.Path(swerex.__file__).parents[1])"
    folder = subprocess.check_output([python, "-c", where], text=True, timeout=60).strip()
    ports, token, containers = _free_ports(count), secrets.token_hex(16), []
    try:
        for port in ports:
            words = ["python3", "-m", "swerex.server", "--host", "127.0.0.1", "--port", str(port)]
            container = api.create_container(
                BASE_IMAGE,
                [*words, "--auth-token", token],
                environment={"PYTHONPATH": "/swerex"},
                host_config=api.create_host_config(
                    network_mode="host", binds=[f"{folder}:/swerex:ro"], init=True
                ),
            )
            containers.append(container["Id"])
            api.start(container["Id"])
        argument = json.dumps([ports, token, seconds, _COMMANDS])
        client = [python, "-c", _SWEREX_CLIENT, argument]
        output = subprocess.run(client, capture_output=True, text=True, timeout=_CLIENT_S)
        if output.returncode != 0:
            return {"swerex": f"left out: {output.stderr.strip()[-300:]}"}
        rates = json.loads(output.stdout.splitlines()[-1])
    finally:
        for container_id in containers:
            api.remove_container(container_id, force=True)
    names = {f"swerex_{name}_per_s": round(rate, 1) for name, rate in rates.items()}
    return {"swerex_containers": count, **names}


def _free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports
