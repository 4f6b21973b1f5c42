"""Attacks on a bubblewrap sandbox that not every kind has to withstand, S1 to S19.

Each probe touches only what this file made.
Probes that would change the host if they succeeded write back exactly what they read.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.cgroup import find_cgroup_home
from clawrl_gym.envs.sandbox.launcher_client import launcher_client
from clawrl_gym.envs.sandbox.ready import ready_sandboxes
from tests.security.probes import LIMITS, output, sleepers, system_call
from tests.support.waiting import becomes_true

pytestmark = pytest.mark.sandbox


@pytest.fixture
def sandbox():
    with open_sandbox(LIMITS) as sandbox:
        yield sandbox


# S1


def test_s1_root_inside_is_nobody_outside_and_nobody_else(sandbox):
    with open_sandbox(LIMITS) as other:
        maps = [output(box, "cat /proc/self/uid_map").split() for box in (sandbox, other)]
    assert all(inside == "0" and outside != "0" for inside, outside, _ in maps)
    if os.geteuid() == 0:
        assert maps[0][1] != maps[1][1]
    assert output(sandbox, "id -u") == "0\n"


@pytest.mark.root
def test_s1_no_process_of_a_sandbox_is_the_real_root(sandbox):
    sandbox.exec("(setsid sleep 4711 &)", 5)
    assert becomes_true(lambda: sleepers(4711))
    for pid in sleepers(4711):
        uids = re.search(r"^Uid:\s+(.*)$", Path(f"/proc/{pid}/status").read_text(), re.M)
        assert uids is not None
        assert "0" not in uids.group(1).split()


# S3


def test_s3_the_first_process_has_none_either(sandbox):
    lines = output(sandbox, "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp:)' /proc/1/status")
    values = [line.split()[1] for line in lines.splitlines()]
    assert values == ["0" * 16, "0" * 16, "1", "2"]


# S4: by number on x86_64; the filter itself is tested for both architectures elsewhere.

CALLS = {
    "io_uring_setup": (425, "1, 0"),
    "userfaultfd": (323, "0"),
    "ptrace": (101, "16, 1, 0, 0"),
    "process_vm_readv": (310, "1, 0, 0, 0, 0, 0"),
}
"""What only our own filter refuses."""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize("call", CALLS)
def test_s4_dangerous_system_calls_are_not_permitted(sandbox, call):
    assert system_call(sandbox, *CALLS[call]) == "-1 1"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
def test_s4_clone3_is_not_implemented(sandbox):
    assert system_call(sandbox, 435, "0, 0") == "-1 38"


# S5


def test_s5_files_of_the_host_are_absent(sandbox, tmp_path):
    planted = tmp_path / "planted-secret"
    planted.write_text("secret")
    for path in (planted, Path.home() / ".bashrc", Path("/etc/shadow"), Path(__file__)):
        assert sandbox.exec(f"cat '{path}'", 5).exit_code != 0, path
    assert output(sandbox, "ls -A /home /root /opt /run /srv /mnt").split() == [
        *("/home:", "/mnt:", "/opt:", "/root:", "/run:", "/srv:")
    ]


@pytest.mark.parametrize(
    "path", ["/sys/fs/cgroup", "/sys/kernel", "/var/run/docker.sock", "/run/systemd", "/boot"]
)
def test_s5_the_hosts_controls_are_absent(sandbox, path):
    assert sandbox.exec(f"ls -A {path} | grep .", 5).exit_code != 0


def test_s5_only_generated_accounts_are_shown(sandbox):
    assert output(sandbox, "cut -d: -f1 /etc/passwd") == "root\nnobody\n"


# S6


def test_s6_the_kernel_cannot_be_read(sandbox):
    for command in ("dmesg", "head -c1 /proc/kcore"):
        assert sandbox.exec(command, 5).exit_code != 0, command
    assert sandbox.exec("echo > /dev/new", 5).exit_code != 0


# S7


def test_s7_no_descriptor_of_the_launcher_is_inherited(sandbox):
    listed = output(sandbox, "for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null; done")
    kinds = {line.split(" -> ")[1] for line in listed.splitlines() if " -> " in line}
    allowed = ("/dev/null", "pipe:", "socket:", "/proc/")
    assert all(kind.startswith(allowed) for kind in kinds), kinds
    assert len({kind for kind in kinds if kind.startswith("socket:")}) == 1  # the shell's own


# S9


def fork_ms():
    started = time.monotonic()
    subprocess.run(["/bin/true"], check=True)
    return (time.monotonic() - started) * 1e3


def test_s9_a_fork_bomb_does_not_slow_the_host(sandbox):
    sandbox.exec(":(){ :|:& };:", 2)
    assert sorted(fork_ms() for _ in range(5))[2] < 500


def test_s9_a_bombed_sandbox_closes_at_once():
    sandbox = open_sandbox(LIMITS)
    sandbox.exec(":(){ :|:& };:", 2)
    started = time.monotonic()
    sandbox.close()
    assert time.monotonic() - started < 20.0


# S11


def test_s11_a_full_disk_is_an_error_not_an_end(sandbox):
    result = sandbox.exec("dd if=/dev/zero of=/big bs=1M count=100", 30)
    assert result.exit_code == 1
    assert re.search("No space left|File too large", result.output)
    assert len(sandbox.read("/big", 64 << 20)) <= LIMITS.disk_mb << 20
    assert output(sandbox, "rm /big; echo alive") == "alive\n"


def test_s11_files_run_out_before_memory_does(sandbox):
    many = "import os\nfor i in range(3000000): os.close(os.open(f'/tmp/{i}', os.O_CREAT))"
    sandbox.write("/many.py", many.encode())
    assert "No space left" in output(sandbox, "python3 /many.py", 60)
    assert output(sandbox, "echo alive") == "alive\n"


# S13


def test_s13_a_deadline_ends_the_command_and_not_the_session(sandbox):
    sandbox.exec("cd /tmp; X=kept", 5)
    started = time.monotonic()
    result = sandbox.exec("(setsid sleep 4712 &); nohup sleep 4712 & trap '' TERM; sleep 4712", 1)
    assert time.monotonic() - started < 30.0
    assert (result.timed_out, result.exit_code, result.shell_restarted) == (True, None, False)
    assert output(sandbox, "pwd; echo $X").endswith("/tmp\nkept\n")
    assert becomes_true(lambda: not sleepers(4712))


def test_s13_a_loop_of_the_shell_itself_is_ended_too(sandbox):
    result = sandbox.exec("while :; do :; done", 0.5)
    assert (result.timed_out, result.shell_restarted) == (True, True)
    assert output(sandbox, "echo alive") == "alive\n"


# S14


def test_s14_nothing_survives_the_end():
    sandbox = open_sandbox(LIMITS)
    daemons = "(setsid sleep 4713 &); nohup sleep 4713 & (trap '' TERM HUP; sleep 4713) & "
    sandbox.exec(
        daemons + "python3 -c 'import os\nif os.fork(): os._exit(0)\nos.setsid()\n"
        'if os.fork(): os._exit(0)\nos.execlp("sleep", "sleep", "4713")\'',
        10,
    )
    assert becomes_true(lambda: len(sleepers(4713)) >= 4)
    sandbox.close()
    assert not sleepers(4713)


def test_s14_nothing_is_left_on_the_host_after_the_end():
    home = find_cgroup_home()
    folders = list(home.parents.values()) if home else []
    engines = re.compile(r"/netns/|/merged$|/mounts/shm$")  # containers of others come and go
    mine = f"clawrl-*-{launcher_client().launcher_pid}-*/*/"

    def state():
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        groups = [group for folder in folders for group in folder.glob(mine)]
        return (
            len(groups),
            [one for one in mounts if not engines.search(one[1])],
            len(list(Path("/proc/self/fd").iterdir())),
        )

    ready_sandboxes().close()  # none starts or ends meanwhile
    with open_sandbox(LIMITS):
        pass
    before = state()
    for _ in range(3):
        with open_sandbox(LIMITS) as sandbox:
            sandbox.exec("(setsid sleep 100 &)", 5)
            sandbox.successor().close()
    assert state() == before


# S15


def test_s15_a_killed_owner_takes_its_sandboxes_along():
    code = """
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        import time
        boxes = [open_sandbox(Limits()) for _ in range(10)]
        for box in boxes:
            box.exec("(setsid sleep 4714 >/dev/null 2>&1 &)", 5)
        print("up", flush=True)
        time.sleep(100)
    """
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    try:
        assert owner.stdout.readline() == b"up\n"
        assert becomes_true(lambda: len(sleepers(4714)) == 10)
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
    assert becomes_true(lambda: not sleepers(4714))


def test_s15_sandboxes_outlive_the_thread_that_opened_them():
    opened = []
    thread = threading.Thread(target=lambda: opened.append(open_sandbox(LIMITS)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    with opened[0] as sandbox:
        assert output(sandbox, "echo alive") == "alive\n"


# S19


def test_s19_nothing_is_written_through_a_link(sandbox, tmp_path):
    sandbox.exec(f"mkdir /out; ln -s {tmp_path}/x /out/a; ln -s /proc/1/root /out/p", 5)
    for path in ("/out/a", "/out/p/x"):
        with pytest.raises(SandboxError):
            sandbox.write(path, b"written")
    assert list(tmp_path.iterdir()) == []


def test_s19_a_link_inside_reads_the_sandboxes_own_file(sandbox):
    sandbox.exec("ln -s /etc/hostname /tmp/name", 5)
    assert sandbox.read("/tmp/name", 100) == b"sandbox\n"


def test_s19_pipes_devices_and_giants_are_refused_at_once(sandbox):
    sandbox.exec("mkfifo /pipe; truncate -s 1T /giant; mkdir /folder", 5)
    started = time.monotonic()
    for path in ("/pipe", "/giant", "/folder"):
        with pytest.raises(SandboxError):
            sandbox.read(path, 1000)
    for path in ("/proc/version", "/dev/zero"):
        with pytest.raises((FileNotFoundError, SandboxError)):
            sandbox.read(path, 1000)
    assert time.monotonic() - started < 20.0


def test_s19_what_is_written_belongs_to_the_sandboxes_user(sandbox):
    sandbox.write("/tmp/new/folder/file", b"x", 0o750)
    assert output(sandbox, "stat -c '%u %g %a' /tmp/new /tmp/new/folder/file") == (
        "0 0 755\n0 0 750\n"
    )
