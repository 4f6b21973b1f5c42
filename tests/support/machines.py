"""Machines on one: each with its own network, processes, /tmp, /dev/shm and home.

Network namespaces on one bridge, which is in a namespace of its own, so that nothing of the host's
network is touched. Only the code is shared, as if it were installed on all of them. Needs root and
iproute2.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_INIT = """
mount --make-rprivate /
mount -t tmpfs -o size=2g tmpfs /tmp
mount -t tmpfs -o size=1g tmpfs /dev/shm
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir -m 700 /tmp/home
echo ready
while :; do sleep 1000 & wait; done
"""
"""Bash is the first process: it reaps what loses its parent. Without cgroups, which would be
common to all: numbers of processes mean others elsewhere, so that one would sweep another's."""
_START_S = 10.0


def missing() -> str | None:
    """Why there can be none here."""
    if os.geteuid() != 0:
        return "needs the real root user"
    if shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin") is None:
        return "needs iproute2: apt-get install iproute2"
    probe = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "true"], check=False)
    return "needs network namespaces" if probe.returncode else None


class Machine:
    """One of them."""

    def __init__(self, namespace: str, address: str) -> None:
        self.namespace = namespace
        self.address = address
        self._init = subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{namespace}"),
                *("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child"),
                *("--mount-proc", "bash", "-c", f"hostname {namespace}\n{_INIT}"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._init.stdout is not None
        first = self._init.stdout.readline()
        self._init.stdout.close()
        self._started: list[subprocess.Popen[bytes]] = []
        assert first == "ready\n", first
        self.first_process = _child_of(self._init.pid)

    def start(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Run a command there, in /tmp; what it says goes to `log`."""
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            **{"HOME": "/tmp/home", "TMPDIR": "/tmp", "PYTHONUNBUFFERED": "1"},
            "PYTHONPATH": str(_ROOT),
            **(environment or {}),
        }
        enter = ["nsenter", "--net", "--pid", "--mount", "--uts", f"--target={self.first_process}"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*enter, "--wdns=/tmp", "--", *command],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """To what was started, not to what has started it."""
        os.kill(_child_of(process.pid), number)

    def processes(self, name: str) -> list[int]:
        """Those that are called so, as this process knows them."""
        own = Path(f"/proc/{self.first_process}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                is_own = entry.name.isdigit() and (entry / "ns/pid").readlink() == own
                if is_own and name in (entry / "comm").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill(self, name: str) -> int:
        """End at once what is called so; how many there were."""
        pids = self.processes(name)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)

    def cut(self) -> None:
        """Take it off the network."""
        _run("ip", "-n", self.namespace, "link", "set", "eth0", "down")

    def mend(self) -> None:
        """Put it on the network again."""
        _run("ip", "-n", self.namespace, "link", "set", "eth0", "up")

    def close(self) -> None:
        """End everything that runs there."""
        processes: list[subprocess.Popen[str] | subprocess.Popen[bytes]]
        processes = [self._init, *self._started]
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """So many, on one network."""
    stem = f"clawrl{os.getpid()}"
    switch, namespaces = f"{stem}s", [f"{stem}n{number}" for number in range(1, count + 1)]
    made: list[Machine] = []
    try:
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, namespace in enumerate(namespaces, 1):
            _run("ip", "netns", "add", namespace)
            peer = ("peer", "name", f"port{number}", "netns", switch)
            _run("ip", "-n", namespace, "link", "add", "eth0", "type", "veth", *peer)
            _run("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            _run("ip", "-n", namespace, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", namespace, "link", "set", device, "up")
            made.append(Machine(namespace, f"10.77.0.{number}"))
        yield made
    finally:
        for machine in made:
            machine.close()
        for namespace in (*namespaces, switch):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


def until(log: Path, words: str, process: subprocess.Popen[bytes], limit_s: float) -> str:
    """What is in the log once it has these words; fails when they do not come."""
    deadline_s = time.monotonic() + limit_s
    while words not in (text := log.read_text(errors="replace") if log.exists() else ""):
        assert process.poll() is None, f"it ended before {words!r}:\n{text[-3000:]}"
        assert time.monotonic() < deadline_s, f"no {words!r} in {limit_s:g} s:\n{text[-3000:]}"
        time.sleep(0.1)
    return text


def until_listening(machine: Machine, port: int, limit_s: float = 20.0) -> None:
    """Wait until something listens there; fails when nothing does."""
    pattern = re.compile(rf":{port:04X} 0+:0000 0A ")
    tables = [Path(f"/proc/{machine.first_process}/net/{name}") for name in ("tcp", "tcp6")]
    deadline_s = time.monotonic() + limit_s
    while not any(pattern.search(table.read_text()) for table in tables):
        assert time.monotonic() < deadline_s, f"nothing listens on port {port}"
        time.sleep(0.1)


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
