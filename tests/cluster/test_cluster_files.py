"""The files of docs/cluster say what today's commands, today's Ray and these tools understand."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import clawrl_gym as cg
from clawrl_gym import node
from tests.support.waiting import becomes_true

FILES = Path(__file__).resolve().parents[2] / "docs" / "cluster"
KINDS = {"sandbox", "docker", "browser", "engine", "learner"}
"""Resources that a run asks for."""


def kuberay() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((FILES / "kuberay.yaml").read_text())["spec"]
    return spec


def containers() -> list[dict[str, Any]]:
    spec = kuberay()
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [one for group in groups for one in group["template"]["spec"]["containers"]]


def test_kubernetes_gets_the_ray_that_is_installed() -> None:
    lock = (FILES.parents[1] / "locks" / "cpu.lock").read_text()
    version = re.search(r"^ray==(\S+)", lock, re.MULTILINE)
    assert version is not None
    assert kuberay()["rayVersion"] == version[1]


def test_kubernetes_offers_resources_that_a_run_asks_for() -> None:
    for group in kuberay()["workerGroupSpecs"]:
        resources = json.loads(json.loads(group["rayStartParams"]["resources"]))
        assert resources.keys() <= KINDS
        assert resources


def test_pods_are_alive_while_their_raylet_is() -> None:
    """The operator's own probes ask Ray's agent for a page, and plain `ray` serves none."""
    for container in containers():
        for probe in ("livenessProbe", "readinessProbe"):
            shell, option, command = container[probe]["exec"]["command"]
            mine = Path("/proc/self/comm").read_text().strip()
            for name, code in ((mine, 0), ("no-such-name", 1)):
                words = [shell, option, command.replace("raylet", shlex.quote(re.escape(name)))]
                done = subprocess.run(words, capture_output=True, timeout=30)
                assert (done.returncode == 0) == (code == 0), done


def test_rays_launcher_reads_its_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    text = (FILES / "launcher.yaml").read_text()
    validate_config(prepare_config(yaml.safe_load(text)))
    for command in re.findall(r"--resources='([^']+)'", text):
        assert json.loads(command).keys() <= KINDS
    starts = re.findall(r"- (.*ray start.*)", text)
    assert len(starts) == 2
    assert all(line.startswith("RAY_AUTH_MODE=token ") for line in starts)


STUBS = {
    "scontrol": 'printf "one\\ntwo\\nthree\\n"',
    "getent": 'echo "127.0.1.1 STREAM $2"',
    "hostname": 'echo "127.0.0.1 10.0.0.9"',
    "srun": 'while [[ "$1" == -* ]]; do shift; done; exec "$@"',
    "python": f'exec {sys.executable} -I "$STUB" "$@"',
}
PYTHON = """
import json, os, socket, sys, time
with open(os.environ["LOG"], "a") as log:
    log.write(json.dumps([os.environ.get("RAY_AUTH_TOKEN"), *sys.argv[1:]]) + "\\n")
if "--head" in sys.argv:
    (port,) = [word.split("=")[1] for word in sys.argv if word.startswith("--port=")]
    with socket.create_server(("127.0.0.1", int(port))):
        time.sleep(20)
"""


@pytest.fixture
def job(tmp_path: Path) -> list[list[str]]:
    """What the script of a job of three machines starts, each with the token before it."""
    for name, text in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o700)
    (tmp_path / "stub.py").write_text(PYTHON)
    done = subprocess.Popen(
        ["bash", str(FILES / "slurm.sh"), "env=terminal", "trainer.steps=100"],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "STUB": str(tmp_path / "stub.py"),
            "LOG": str(tmp_path / "log"),
            "SLURM_JOB_NODELIST": "cluster[1-3]",
            "SLURM_JOB_NUM_NODES": "3",
            "SLURM_JOB_ID": "4711",
        },
        start_new_session=True,
    )
    log = tmp_path / "log"
    try:
        assert done.wait(60) == 0
        assert becomes_true(lambda: len(log.read_text().splitlines()) == 3)
    finally:
        os.killpg(done.pid, signal.SIGKILL)
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_slurm_job_begins_a_cluster_joins_it_and_runs(job: list[list[str]]) -> None:
    (head,) = [words[3:] for words in job if "--head" in words]
    (other,) = [words[3:] for words in job if any("--address=" in word for word in words)]
    (run,) = [words[3:] for words in job if "clawrl_gym.train" in words]
    (token,) = {words[0] for words in job}
    assert re.fullmatch(r"[0-9a-f]{64}", token)
    options = node._parser().parse_args(head)
    address = f"127.0.0.1:{options.port}"
    assert (options.head, options.host) == (True, "127.0.0.1"), "127.0.1.1 reaches nobody else"
    assert node._parser().parse_args(other).address == address
    config = cg.load_config(run)
    assert (config.ray.address, config.trainer.steps) == (address, 100)


def test_the_commands_of_the_page_name_the_files() -> None:
    page = (FILES.parent / "cluster.md").read_text()
    named = {word for line in page.splitlines() if line.startswith("    ") for word in
             shlex.split(line, comments=True) if word.startswith("docs/cluster/")}  # fmt: skip
    assert named == {f"docs/cluster/{path.name}" for path in FILES.iterdir()}
