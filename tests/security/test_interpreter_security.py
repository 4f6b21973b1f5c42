"""The interpreter's sandbox against code that wants out, and for code that only wants to run.

S15, S16 and S26: no word of a program is forbidden, what it may do is. A probe only reads, or
writes back what it read, or writes files of its own name; load stays within the sandbox's limits.
"""

import os
import secrets
import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest

from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.toolcall.toolsets.interpreter import Interpreter
from tests.security.probes import sleepers
from tests.support.waiting import becomes_true

pytestmark = pytest.mark.sandbox

LIMITS = {"memory_mb": 256, "disk_mb": 32, "pids": 32}
FOLDER = Path(__file__).parent / "interpreter"
PREAMBLE = """\
import contextlib, ctypes, glob, os, signal, socket, struct, subprocess, time

def escaped(what):
    print("ESCA" + "PED", what)

def tried():
    print("TRI" + "ED")

def blocked(attempt):
    try:
        attempt()
    except OSError as error:
        print("no:", type(error).__name__)
    tried()

def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result >= 0:
        escaped((number, result))
    tried()
"""


def programs(name):
    """Programs by name: `### NAME`, then code."""
    blocks = (FOLDER / name).read_text().split("### ")[1:]
    return {title.strip(): code for title, _, code in (b.partition("\n") for b in blocks)}


ESCAPES, FATAL = programs("escapes.txt"), programs("fatal.txt")
BENIGN = programs("benign.txt")


def interpreter():
    return Interpreter(partial(Sandboxes.of(LIMITS).open, SandboxSpec()))


@pytest.fixture
def fresh():
    made = interpreter()
    yield made
    made.close()


@pytest.fixture(scope="module")
def lasting():
    made = interpreter()
    yield made
    made.close()


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Things of the host that a program looks for; the secret itself it is not told."""
    secret = secrets.token_hex(16)
    (tmp_path / "secret").write_text(secret)
    monkeypatch.setenv("CLAWRL_SECRET", secret)
    mark = f"probe-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0" + mark)
        unix.listen()
        yield {
            "SECRET": secret,
            "FILE": str(tmp_path / "secret"),
            "PORT": server.getsockname()[1],
            "HOST": socket.gethostname(),
            "ABSTRACT": mark,
            "MARK": mark,
            "PID": os.getpid(),
            "SLEEP": str(10**6 + secrets.randbelow(10**6)),
        }


def attempt(interpreter, planted, code, timeout_s=10.0):
    told = "".join(f"{k} = {v!r}\n" for k, v in planted.items() if k != "SECRET")
    assert interpreter.run(PREAMBLE + told, 20) == "(no output)"
    return interpreter.run(code, timeout_s)


def test_the_corpora_are_as_large_as_they_should_be():
    assert len(ESCAPES) + len(FATAL) >= 40
    assert len(BENIGN) >= 100


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_is_tried_and_fails(name, fresh, planted):
    said = attempt(fresh, planted, ESCAPES[name])
    assert "TRIED" in said, said
    assert "ESCAPED" not in said, said
    assert planted["SECRET"] not in said
    for folder in ("/usr/lib", "/dev/shm", "/tmp"):
        assert not Path(folder, planted["MARK"]).exists()


@pytest.mark.parametrize("name", FATAL)
def test_what_a_program_does_to_itself_hurts_nobody_else(name, fresh, planted):
    said = attempt(fresh, planted, FATAL[name], timeout_s=0.5)
    assert "ESCAPED" not in said, said
    assert subprocess.run(["true"], timeout=60, check=False).returncode == 0
    assert fresh.run("6 * 7", 10).endswith("42")
    fresh.close()
    assert becomes_true(lambda: not sleepers(planted["SLEEP"]))


def test_a_daemon_really_runs_until_the_interpreter_is_closed(fresh, planted):
    attempt(fresh, planted, FATAL["a daemon that outlives its call"])
    assert becomes_true(lambda: sleepers(planted["SLEEP"]))
    fresh.close()
    assert becomes_true(lambda: not sleepers(planted["SLEEP"]))


def test_programs_do_not_see_each_other(planted):
    one, other = interpreter(), interpreter()
    try:
        attempt(one, planted, "open('/tmp/note', 'w').write('x')")
        code = "print(os.path.exists('/tmp/note'), len(glob.glob('/proc/[0-9]*')))"
        said = attempt(other, planted, code)
        exists, processes = said.split()
        assert exists == "False"
        assert int(processes) < 8
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("name", BENIGN)
def test_an_honest_program_runs(name, lasting):
    """S15: a filter of words had rejected `from math import sqrt` and every `isinstance(`."""
    code, *expected = BENIGN[name].split("# => ")
    assert expected, f"{name} does not say what it gives"
    assert lasting.run(code, 20) == "".join(expected).strip()
