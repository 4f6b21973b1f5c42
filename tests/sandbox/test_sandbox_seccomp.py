"""The seccomp program, run by a small interpreter of classic BPF."""

import errno
import hashlib
import struct

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.seccomp import program

ALLOW, KILL, ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
REFUSED, UNKNOWN = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
NUMBERS = {
    "x86_64": {"read": 0, "openat": 257, "execve": 59, "clone": 56, "ioctl": 16, "mount": 165}
    | {"unshare": 272, "bpf": 321, "keyctl": 250, "ptrace": 101, "io_uring_setup": 425}
    | {"userfaultfd": 323, "perf_event_open": 298, "setns": 308, "clone3": 435, "futex": 202}
    | {"socket": 41, "socketpair": 53, "memfd_secret": 447, "memfd_create": 319}
    | {"personality": 135, "set_mempolicy_home_node": 450},
    "aarch64": {"read": 63, "openat": 56, "execve": 221, "clone": 220, "ioctl": 29, "mount": 40}
    | {"unshare": 97, "bpf": 280, "keyctl": 219, "ptrace": 117, "io_uring_setup": 425}
    | {"userfaultfd": 282, "perf_event_open": 241, "setns": 268, "clone3": 435, "futex": 98}
    | {"socket": 198, "socketpair": 199, "memfd_secret": 447, "memfd_create": 279}
    | {"personality": 92, "set_mempolicy_home_node": 450},
}


def verdict(machine, call, *args, arch=None):
    """What the program answers to one system call."""
    number = NUMBERS[machine].get(call, call)
    padded = [*args, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=iIQ6Q", number, arch or ARCH[machine], 0, *padded)
    code = program(machine)
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    at, accumulator = 0, 0
    while True:
        kind, if_true, if_false, value = steps[at]
        if kind == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
            at += 1
        elif kind == 0x06:
            return value
        else:
            held = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[kind]
            at += 1 + (if_true if held else if_false)


@pytest.fixture(params=sorted(ARCH))
def machine(request):
    return request.param


@pytest.mark.parametrize(
    "call", ["read", "openat", "execve", "futex", "socketpair", "memfd_create"]
)
def test_ordinary_calls_pass(machine, call):
    assert verdict(machine, call) == ALLOW


DANGEROUS = (
    "mount unshare setns bpf keyctl ptrace io_uring_setup userfaultfd perf_event_open "
    "memfd_secret set_mempolicy_home_node"
)


@pytest.mark.parametrize("call", DANGEROUS.split())
def test_dangerous_calls_are_refused(machine, call):
    assert verdict(machine, call) == REFUSED


def test_a_plain_fork_passes_and_a_new_namespace_does_not(machine):
    sigchld = 17
    assert verdict(machine, "clone", sigchld) == ALLOW
    for flag in (0x0002_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x80, 0x0200_0000):
        assert verdict(machine, "clone", sigchld | flag) == REFUSED, hex(flag)


def test_clone3_is_unknown_so_that_libc_falls_back(machine):
    assert verdict(machine, "clone3") == UNKNOWN


def test_terminal_input_cannot_be_forged(machine):
    assert verdict(machine, "ioctl", 1, 0x5412) == REFUSED
    assert verdict(machine, "ioctl", 1, 0x541C) == REFUSED
    assert verdict(machine, "ioctl", 1, 0x5401) == ALLOW


def test_a_foreign_calling_convention_is_killed(machine):
    assert verdict(machine, "read", arch=0x4000_0003) == KILL


def test_the_32_bit_numbers_of_x86_64_are_unknown():
    assert verdict("x86_64", 0x4000_0000 + 165) == UNKNOWN


def test_an_unknown_machine_is_named():
    with pytest.raises(SandboxError, match=r"'riscv64'.*aarch64, x86_64"):
        program("riscv64")


NO_SUCH_FAMILY = ERRNO | errno.EAFNOSUPPORT


@pytest.mark.parametrize("family", [1, 2, 10])
@pytest.mark.parametrize("protocol", [0, 6, 17])
def test_programs_have_the_sockets_that_they_need(machine, family, protocol):
    assert verdict(machine, "socket", family, 1, protocol) == ALLOW


def test_of_netlink_only_the_interfaces_are_told(machine):
    assert verdict(machine, "socket", 16, 3, 0) == ALLOW
    for protocol in range(1, 32):
        assert verdict(machine, "socket", 16, 3, protocol) == NO_SUCH_FAMILY


def test_there_is_no_other_family_of_sockets(machine):
    """40 is vsock: the way from a virtual machine to its host, in no namespace of networks."""
    for family in set(range(64)) - {1, 2, 10, 16}:
        assert verdict(machine, "socket", family, 1, 0) == NO_SUCH_FAMILY, family


def test_a_process_stays_what_it_is(machine):
    for allowed in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF):
        assert verdict(machine, "personality", allowed) == ALLOW
    for refused in (0x0040000, 0x0400000, 0x0004000, 0x0100000, 1):
        assert verdict(machine, "personality", refused) == REFUSED


def test_x86_64_keeps_its_table_of_segments():
    assert verdict("x86_64", 154) == REFUSED


@pytest.mark.parametrize(
    ("machine", "digest"),
    [
        ("x86_64", "d96da064c20aa83b6cee3ecf17b782a091fbcb0356fc975e3c8832fd380b3338"),
        ("aarch64", "6e208077b8c68ec5e82bdc633a7a835f9b765936d831556fc8c6321e4bf7ffc8"),
    ],
)
def test_the_program_is_the_one_that_was_looked_at(machine, digest):
    """Every number in it was compared with the kernel's headers (unistd_64.h, asm-generic)."""
    assert hashlib.sha256(program(machine)).hexdigest() == digest
