"""The sandbox as environments use it: commands, files, deadlines, the end."""

import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import ExecResult, Limits, Sandbox

pytestmark = pytest.mark.sandbox

_OF_LIBC = 0b11 << 31
"""Bits of signals 32 and 33, which no program can set: they are as whoever began all this left
them."""


@pytest.fixture
def sandbox():
    with open_sandbox(Limits(output_bytes=1000)) as sandbox:
        yield sandbox


def test_it_is_a_sandbox(sandbox):
    fits: Sandbox = sandbox
    assert fits.exec("echo hi", 5) == ExecResult("hi\n", 0)


def test_errors_and_exit_codes_are_results(sandbox):
    result = sandbox.exec("echo out; nosuchcommand; exit_code_is() { return 42; }; exit_code_is", 5)
    assert result.exit_code == 42
    assert "out\n" in result.output
    assert "nosuchcommand: command not found" in result.output


def test_directory_variables_and_functions_stay(sandbox):
    sandbox.exec("mkdir -p /w/x; cd /w/x; A=1; export B=2; f() { echo f$1; }; umask 077", 5)
    assert sandbox.exec("pwd; echo $A$B; f 3; umask", 5).output == "/w/x\n12\nf3\n0077\n"


def test_signals_work_as_in_any_shell(sandbox):
    caught = 'for s in INT TERM HUP PIPE XFSZ; do trap "echo $s" $s; kill -$s $$; done'
    assert sandbox.exec(caught, 5).output.split() == ["INT", "TERM", "HUP", "PIPE", "XFSZ"]
    assert sandbox.exec("umask", 5).output == "0022\n"
    assert sandbox.exec("yes | head -1; echo ${PIPESTATUS[0]}", 5).output == "y\n141\n"


def test_background_work_goes_on_between_commands(sandbox):
    sandbox.exec("(sleep 0.2; echo done > /tmp/done) &", 5)
    time.sleep(0.6)
    assert sandbox.exec("cat /tmp/done", 5).output == "done\n"


def test_a_shell_that_ends_is_replaced_and_that_is_said(sandbox):
    sandbox.exec("cd /tmp; X=1; (setsid sleep 300 &)", 5)
    sandbox.exec("until grep -q sleep /proc/[0-9]*/comm; do :; done", 20)
    result = sandbox.exec("echo last; exit 3", 5)
    assert (result.output, result.exit_code, result.shell_restarted) == ("last\n", None, True)
    after = sandbox.exec("pwd; echo $X; cat /proc/[0-9]*/comm | grep -c sleep", 20)
    assert after == ExecResult("/root\n\n1\n", 0)


def test_output_is_cut_at_the_limit(sandbox):
    result = sandbox.exec("head -c 5000 /dev/zero | tr '\\0' x", 5)
    assert (result.output, result.truncated, result.exit_code) == ("x" * 1000, True, 0)


def test_files_go_in_and_come_out(sandbox):
    sandbox.write("/srv/data/in.bin", bytes(range(256)), 0o600)
    assert sandbox.exec("cp /srv/data/in.bin /out.bin; chmod 640 /out.bin", 5).exit_code == 0
    assert sandbox.read("/out.bin", 256) == bytes(range(256))
    assert (sandbox.mode("/srv/data/in.bin"), sandbox.mode("/out.bin")) == (0o600, 0o640)


def test_what_is_in_a_folder_is_listed_from_outside_and_no_link_is_followed(sandbox):
    sandbox.write("/srv/here/a.txt", b"x", 0o600)
    sandbox.exec("cd /srv/here; mkdir -m 711 -p b/.c; ln -s /etc link; mkfifo pipe", 5)
    modes = {"a.txt": 0o100600, "b": 0o40755, "b/.c": 0o40711, "pipe": 0o10644, "link": 0o120777}
    assert sandbox.tree("/srv/here", 5) == modes
    with pytest.raises(SandboxError, match="more than 4 files"):
        sandbox.tree("/srv/here", 4)
    with pytest.raises(FileNotFoundError):
        sandbox.tree("/none", 5)
    with pytest.raises(SandboxError):
        sandbox.tree("/srv/here/a.txt", 5)


