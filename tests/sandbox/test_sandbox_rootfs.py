"""The root file system: what it shows, what can be written, what a successor gets back."""

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from tests.support.sandbox_roots import make_root

pytestmark = pytest.mark.sandbox


def output(sandbox, command):
    return sandbox.exec(command, 10).output


@pytest.fixture
def sandbox():
    with open_sandbox(Limits()) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    "command",
    [
        "echo a b | awk '{print $2}'",
        "echo b | sort",
        "echo ab | sed s/a//",
        "echo b | grep b",
        "find /root -maxdepth 0 -printf 'b\\n'",
        "echo b | gzip | gzip -d",
        "cd /tmp && echo b > f && tar cf t f && tar xOf t",
        "perl -e 'print \"b\\n\"'",
    ],
)
def test_the_usual_tools_run_in_the_default_root(sandbox, command):
    assert output(sandbox, command) == "b\n"


@pytest.mark.parametrize("program", ["python3", "git"])
def test_larger_programs_of_the_host_run(sandbox, program):
    assert sandbox.exec(f"{program} --version", 10).exit_code == 0


def test_time_and_language_are_fixed(sandbox):
    assert output(sandbox, "echo $TZ $LANG; date +%Z; hostname") == "UTC C.UTF-8\nUTC\nsandbox\n"


def test_the_environment_asked_for_is_there_and_no_other():
    with open_sandbox(Limits(), env={"TOKEN": "a b"}) as sandbox:
        names = output(sandbox, "env | cut -d= -f1 | sort").split()
        assert output(sandbox, "echo $TOKEN") == "a b\n"
    expected = {"HOME", "LANG", "PATH", "TERM", "TOKEN", "TZ", "USER", "PWD", "SHLVL", "_"}
    assert set(names) <= expected


def test_a_missing_working_directory_is_made():
    with open_sandbox(Limits(), workdir="/srv/deep") as sandbox:
        assert output(sandbox, "pwd") == "/srv/deep\n"


def test_nothing_but_the_system_of_the_host_is_there(sandbox):
    for folder in ("/home", "/root", "/opt", "/run", "/srv", "/mnt", "/tmp", "/var/tmp"):
        assert output(sandbox, f"ls -A {folder}") == "", folder


def test_folders_of_the_system_can_be_written(sandbox):
    command = "echo x > /etc/new && echo y > /root/new && echo z > /opt/new && cat /*/new"
    assert output(sandbox, command) == "x\nz\ny\n"


@pytest.mark.root
def test_usr_can_be_written_without_touching_the_host(sandbox):
    from pathlib import Path

    assert output(sandbox, "echo x > /usr/bin/claw-probe; rm /usr/bin/awk; ls /usr/bin/claw-probe")
    assert not Path("/usr/bin/claw-probe").exists()
    with open_sandbox(Limits()) as other:
        assert other.exec("ls /usr/bin/claw-probe", 10).exit_code != 0


def test_a_successor_keeps_files_and_loses_processes_and_variables(sandbox):
    sandbox.exec("echo kept > /tmp/a; X=1; export Y=2; cd /tmp; (setsid sleep 500 &)", 10)
    with sandbox.successor() as fresh:
        assert output(fresh, "cat /tmp/a; echo $X$Y; pwd") == "kept\n\n/root\n"
        assert "sleep" not in output(fresh, "cat /proc/[0-9]*/comm")
        assert fresh.read("/tmp/a", 100) == b"kept\n"


def test_the_predecessor_of_a_successor_is_closed(sandbox):
    with sandbox.successor(), pytest.raises(SandboxError, match="closed"):
        sandbox.exec("true", 1)


def test_a_successor_has_a_successor(sandbox):
    with sandbox.successor() as second:
        second.write("/tmp/b", b"2")
        with second.successor() as third:
            assert third.read("/tmp/b", 10) == b"2"


@pytest.mark.root
def test_a_successor_has_the_programs_of_the_host_again(sandbox):
    sandbox.exec(
        "mkdir -p /usr/local/bin; echo kept > /usr/local/mark;"
        "cp /usr/bin/false /usr/bin/new && mv /usr/bin/new /usr/bin/cat;"
        "echo /x.so > /etc/ld.so.preload; rm -rf /lib64 /bin; echo > /usr/lib64/ld-linux",
        10,
    )
    with sandbox.successor() as fresh:
        assert output(fresh, "cat /usr/local/mark") == "kept\n"
        assert output(fresh, "/bin/bash -c 'echo sane'; ls /etc/ld.so.preload 2>&1").startswith(
            "sane\nls: cannot access"
        )


FORGED = (
    "printf '#!/bin/bash\\necho forged\\n' > /home/forged; chmod +x /home/forged;"
    "ln -sf /home/forged /etc/alternatives/"
)


