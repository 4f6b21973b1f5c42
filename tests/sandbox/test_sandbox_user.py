"""Sandboxes of an ordinary user: no real root, no cgroups, no uid range."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import clawrl_gym
from tests.support.sandbox_roots import make_root

pytestmark = [pytest.mark.sandbox, pytest.mark.root]

USER = 12_345


def python_of_everybody():
    """A Python that another user may run; the tests' own may lie in a private folder."""
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        resolved = Path(name).resolve()
        readable = all(folder.stat().st_mode & 0o005 for folder in resolved.parents)
        if readable and Path(name).exists():
            return name
    pytest.fail("no Python that an ordinary user may run")


@pytest.fixture
def folder(tmp_path_factory):
    """A folder with the package that an ordinary user may read."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="clawrl-user-"))
    package = folder / "clawrl_gym"
    source = Path(clawrl_gym.__file__).parent
    (package / "envs").mkdir(parents=True)
    shutil.copytree(source / "envs/sandbox", package / "envs/sandbox")
    shutil.copytree(source / "core", package / "core")
    (package / "__init__.py").touch()
    (package / "envs/__init__.py").touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def run_as_user(folder, code, secret=""):
    prelude = """
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        def say(sandbox, command, timeout_s=10):
            print(sandbox.exec(command, timeout_s).output, end="")
    """
    return subprocess.run(
        [
            *("setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"),
            *(python_of_everybody(), "-c", textwrap.dedent(prelude) + textwrap.dedent(code)),
        ],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        | {"SECRET": secret},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_everything_works_without_real_root(folder):
    code = """
        with open_sandbox(Limits()) as sandbox:
            say(sandbox, "id -u; cat /proc/self/uid_map")
            say(sandbox, "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp:)' /proc/self/status")
            sandbox.write("/tmp/new/f", b"written")
            say(sandbox, "cat /tmp/new/f; stat -c ' %u' /tmp/new; echo x > /etc/new; cat /etc/new")
            print(sandbox.read("/etc/new", 10))
            say(sandbox, "touch /usr/new")
            with sandbox.successor() as fresh:
                say(fresh, "cat /etc/new")
    """
    done = run_as_user(folder, code)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines == [
        ["0"],
        ["0", str(USER), "1"],
        ["CapEff:", "0" * 16],
        ["CapBnd:", "0" * 16],
        ["NoNewPrivs:", "1"],
        ["Seccomp:", "2"],
        ["written", "0"],
        ["x"],
        ["b'x\\n'"],
        ["touch:", "cannot", "touch", "'/usr/new':", "Read-only", "file", "system"],
        ["x"],
    ], done.stderr
    assert "rlimits instead of cgroup limits" in done.stderr


def test_rlimits_hold_where_cgroups_cannot(folder):
    code = """
        with open_sandbox(Limits(memory_mb=256, disk_mb=16, pids=20)) as sandbox:
            say(sandbox, "python3 -c 'bytearray(400 << 20)' 2>&1 | tail -1")
            say(sandbox, "dd if=/dev/zero of=/tmp/f bs=1M count=64 2>&1 | head -1")
            say(sandbox, "rm /tmp/f; for i in $(seq 40); do sleep 3 & done 2>&1 | head -1", 3)
            sandbox.exec("sleep 9", 0.5)
            say(sandbox, "echo alive; ls -d /proc/[0-9]* | wc -l")
    """
    done = run_as_user(folder, code)
    assert "MemoryError" in done.stdout, done.stderr
    assert "File too large" in done.stdout or "No space left" in done.stdout
    assert "Resource temporarily unavailable" in done.stdout
    assert done.stdout.split("alive\n")[1].strip().isdigit()


def test_a_fork_bomb_of_an_ordinary_user_ends_with_its_deadline(folder):
    code = """
        import time
        with open_sandbox(Limits(pids=30)) as sandbox:
            sandbox.exec(":(){ :|:& };:", 1)
            sandbox.exec("sleep 5", 1)
            say(sandbox, "echo alive; ls -d /proc/[0-9]* | wc -l", 30)
            sandbox.exec(":(){ :|:& };:", 1)
            started = time.monotonic()
        print(time.monotonic() - started < 1.5)
    """
    done = run_as_user(folder, code)
    # On a busy machine the shell may wait for the places of processes that are on their way out.
    lines = [line for line in done.stdout.splitlines() if "fork: retry" not in line]
    assert lines[0] == "alive", done.stdout + done.stderr
    assert int(lines[1]) < 10
    assert lines[2] == "True"


def test_a_folder_of_the_user_serves_as_root(folder):
    make_root(folder / "root")
    for path in (folder / "root", *(folder / "root").rglob("*")):
        shutil.chown(path, USER, USER) if not path.is_symlink() else None
    code = """
        with open_sandbox(Limits(), rootfs="root") as sandbox:
            say(sandbox, "cat /etc/motd; echo changed > /etc/motd; cat /etc/motd")
            sandbox.exec("touch /usr/bin/mark", 5)
            with sandbox.successor() as fresh:
                say(fresh, "cat /etc/motd; ls /usr/bin/mark 2>&1")
    """
    done = run_as_user(folder, code)
    assert done.stdout.splitlines()[:3] == ["a root of our own", "changed", "changed"], done.stderr
    assert "cannot access" in done.stdout
    assert (folder / "root/etc/motd").read_text() == "a root of our own\n"


def test_a_root_whose_links_lead_to_the_host_changes_nothing_there(folder):
    root = make_root(folder / "root")
    (folder / "victim").mkdir(mode=0o700)
    for name in ("tmp", "var", "root"):
        (root / name).symlink_to(folder / "victim")
    for path in (folder / "victim", root, *root.rglob("*")):
        shutil.chown(path, USER, USER) if not path.is_symlink() else None
    code = """
        with open_sandbox(Limits(), rootfs="root", workdir="/") as sandbox:
            say(sandbox, "cat /etc/motd")
    """
    done = run_as_user(folder, code)
    assert done.stdout == "a root of our own\n", done.stderr
    assert list((folder / "victim").iterdir()) == []
    assert (folder / "victim").stat().st_mode & 0o777 == 0o700


def test_attacks_fail_without_real_root_too(folder):
    (folder / "secret").write_text("planted")
    code = """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        attacks = [
            'v=$(cat /proc/sys/kernel/core_pattern) && echo "$v" > /proc/sys/kernel/core_pattern',
            "mknod /tmp/b b 254 0", "unshare -U true", "unshare -m true", "dmesg",
            "mount -t tmpfs none /mnt", "umount /proc", "head -c1 /proc/kcore", "chown 1 /tmp",
            "ls -A /home /opt | grep -v : | grep .", "cat FOLDER/secret", "echo > /dev/new",
            "ls /sys/fs/cgroup", f"exec 9<>/dev/tcp/127.0.0.1/{port}",
            "grep -l SECRETVALUE /proc/*/environ", "setpriv --reuid 1 true",
        ]
        with open_sandbox(Limits()) as sandbox:
            for attack in attacks:
                result = sandbox.exec("(" + attack + ")", 10)
                if result.exit_code == 0:
                    print("succeeded:", attack, result.output)
            say(sandbox, "echo done")
    """
    done = run_as_user(folder, code.replace("FOLDER", str(folder)), secret="SECRET" + "VALUE")
    assert done.stdout == "done\n", done.stderr


def test_the_report_says_what_is_lost(folder):
    code = """
        from clawrl_gym.envs.sandbox.isolation import isolation_report
        for finding in isolation_report():
            print(finding.name, finding.ok, finding.cure, sep="|")
    """
    done = run_as_user(folder, code)
    found = dict(line.split("|")[0:2] for line in done.stdout.splitlines())
    assert found["bubblewrap"] == found["user namespaces"] == found["seccomp"] == "True"
    assert found["cgroup limits"] == "False"
    assert "Delegate=yes" in done.stdout


def test_what_is_shown_of_the_host_can_be_read_and_never_written(folder):
    (folder / "shown").mkdir()
    (folder / "shown/a").write_text("of the host\n")
    code = """
        mounts = {"/opt/x/y": "FOLDER/shown", "/opt/b": "FOLDER/shown/a"}
        with open_sandbox(Limits(), mounts=mounts) as sandbox:
            say(sandbox, "cat /opt/x/y/a /opt/b; ls /opt /opt/x")
            say(sandbox, "(echo > /opt/b; rm /opt/x/y/a; touch /opt/x/y/n; umount /opt/b) 2>&1")
            after = sandbox.successor()
            say(after, "cat /opt/b")
            after.close()
    """
    done = run_as_user(folder, code.replace("FOLDER", str(folder)))
    lines = done.stdout.splitlines()
    assert lines[:8] == ["of the host"] * 2 + ["/opt:", "b", "x", "", "/opt/x:", "y"], done.stderr
    assert lines[-1] == "of the host"
    assert (folder / "shown/a").read_text() == "of the host\n"
    assert [path.name for path in (folder / "shown").iterdir()] == ["a"]


IN_A_SMALL_UID_SPACE = """
import ctypes, os, sys
ready, may_go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    assert ctypes.CDLL(None).unshare(0x1002_0000) == 0
    os.write(ready[1], b"1"), os.read(may_go[0], 1)
    os.setresgid(0, 0, 0), os.setresuid(0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
os.read(ready[0], 1)
for name in ("uid_map", "gid_map"):
    open(f"/proc/{child}/{name}", "w").write("0 0 100")
os.write(may_go[1], b"1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_root_of_a_hundred_uids_has_sandboxes_and_is_told_what_they_lack():
    code = """
        import logging
        logging.basicConfig()
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.isolation import isolation_report
        print({check.name: check.ok for check in isolation_report()}["uid ranges"])
        with open_sandbox(Limits()) as sandbox:
            sandbox.write("/root/x", b"x")
            command = "id -u; cat /root/x; grep Cap[EB] /proc/self/status"
            print(sandbox.exec(command, 5).output)
    """
    command = [sys.executable, "-c", IN_A_SMALL_UID_SPACE, textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [*("False", "0", "xCapEff:", "0" * 16, "CapBnd:", "0" * 16)], (
        done.stderr
    )
    assert "no uid ranges of their own" in done.stderr


def test_a_socket_inside_is_held_outside(folder):
    code = """
        with open_sandbox(Limits()) as sandbox, sandbox.listen() as listener:
            port = listener.getsockname()[1]
            sandbox.exec(f"echo hello >/dev/tcp/127.0.0.1/{port}", 10)
            connection, _ = listener.accept()
            with connection:
                print(connection.recv(10))
            print(sandbox.exec(f"echo >/dev/tcp/127.0.0.1/{port + 1}", 10).exit_code)
    """
    done = run_as_user(folder, code)
    assert done.stdout == "b'hello\\n'\n1\n", done.stderr
