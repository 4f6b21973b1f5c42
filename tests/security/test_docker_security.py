"""Attacks on a Docker sandbox that not every kind has to withstand, S3 to S22.

Each probe touches only what this file made.
Probes that would change the host if they succeeded write back exactly what they read. What the
engine's own defaults leave open is not claimed: root inside is root outside without capabilities
(S1, unless the engine maps users), and its filter of system calls is its own (S4).
"""

from pathlib import Path

import pytest

from tests.security.probes import (
    LIMITS,
    no_link_leads_out,
    odd_files_are_refused,
    open_container,
    output,
)
from tests.support.waiting import becomes_true

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def shared():
    """For probes that leave nothing behind, successful or not."""
    with open_container() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox():
    with open_container() as sandbox:
        yield sandbox


def engine_only(sandbox):
    """As on a machine whose engine is elsewhere: its host is not this one."""
    from clawrl_gym.envs.sandbox.docker.host import HostView

    sandbox._container.__dict__["_host"] = HostView()


def test_s3_the_first_process_has_no_capability_either(shared):
    lines = output(shared, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/1/status").split()
    status = dict(zip(lines[::2], lines[1::2], strict=True))
    assert {int(value, 16) for key, value in status.items() if key.startswith("Cap")} == {0}
    assert (status["NoNewPrivs:"], status["Seccomp:"]) == ("1", "2")


def test_s5_files_of_the_host_are_absent(shared, tmp_path):
    planted = tmp_path / "planted-secret"
    planted.write_text("secret")
    for path in (planted, Path(__file__), Path("/var/run/docker.sock"), Path("/run/systemd")):
        assert shared.exec(f"ls '{path}'", 5).exit_code != 0, path
    same = "for f in $(find /sys/fs/cgroup -name pids.max); do cat $f > $f && echo wrote; done"
    assert "wrote" not in output(shared, same)


def test_s9_a_bomb_is_ended_where_only_the_engine_reaches_it(sandbox):
    engine_only(sandbox)
    sandbox.exec("for i in $(seq 100); do sleep 300 & done; sleep 300", 2)
    left = "cat /proc/[0-9]*/comm | grep -c sleep"
    assert becomes_true(lambda: output(sandbox, left).split()[-1] == "0")  # they die one by one


def test_s11_no_file_is_larger_than_the_disk(sandbox):
    assert sandbox.exec("dd if=/dev/zero of=/big bs=1M count=100", 30).exit_code != 0
    assert int(output(sandbox, "stat -c %s /big").split()[0]) <= LIMITS.disk_mb << 20


FORGERIES = [
    "printf 'E 0 0\\0' > /proc/$$/fd/3",
    "printf 'go away\\n' > /proc/1/fd/6; true",
    "set -x; set -v",
]


@pytest.mark.parametrize("command", FORGERIES)
def test_s16_no_command_shifts_the_answers_of_others(sandbox, command):
    sandbox.exec(command, 5)
    sandbox.exec("set +xv", 5)
    for number in range(3):
        answered = sandbox.exec(f"echo {number}", 5)
    assert (answered.output, answered.exit_code) == ("2\n", 0)


def test_s16_stealing_from_the_shells_input_costs_only_the_session(sandbox):
    """A process can read what its own shell was to read; a successor knows nothing of it."""
    sandbox.exec("(setsid cat /proc/$$/fd/0 >/stolen &) ; sleep 0.2", 5)
    for _ in range(3):
        sandbox.exec("echo x", 0.5)
    with sandbox.successor() as fresh:
        assert output(fresh, "echo alive") == "alive\n"


def test_s19_links_never_lead_out_where_only_the_engine_reaches_the_files(sandbox, tmp_path):
    engine_only(sandbox)
    no_link_leads_out(sandbox, tmp_path)


def test_s19_odd_files_are_refused_where_only_the_engine_reaches_them(sandbox):
    engine_only(sandbox)
    odd_files_are_refused(sandbox)


def test_s22_what_an_agent_leaves_cannot_answer_for_a_grader(sandbox):
    """Daemons, replaced programs, loaders and login files end with the agent's sandbox."""
    sandbox.exec(
        "(setsid sh -c 'while :; do echo 1 > /root/reward; sleep 0.01; done' &); "
        "cp /bin/true /bin/grep; cp /bin/true /usr/bin/git; echo /lib/x.so > /etc/ld.so.preload;"
        "ln -sf /bin/true /etc/alternatives/awk; export BASH_ENV=/root/x; grep() { :; }",
        5,
    )
    with sandbox.successor() as fresh:
        fresh.exec("rm -f /root/reward; sleep 0.3", 5)
        assert fresh.exec("test -e /root/reward", 5).exit_code == 1
        assert fresh.exec("echo a | grep b", 5).exit_code == 1
        assert "git version" in output(fresh, "git --version; echo $BASH_ENV")
        assert fresh.exec("test -e /etc/ld.so.preload", 5).exit_code == 1
        assert output(fresh, "awk 'BEGIN { print 42 }'") == "42\n"