def test_a_successor_finds_the_systems_programs_by_their_alternatives(sandbox):
    sandbox.exec(f"{FORGED}awk; rm /etc/alternatives/pager; touch /etc/alternatives/new", 10)
    names = "ls /etc/alternatives | sha256sum"
    with open_sandbox(Limits()) as other, sandbox.successor() as fresh:
        assert output(fresh, "echo 1 | awk '{print 2}'") == "2\n"
        assert output(fresh, names) == output(other, names)
        with fresh.successor() as third:
            assert output(third, "ls -d /etc/.replaced-* | wc -l") == "1\n", "nothing was replaced"


@pytest.mark.root
def test_a_successor_on_a_folder_finds_its_programs_by_their_alternatives(tmp_path):
    root = make_root(tmp_path / "r")
    (root / "etc/alternatives").mkdir()
    (root / "etc/alternatives/see").symlink_to("/usr/bin/cat")
    (root / "usr/bin/see").symlink_to("/etc/alternatives/see")
    with open_sandbox(Limits(), rootfs=str(root)) as sandbox:
        sandbox.exec(f"{FORGED}x", 10)
        sandbox.write("/etc/alternatives/y", b"")
        sandbox.exec("mkdir /etc/other; cat /etc/motd > /etc/alternatives/see", 10)
        with sandbox.successor() as fresh:
            assert (
                output(fresh, "ls /etc/alternatives; see /etc/motd") == "see\na root of our own\n"
            )


def test_a_full_disk_does_not_stop_a_successor(sandbox):
    sandbox.exec("dd if=/dev/zero of=/tmp/full bs=1M", 20)
    sandbox.exec("i=0; while echo > /tmp/f$i; do i=$((i+1)); done", 30)
    with sandbox.successor() as fresh:
        fresh.write("/tmp/report", b"x" * 100_000)
        assert len(fresh.read("/tmp/report", 100_000)) == 100_000


def test_links_that_lead_to_the_host_are_not_followed_in_a_successor(sandbox):
    sandbox.exec("cd /; rm -rf /etc /var /bin; ln -s /root /etc; ln -s /root /var; mkdir /bin", 10)
    with sandbox.successor() as fresh:
        assert output(fresh, "/bin/bash -c 'echo sane'") == "sane\n"


def test_a_shell_that_was_destroyed_comes_back(sandbox):
    if sandbox.exec("touch /usr/claw-probe", 10).exit_code == 0:
        sandbox.exec("rm /usr/bin/bash", 10)
    result = sandbox.exec("rm -rf /lib64; exit 1", 10)
    assert result.shell_restarted
    assert output(sandbox, "echo back") == "back\n"


@pytest.mark.root
def test_a_folder_serves_as_root(tmp_path):
    root = make_root(tmp_path / "root")
    with open_sandbox(Limits(), rootfs=str(root)) as sandbox:
        assert output(sandbox, "cat /etc/motd; id -u") == "a root of our own\n0\n"
        assert output(sandbox, "echo x > /etc/motd; cat /etc/motd; ls /usr/bin/python3 2>&1")[:2]
        sandbox.exec("touch /usr/bin/mark /tmp/mark; mkdir /x; rm /bin; mkdir /bin", 10)
        with sandbox.successor() as fresh:
            listed = output(fresh, "ls /usr/bin/mark 2>&1; ls /tmp; cat /etc/motd")
            assert "cannot access" in listed
            assert listed.endswith("mark\nx\n")
    assert (root / "etc/motd").read_text() == "a root of our own\n"
    assert not (root / "tmp").exists()


def test_a_root_that_is_not_there_is_said(tmp_path):
    with pytest.raises(SandboxError, match="No such file"):
        open_sandbox(Limits(), rootfs=str(tmp_path / "none"))


@pytest.mark.root
def test_folders_and_files_of_the_host_are_shown_read_only_even_private_ones(tmp_path):
    (tmp_path / "deep").mkdir(mode=0o700)
    (tmp_path / "deep/a").write_text("private\n")
    (tmp_path / "deep/a").chmod(0o600)
    mounts = {"/opt/f": str(tmp_path / "deep"), "/opt/a": str(tmp_path / "deep/a")}
    with open_sandbox(Limits(), mounts=mounts) as sandbox:
        assert output(sandbox, "cat /opt/f/a /opt/a") == "private\n" * 2
        assert output(sandbox, "(echo > /opt/a) 2>&1").endswith("Read-only file system\n")
        with pytest.raises(SandboxError, match="Read-only"):
            sandbox.write("/opt/f/b", b"")


def test_what_cannot_be_shown_is_told(tmp_path):
    with pytest.raises(SandboxError, match=r"open_tree /no/such: No such file"):
        open_sandbox(Limits(), mounts={"/opt/x": "/no/such"})
    root = make_root(tmp_path / "r")
    with pytest.raises(SandboxError, match="'/bin/x' in the root file system leads elsewhere"):
        open_sandbox(Limits(), rootfs=str(root), mounts={"/bin/x": "/etc/passwd"})