def test_a_file_that_is_not_there_is_not_found(sandbox):
    with pytest.raises(FileNotFoundError):
        sandbox.read("/none", 10)
    with pytest.raises(FileNotFoundError):
        sandbox.mode("/none")


def test_the_end_is_the_end_however_often(sandbox):
    sandbox.close()
    sandbox.close()
    for use in (
        lambda: sandbox.exec("true", 1),
        lambda: sandbox.write("/x", b""),
        lambda: sandbox.read("/x", 1),
        sandbox.successor,
    ):
        with pytest.raises(SandboxError, match="closed"):
            use()


def test_a_start_that_fails_says_why():
    with pytest.raises(SandboxError, match=r"could not start a sandbox: .*embedded null byte"):
        open_sandbox(Limits(), env={"A": "x\0y"})


@pytest.mark.parametrize("limits", [Limits(disk_mb=0), Limits(pids=-1), Limits(cpus=0.0)])
def test_limits_that_limit_nothing_are_refused(limits):
    with pytest.raises(SandboxError, match="expected each above 0"):
        open_sandbox(limits)


def test_an_environment_too_large_is_an_error_and_harms_no_other(sandbox):
    for size in (150_000, 400_000):
        with pytest.raises(SandboxError):
            open_sandbox(Limits(), env={"A": "x" * size})
    assert sandbox.exec("echo alive", 5).output == "alive\n"


def test_many_threads_open_use_and_close_at_a_time():
    def one(number):
        with open_sandbox(Limits()) as sandbox:
            first = sandbox.exec(f"X={number}; echo $X", 20).output
            with sandbox.successor() as fresh:
                return first, fresh.exec("echo $X", 20).output

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(24)))
    assert results == [(f"{number}\n", "\n") for number in range(24)]


def test_two_sandboxes_share_nothing(sandbox):
    with open_sandbox(Limits()) as other:
        sandbox.exec("echo mine > /tmp/f; echo mine > /dev/shm/f", 5)
        assert other.exec("cat /tmp/f /dev/shm/f", 5).exit_code == 1


def test_its_processes_have_namespaces_of_their_own(sandbox):
    kinds = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
    links = " ".join(f"/proc/self/ns/{kind}" for kind in kinds)
    inside = sandbox.exec(f"readlink {links}", 5).output.split()
    outside = [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds]
    assert len(inside) == len(kinds)
    assert not set(inside) & set(outside)


def test_its_processes_yield_to_the_host_and_leave_nothing_behind_in_a_crash(sandbox):
    said = sandbox.exec(
        "hostname; nice; cat /proc/self/oom_score_adj; ulimit -Hn; ulimit -Hc; ulimit -Sn; umask; "
        "grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -f2; echo x > /dev/shm/a; cat /dev/shm/a",
        5,
    ).output.split()
    niceness = str(min(19, os.nice(0) + 5))
    files = str(min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    blocked, ignored = (int(said.pop(7), 16) & ~_OF_LIBC for _ in range(2))
    assert (blocked, ignored) == (0, 0)
    assert said == ["sandbox", niceness, "500", files, "0", files, "0022", "x"]


def test_its_shell_finds_the_folder_and_the_variables_that_were_given_and_no_others():
    env = {"PATH": "/usr/bin:/bin", "A": "b c"}
    with open_sandbox(Limits(), workdir="/some/where", env=env) as sandbox:
        assert sandbox.exec("pwd", 5).output == "/some/where\n"
        lines = sandbox.exec("tr '\\0' '\\n' < /proc/1/environ", 5).output.splitlines()
        assert sandbox.exec("command -v ls", 5).output == "/usr/bin/ls\n"
    assert dict(line.split("=", 1) for line in lines) == {
        "PATH": "/usr/bin:/bin", "A": "b c", "HOME": "/root", "USER": "root", "LANG": "C.UTF-8",
        "TZ": "UTC", "TERM": "dumb", "PWD": "/some/where",
    }  # fmt: skip
