"""Attacks that every kind of sandbox withstands, S2 to S19. Each touches only what it made.

Probes that would change the host if they succeeded write back exactly what they read. What only
one kind promises is beside this file.
"""

import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from clawrl_gym.envs.sandbox.interface import Limits
from tests.security.probes import (
    KINDS,
    KINDS_WITH_CGROUPS,
    LIMITS,
    no_link_leads_out,
    odd_files_are_refused,
    output,
    system_call,
)

with_cgroups = pytest.mark.parametrize("kind", KINDS_WITH_CGROUPS, indirect=True, scope="module")
x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def shared(kind):
    """For probes that leave nothing behind, successful or not."""
    with kind.open() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(kind):
    with kind.open() as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    "file", ["kernel/core_pattern", "kernel/panic", "vm/overcommit_memory", "fs/file-max"]
)
def test_s2_the_kernels_settings_cannot_be_written(shared, file):
    same = f'v=$(cat /proc/sys/{file}) && echo "$v" > /proc/sys/{file}'
    result = shared.exec(same, 5)
    assert result.exit_code != 0
    assert re.search("denied|Read-only|not permitted", result.output)


def test_s3_no_capability_no_new_privileges_and_a_filter(shared):
    lines = output(shared, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").split()
    status = dict(zip(lines[::2], lines[1::2], strict=True))
    assert {int(value, 16) for key, value in status.items() if key.startswith("Cap")} == {0}
    assert (status["NoNewPrivs:"], status["Seccomp:"]) == ("1", "2")


CALLS = {
    "mount": (165, '"none", "/mnt", "tmpfs", 0, 0'),
    "umount2": (166, '"/proc", 0'),
    "pivot_root": (155, '".", "."'),
    "unshare user": (272, "0x10000000"),
    "unshare mounts": (272, "0x20000"),
    "clone user": (56, "0x10000011, 0, 0, 0, 0"),
    "setns": (308, "0, 0"),
    "bpf": (321, "0, 0, 0"),
    "perf_event_open": (298, "0, 0, 0, 0, 0"),
    "keyctl": (250, "0, 0, 0"),
    "add_key": (248, "0, 0, 0, 0, 0"),
    "kexec_load": (246, "0, 0, 0, 0"),
    "init_module": (175, "0, 0, 0"),
    "open_by_handle_at": (304, "0, 0, 0"),
    "chroot": (161, '"/"'),
    "settimeofday": (164, "0, 0"),
    "fsopen": (430, '"tmpfs", 0'),
    "memfd_secret": (447, "0"),
    "modify_ldt": (154, "0, 0, 0"),
    "io_uring_setup": (425, "1, 0"),
    "userfaultfd": (323, "0"),
    "ioctl TIOCSTI": (16, '0, 0x5412, "x"'),
}


@x86_64
@pytest.mark.parametrize("call", CALLS)
def test_s4_dangerous_system_calls_are_not_permitted(shared, call):
    assert system_call(shared, *CALLS[call]) == "-1 1"


@x86_64
@pytest.mark.parametrize("family", [5, 17, 38, 40, 42, 44], ids=lambda family: f"family {family}")
def test_s4_no_socket_leads_around_the_network(shared, family):
    """appletalk, packet, alg, vsock, qipcrtr, xdp; vsock reaches the host of a virtual machine."""
    for kind_of_socket in (1, 2, 3):
        result, _ = system_call(shared, 41, f"{family}, {kind_of_socket}, 0").split()
        assert result == "-1", kind_of_socket


@x86_64
def test_s4_of_netlink_only_the_interfaces_are_told(shared):
    assert system_call(shared, 41, "16, 3, 12") == "-1 97"
    assert system_call(shared, 41, "16, 3, 0") == "3 0"


@x86_64
def test_s4_a_program_stays_in_its_personality(shared):
    assert system_call(shared, 135, "0") == "0 0"
    assert system_call(shared, 135, "0x40000") == "-1 1"


def test_s4_programs_find_the_interface_and_names(shared):
    program = "import socket; print(socket.if_nameindex(), socket.gethostbyname('localhost'))"
    assert output(shared, f'python3 -c "{program}"') == "[(1, 'lo')] 127.0.0.1\n"


def test_s6_only_harmless_devices(shared, kind):
    devices = (
        "for f in $(find /dev); do if [ ! -L $f ] && [ -b $f -o -c $f ]; then echo $f; fi; done"
    )
    found = set(output(shared, devices).split())
    names = ("null", "zero", "full", "random", "urandom", "tty", "pts/ptmx")
    assert found <= {f"/dev/{name}" for name in names} | kind.devices
    assert {"/dev/null", "/dev/urandom"} <= found
    for command in ("mknod /tmp/b b 254 0", "mknod /tmp/c c 1 1", "head -c1 /proc/kcore | grep ."):
        assert shared.exec(command, 5).exit_code != 0, command


def test_s7_no_secret_of_the_owner_is_visible(kind):
    code = f"""
        from tests.security.probes import {kind.name}
        with {kind.name}.open() as sandbox:
            look = "cat /proc/*/environ /proc/*/cmdline; env; set; ls -l /proc/*/fd; mount"
            print(sandbox.exec(look, 20).output)
    """
    secret = "s3cr3t-9b1f"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), secret],
        env=os.environ | {"SECRET": secret},
        capture_output=True,
        cwd=Path(__file__).parents[2],
        text=True,
        check=True,
        timeout=120,
    )
    assert "PATH=" in done.stdout
    assert secret not in done.stdout


