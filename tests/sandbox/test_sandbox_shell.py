"""The command protocol against a real shell, without a sandbox around it."""

import contextlib
import os
import signal
import subprocess
import time

import pytest

from clawrl_gym.envs.sandbox.shell import Capture, CommandEnding, ShellSession
from clawrl_gym.envs.sandbox.transport import LocalTransport

ARRANGE = 'exec 3<&0 4>&1 >/dev/null 2>&1; exec "$BASH" --noprofile --norc -s <&3'


@pytest.fixture
def session():
    """`--norc` for the first shell, too: with a socket as its input and no SHLVL, bash takes itself
    for one that sshd has started, and reads ~/.bashrc."""
    transport = LocalTransport()
    session = ShellSession(transport)
    socket_fd, output_fd = transport.remote
    shell = subprocess.Popen(
        ["/bin/bash", "--norc", "-c", ARRANGE],
        stdin=socket_fd,
        stdout=output_fd,
        start_new_session=True,
    )
    transport.close_remote()
    yield session
    session.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def run(session, command, timeout_s=5.0, limit=1000):
    capture = Capture(limit, bytearray())
    session.send(command)
    ending = session.wait(capture, time.monotonic() + timeout_s)
    return capture.text, session.code, ending


def test_output_and_exit_code_come_back(session):
    assert run(session, "echo out; echo err >&2; false") == (
        "out\nerr\n",
        1,
        CommandEnding.COMPLETED,
    )


def test_state_stays_from_command_to_command(session):
    run(session, "cd /; X='a  b'; f() { echo \"$X\"; }; declare -A M=([k]=v)")
    assert run(session, 'pwd; f; echo "${M[k]}"')[0] == "/\na  b\nv\n"


@pytest.mark.parametrize(
    "command",
    ["echo 'it'\"'\"'s'", "cat <<'EOF'\nit's\nEOF", "printf 'it%ss\\n' \"'\"", "echo it\\'s"],
)
def test_quotes_survive(session, command):
    assert run(session, command)[0] == "it's\n"


def test_a_syntax_error_is_an_answer(session):
    output, code, ending = run(session, "if then ' \"")
    assert (code, ending) == (2, CommandEnding.COMPLETED)
    assert "syntax error" in output or "unexpected" in output
    assert run(session, "echo fine")[0] == "fine\n"


def test_nul_characters_are_left_out_and_odd_text_passes(session):
    assert run(session, "echo a\0b \u00e9 \ud800")[:2] == ("ab \u00e9 ?\n", 0)


@pytest.mark.parametrize("command", ["cat", "read x", "python3", "bash"])
def test_commands_get_no_input(session, command):
    _, _, ending = run(session, command)
    assert ending is CommandEnding.COMPLETED
    assert run(session, "echo next")[:2] == ("next\n", 0)


def test_commands_inherit_neither_the_commands_nor_the_answers(session):
    listed = run(session, "ls -l /proc/self/fd")[0]
    assert "socket:" not in listed


@pytest.mark.parametrize(
    "command", ["break", "continue", "return 3", "exec 1>&-", "exec 3>&1 4>&1"]
)
def test_what_changes_the_flow_does_not_shift_answers(session, command):
    assert run(session, command)[2] is CommandEnding.COMPLETED
    assert run(session, "echo next")[:2] == ("next\n", 0)


def test_a_printed_answer_is_output(session):
    forged = "printf 'E 0123 0\\0'; printf 'D 0\\0'; (exit 7)"
    assert run(session, forged)[1:] == (7, CommandEnding.COMPLETED)
    assert run(session, "echo next")[:2] == ("next\n", 0)


def test_the_token_is_not_known_while_the_command_runs(session):
    run(session, "true")
    seen = run(session, "set; history; cat /proc/$$/cmdline /proc/$$/environ", limit=1 << 20)[0]
    assert session._token not in seen


def test_output_is_cut_and_counted(session):
    capture = Capture(10, bytearray())
    session.send("head -c 3000000 /dev/zero | tr '\\0' x")
    assert session.wait(capture, time.monotonic() + 10) is CommandEnding.COMPLETED
    assert (capture.text, capture.total, capture.truncated) == ("x" * 10, 3_000_000, True)


def test_output_of_just_the_limit_is_not_cut(session):
    capture = Capture(10, bytearray())
    session.send("printf 0123456789")
    session.wait(capture, time.monotonic() + 10)
    assert (capture.text, capture.truncated) == ("0123456789", False)


def test_bytes_that_are_no_text_are_replaced(session):
    assert run(session, "printf 'a\\xff\\xfeb'")[0] == "a\ufffd\ufffdb"


def test_the_deadline_is_kept(session):
    started = time.monotonic()
    assert run(session, "sleep 60", timeout_s=0.2)[2] is CommandEnding.DEADLINE
    assert time.monotonic() - started < 20.0


def test_an_answer_that_comes_late_is_not_taken_for_the_next(session):
    assert run(session, "sleep 0.3; (exit 9)", timeout_s=0.1)[2] is CommandEnding.DEADLINE
    assert run(session, "echo next")[:2] == ("next\n", 0)


def test_a_long_command_passes(session):
    text = "x" * 300_000
    assert run(session, f"v='{text}'; echo ${{#v}}")[0] == "300000\n"


def test_the_end_of_the_shell_is_noticed(session):
    assert run(session, "exit 3")[2] is CommandEnding.DEAD


def test_a_background_flood_does_not_keep_the_answer(session):
    assert run(session, "yes & disown")[2] is CommandEnding.COMPLETED
    assert run(session, "kill $!; echo next", limit=10)[2] is CommandEnding.COMPLETED
