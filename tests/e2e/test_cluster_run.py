"""The main job on a cluster of machines that share nothing but the code."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.runs import still_alive
from tests.machines import Machine, machines, until

pytestmark = [pytest.mark.machines, pytest.mark.ray, pytest.mark.sandbox]
PORT = 6379
TOKEN = {"RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
RUN = (
    "env=terminal", "run.dir=/tmp/run", "ui=line", "seed=0", "rollout.groups=4",
    "rollout.group_size=4", "rollout.envs_per_worker=8", "eval.tasks=16", "eval.also=[]",
)  # fmt: skip


@dataclass
class Rig:
    """Two machines, one of them the head, and their logs."""

    head: Machine
    other: Machine
    folder: Path

    @property
    def address(self) -> str:
        return f"{self.head.address}:{PORT}"

    def begin(self) -> None:
        self.node(self.head, "--head", f"--host={self.head.address}")
        self.node(self.other, f"--address={self.address}")

    def node(self, machine: Machine, *arguments: str) -> "subprocess.Popen[bytes]":
        log = self.log(machine.namespace)
        log.unlink(missing_ok=True)
        limits = ("--sandbox=8", "--docker=0", "--browser=0")
        command = [sys.executable, "-m", "clawrl_gym.node", *arguments, *limits]
        process = machine.start(command, log, TOKEN)
        until(log, "Ctrl-C", process, 90)
        return process

    def train(self, *overrides: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "clawrl_gym.train", *RUN, *overrides]
        return self.head.start([*command, f"ray.address={self.address}"], self.log("train"), TOKEN)

    def refusal(self, machine: Machine, *command: str, **variables: str) -> str:
        """What a command says that ends at once with a wrong configuration."""
        log = self.log("refusal")
        log.unlink(missing_ok=True)
        process = machine.start([sys.executable, "-m", *command], log, TOKEN | variables)
        assert process.wait(60) == 2, log.read_text()
        lines = [line for line in log.read_text().splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, log.read_text()
        return lines[0]

    def read(self, path: str) -> str:
        """A file of the head's own."""
        return Path(f"/proc/{self.head.first_process}/root{path}").read_text()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with machines(2) as (head, other):
        yield Rig(head, other, tmp_path)


@pytest.mark.vllm
@pytest.mark.slow
def test_a_run_on_two_nodes_learns_and_survives_the_loss_of_one(rig: Rig) -> None:
    rig.begin()
    run = rig.train("trainer.steps=12")
    log = rig.log("train")
    text = until(log, "step 1/12", run, 240)
    for machine in (rig.head, rig.other):
        assert f"node {machine.namespace} ({machine.address}): 1 worker with 8" in text
        assert machine.processes("bwrap"), "no sandbox there"
    assert rig.other.kill("raylet") == 1
    assert run.wait(180) == 0, log.read_text()[-3000:]
    text = log.read_text()
    lost = re.escape(f"node {rig.other.namespace} ({rig.other.address}) ") + "(ended|failed): its"
    assert re.search(lost, text), text[-3000:]
    assert "step 12/12" in text
    assert "(raylet)" not in text
    metrics = [json.loads(line) for line in rig.read("/tmp/run/metrics.jsonl").splitlines()]
    held_out = [row["heldout/success"] for row in metrics if "heldout/success" in row]
    assert len(held_out) == 2
    assert not rig.head.processes("bwrap")


@pytest.mark.nightly
def test_what_cannot_be_joined_is_one_line(rig: Rig) -> None:
    train = ("clawrl_gym.train", *RUN, f"ray.address={rig.address}")
    node = ("clawrl_gym.node", f"--address={rig.address}")
    for command in (train, node):
        assert "where nothing answers" in rig.refusal(rig.head, *command)
    rig.node(rig.head, "--head", f"--host={rig.head.address}")
    for command in (train, node):
        wrong = rig.refusal(rig.other, *command, RAY_AUTH_TOKEN="another one")
        assert "refused this token" in wrong
    assert "this machine is no node of the cluster" in rig.refusal(rig.other, *train)
    assert "is a node of the cluster at" in rig.refusal(rig.head, *node)
    stays = rig.head.start(
        [sys.executable, "-m", "http.server", "7000", "--bind", rig.head.address], rig.log("http")
    )
    alien = ("clawrl_gym.node", f"--address={rig.head.address}:7000")
    assert re.search("no head of a Ray cluster", rig.refusal(rig.other, *alien))
    stays.kill()


@pytest.mark.nightly
def test_a_node_leaves_nothing_and_says_what_it_cannot_hold(rig: Rig) -> None:
    head = rig.node(rig.head, "--head", f"--host={rig.head.address}")
    before = set(Path(f"/proc/{rig.other.first_process}/root/tmp").iterdir())
    node = rig.node(rig.other, f"--address={rig.address}")
    pids = {pid for name in ("ray", "python") for pid in rig.other.processes(name)}
    node.terminate()
    assert node.wait(30) == 143
    assert "left the cluster" in rig.log(rig.other.namespace).read_text()
    assert not still_alive(pids)
    assert set(Path(f"/proc/{rig.other.first_process}/root/tmp").iterdir()) == before
    head.kill()  # not in order
    assert not still_alive({pid for name in ("raylet", "gcs") for pid in rig.head.processes(name)})