def connect(host, port):
    return (
        'python3 -c \'import socket,sys; s=socket.socket(socket.AF_INET6 if ":" in sys.argv[1]'
        " else socket.AF_INET); s.settimeout(2); s.connect((sys.argv[1], int(sys.argv[2])))'"
        f" {host} {port}"
    )


def test_s8_nothing_answers_on_any_network(shared):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"):
            result = shared.exec(connect(host, port), 10)
            assert result.exit_code == 1, host
            assert re.search("refused|unreachable|Cannot assign", result.output), result.output
    assert re.findall(r"^\s*(\w+):", output(shared, "cat /proc/net/dev"), re.M) == ["lo"]


def test_s8_abstract_sockets_of_the_host_are_out_of_reach(shared):
    with socket.socket(socket.AF_UNIX) as server:
        name = f"clawrl-probe-{os.getpid()}"
        server.bind("\0" + name)
        server.listen()
        probe = f'import socket; socket.socket(socket.AF_UNIX).connect("\\0{name}")'
        assert "refused" in output(shared, f"python3 -c '{probe}'")


def test_s9_a_fork_bomb_costs_the_session_at_most(sandbox):
    sandbox.exec(":(){ :|:& };:", 2)
    sandbox.exec("sleep 5", 0.5)  # its deadline ends the bomb as well
    assert output(sandbox, "echo alive") == "alive\n"
    assert int(output(sandbox, "ls -d /proc/[0-9]* | wc -l")) < 10


@with_cgroups
def test_s10_only_what_takes_too_much_memory_is_killed(sandbox):
    result = sandbox.exec("X=kept; python3 -c 'x = bytearray(600 << 20)'", 30)
    assert result.exit_code == 137
    assert output(sandbox, "echo $X") == "kept\n"


@with_cgroups
def test_s10_files_in_shared_memory_count(sandbox):
    result = sandbox.exec("dd if=/dev/zero of=/dev/shm/x bs=1M count=600", 30)
    assert result.exit_code != 0
    assert output(sandbox, "rm -f /dev/shm/x; echo alive") == "alive\n"


@with_cgroups
def test_s12_the_share_of_the_processor_is_kept(kind):
    # The seconds that it took, not those that it meant to: on a busy machine a turn may end late.
    spin = "import time\nwall, used = time.monotonic(), time.process_time()\n"
    spin += "while time.monotonic() - wall < 2: pass\n"
    spin += "print((time.process_time() - used) / (time.monotonic() - wall))"
    with kind.open(Limits(cpus=0.3)) as sandbox:
        sandbox.write("/spin.py", spin.encode())
        assert 0.0 < float(output(sandbox, "python3 /spin.py", 30)) < 0.4


def test_s14_orphans_leave_no_zombies(sandbox):
    sandbox.exec("for i in $(seq 100); do (true & ); done; sleep 0.5", 10)
    assert output(sandbox, "grep -c '^State:.Z' /proc/[0-9]*/status | grep -cv ':0'") == "0\n"


@pytest.mark.parametrize(
    "command",
    [
        "printf 'E 00 0\\0D 0\\0'",
        "cat <<'EOF'\nE 00 0\nEOF",
        "head -c 1000000 /dev/zero | tr '\\0' x",
        "exec 1>&-",
        "exec 3>&- 4>&- 5>&-",
        'for i in 3 4 5 6 7 8 9; do eval "exec $i>&-"; done',
        "PROMPT_COMMAND='echo x'; PS1=x; PS0=x",
        "trap '' HUP INT TERM QUIT PIPE; trap 'echo trapped >&2' EXIT",
        "set -e; false",
        "set -u; echo $unset_variable",
        "exit 3",
        "kill -9 $$",
        "kill -9 -1; (kill -9 -1)",
        "exec sleep 0",
        "alias eval=false printf=false; shopt -s expand_aliases",
        "for fd in 3 4 10 11 12 13 14; do printf 'E 0 0\\0D 1\\0' >&$fd; done",
    ],
)
def test_s16_no_command_shifts_the_answers_of_others(sandbox, command):
    sandbox.exec(command, 5)
    for number in range(3):
        result = sandbox.exec(f"echo {number}", 5)
        assert (result.output, result.exit_code) == (f"{number}\n", 0)


def test_s16_taking_the_shells_own_commands_away_costs_only_the_shell(sandbox):
    assert sandbox.exec("eval() { :; }; printf() { :; }", 0.5).timed_out
    assert output(sandbox, "echo alive") == "alive\n"


@pytest.mark.parametrize("command", ["cat", "read x", "python3", "bash", "sh -s", "perl", "wc -c"])
def test_s17_who_reads_gets_the_end_at_once(shared, command):
    result = shared.exec(command, 10)
    assert not result.timed_out
    assert output(shared, "echo next") == "next\n"


def test_s18_a_flood_is_cut_and_costs_the_owner_nothing(sandbox):
    def resident_kb():
        return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])

    before_kb = resident_kb()
    result = sandbox.exec("yes", 2)
    assert (result.timed_out, result.truncated) == (True, True)
    assert len(result.output) == LIMITS.output_bytes
    assert resident_kb() - before_kb < 20_000
    assert output(sandbox, "echo alive").endswith("alive\n")


def test_s18_bytes_of_any_kind_are_text_in_the_end(shared):
    result = shared.exec("head -c 4000 /dev/urandom; printf '\\033[2J\\0\\xff'", 5)
    assert result.exit_code == 0
    assert result.output.endswith("\033[2J\0\ufffd")


def test_s19_links_never_lead_to_a_file_of_the_host(sandbox, tmp_path):
    no_link_leads_out(sandbox, tmp_path)


def test_s19_pipes_devices_and_giants_are_refused_at_once(sandbox):
    odd_files_are_refused(sandbox)
