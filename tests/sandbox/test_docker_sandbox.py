"""The Docker sandbox as environments use it: commands, files, deadlines, successors, the end."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker.engine import engine
from clawrl_gym.envs.sandbox.docker.host import HostView
from clawrl_gym.envs.sandbox.docker.images import BASE_IMAGE, build_image
from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox
from clawrl_gym.envs.sandbox.interface import ExecResult, Limits, Sandbox, SandboxSpec
from tests.support.docker_engine import own_containers

pytestmark = pytest.mark.docker

LIMITS = Limits(output_bytes=1000)


def opened(limits=LIMITS, place=None, **options):
    return open_docker_sandbox(limits, place or SandboxSpec(), image=BASE_IMAGE, **options)


@pytest.fixture
def sandbox():
    with opened() as sandbox:
        yield sandbox


def test_it_is_a_sandbox(sandbox):
    fits: Sandbox = sandbox
    assert fits.exec("echo hi", 5) == ExecResult("hi\n", 0)
    result = sandbox.exec("echo out; nosuchcommand; f() { return 42; }; f", 5)
    assert result.exit_code == 42
    assert "nosuchcommand: command not found" in result.output
    sandbox.exec("mkdir -p /w/x; cd /w/x; A=1; export B=2; f() { echo f$1; }; umask 077", 5)
    assert sandbox.exec("pwd; echo $A$B; f 3; umask", 5).output == "/w/x\n12\nf3\n0077\n"


def test_a_command_gets_no_input_and_none_of_the_shells_descriptors(sandbox):
    assert sandbox.exec("cat; read x; python3", 5).exit_code == 0
    listed = sandbox.exec("python3 -c 'import os; print(sorted(os.listdir(\"/proc/self/fd\")))'", 5)
    assert listed.output == "['0', '1', '2', '3']\n"  # the last is the listing's own


def test_output_comes_whole_before_its_answer_and_is_cut_at_the_limit(sandbox):
    for size in (1, 999, 1000):
        assert sandbox.exec(f"head -c {size} /dev/zero | tr '\\0' x", 5).output == "x" * size
    result = sandbox.exec("head -c 5000000 /dev/zero | tr '\\0' y", 20)
    assert (result.output, result.truncated, result.exit_code) == ("y" * 1000, True, 0)
    assert sandbox.exec("echo next", 5).output == "next\n"


def test_a_deadline_kills_in_the_container_and_the_session_goes_on(sandbox):
    sandbox.exec("cd /tmp; X=7", 5)
    result = sandbox.exec("echo begun; (setsid sleep 300 &); sleep 301", 0.5)
    assert (result.timed_out, result.exit_code, result.shell_restarted) == (True, None, False)
    assert result.output.startswith("begun\n")
    left = sandbox.exec("pwd; echo $X; cat /proc/[0-9]*/comm | grep -c sleep", 5)
    assert left.output == "/tmp\n7\n0\n"


def test_a_loop_of_the_shell_itself_is_ended_with_the_shell(sandbox):
    result = sandbox.exec("while :; do :; done", 0.3)
    assert (result.timed_out, result.shell_restarted) == (True, True)
    assert sandbox.exec("echo on", 5) == ExecResult("on\n", 0)


def test_deadlines_hold_where_the_engine_is_on_another_machine(sandbox, elsewhere):
    sandbox.exec("X=7", 5)
    assert sandbox.exec("(setsid sleep 300 &); sleep 301", 0.5).timed_out
    left = sandbox.exec("echo $X; cat /proc/[0-9]*/comm | grep -c sleep", 5)
    assert left.output == "7\n0\n"


@pytest.mark.parametrize("command", ["exit 3", "(kill -9 -1)", "kill -9 $$", "exec true"])
def test_a_shell_that_ends_is_replaced_and_that_is_said(sandbox, command):
    sandbox.exec("cd /tmp; X=1; echo kept > /root/kept", 5)
    result = sandbox.exec(command, 5)
    assert (result.exit_code, result.shell_restarted) == (None, True)
    assert sandbox.exec("echo $X; cat /root/kept", 5) == ExecResult("\nkept\n", 0)


def test_killing_everything_costs_a_shell_at_most(sandbox):
    """`kill -9 -1` of the shell spares the shell and takes what feeds it."""
    sandbox.exec("kill -9 -1", 5)
    results = [sandbox.exec("echo on", 5) for _ in range(2)]
    assert results[1] == ExecResult("on\n", 0)
    sandbox.exec("kill -9 1; kill 1; kill -INT 1", 5)
    assert sandbox.exec("echo on", 5).output == "on\n"


@pytest.fixture
def elsewhere(sandbox):
    """The engine's machine seen as another one: nothing is reached past the engine."""
    sandbox._container.__dict__["_host"] = HostView()


@pytest.fixture(params=["here", "elsewhere"])
def where(request):
    if request.param == "elsewhere":
        request.getfixturevalue("elsewhere")


def test_files_go_in_and_come_out(sandbox, where):
    sandbox.write("/srv/data/in.bin", bytes(range(256)), 0o600)
    assert sandbox.exec("cp /srv/data/in.bin /out.bin; chmod 640 /out.bin", 5).exit_code == 0
    assert sandbox.read("/out.bin", 256) == bytes(range(256))
    assert (sandbox.mode("/srv/data/in.bin"), sandbox.mode("/out.bin")) == (0o600, 0o640)
    assert sandbox.exec("stat -c %U:%a /srv/data /srv", 5).output == "root:755\nroot:755\n"
    sandbox.write("/srv/data/in.bin", b"")
    assert sandbox.read("/srv/data/in.bin", 0) == b""


def test_files_that_cannot_be_read_or_written_are_refused_at_once(sandbox, where):
    sandbox.exec("mkfifo /pipe; truncate -s 1000 /long; ln -s /x /y; ln -s /y /x; mkdir /d", 5)
    sandbox.exec("ln -s ../../../../etc/debian_version /link; ln -s nowhere /dangling", 5)
    for read in (lambda path: sandbox.read(path, 10), sandbox.mode):
        with pytest.raises(FileNotFoundError):
            read("/none")
        with pytest.raises((SandboxError, FileNotFoundError)):
            read("/x")
    for path in ("/pipe", "/dev/null", "/d", "/long"):
        with pytest.raises(SandboxError):
            sandbox.read(path, 10)
    for path in ("/pipe", "/dev/null", "/d", "/../d/x", "/", "/long/x"):
        with pytest.raises(SandboxError):
            sandbox.write(path, b"x")
    assert sandbox.read("/link", 100).startswith(b"12.")


def test_a_successor_has_the_files_and_nothing_else(sandbox, where):
    sandbox.exec("mkdir -p /made/deep; cd /made; echo one > a; ln a deep/b; ln -s a c; X=1", 5)
    sandbox.exec(
        "(setsid sleep 300 &); rm -r /home /etc/issue; chmod 700 /opt; echo x >> /etc/passwd", 5
    )
    sandbox.exec("rm -r /srv; mkdir /srv; touch /srv/new; echo y > /usr/local/bin/tool", 5)
    with sandbox.successor() as fresh:
        told = fresh.exec("pwd; echo -$X; cat /made/deep/b /made/c; stat -c %h /made/a", 5)
        assert told.output == "/root\n-\none\none\n2\n"
        told = fresh.exec(
            "ls -d /home /etc/issue; ls /srv; stat -c %a /opt; tail -1 /etc/passwd", 5
        )
        assert told.output.splitlines()[-3:] == ["new", "700", "x"]
        assert told.output.count("No such file") == 2
        assert fresh.exec("cat /usr/local/bin/tool; cat /proc/[0-9]*/comm", 5).output.split() == [
            *("y", "bash", "bash", "bash")
        ]
    with pytest.raises(SandboxError, match="closed"):
        sandbox.exec("true", 1)


def test_a_successor_has_the_images_own_programs_and_loaders(sandbox, where):
    hijack = (
        "cp /bin/true /usr/bin/python3; echo evil > /usr/lib/evil; echo /evil > /etc/ld.so.preload;"
        " rm /bin/ls; mkdir -p /etc/profile.d; echo evil > /etc/profile.d/evil.sh"
    )
    assert sandbox.exec(hijack, 5).exit_code == 0
    with sandbox.successor() as fresh:
        told = fresh.exec("python3 -c 'print(6 * 7)'; ls /usr/lib/evil /etc/ld.so.preload", 5)
        assert told.output.startswith("42\n")
        assert told.output.count("No such file") == 2
        assert fresh.exec("test -e /etc/profile.d/evil.sh", 5).exit_code == 1


def test_what_an_image_keeps_in_volumes_is_reached_and_carried(tmp_path):
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nVOLUME /data\n")
    image = build_image(tmp_path)
    with open_docker_sandbox(LIMITS, SandboxSpec(), image=image) as sandbox:
        sandbox.write("/data/in", b"in")
        assert sandbox.exec("cat /data/in; echo out > /data/out", 5).output == "in"
        assert sandbox.read("/data/out", 10) == b"out\n"
        with sandbox.successor() as fresh:
            assert fresh.exec("cat /data/in /data/out", 5).output == "inout\n"
    engine().images.remove(image, force=True)


def test_a_destroyed_system_still_has_a_successor(sandbox):
    sandbox.exec("echo kept > /root/kept; rm -rf --no-preserve-root /usr /bin /lib*", 20)
    with sandbox.successor() as fresh:
        assert fresh.exec("cat /root/kept", 5) == ExecResult("kept\n", 0)


def test_place_says_directory_environment_and_user():
    place = SandboxSpec(workdir="/new/dir", env={"A": "x 'y'\n$z"}, user="nobody")
    with opened(place=place) as sandbox:
        told = sandbox.exec('pwd; echo "$A"; id -un; touch /etc/mine', 5)
        assert told.output.startswith("/new/dir\nx 'y'\n$z\nnobody\n")
        assert told.exit_code == 1
        sandbox.write("/tmp/mine", b"x", 0o600)
        assert sandbox.exec("cat /tmp/mine", 5).output == "x"


def test_a_container_that_is_killed_from_outside_is_an_error_that_says_so(sandbox):
    """S16: what an agent sees is never the empty output of a dead sandbox."""
    engine().api.kill(sandbox._container.id)
    with pytest.raises(SandboxError, match="ended from outside"):
        sandbox.exec("sleep 30", 60)
    sandbox.close()


def test_the_end_is_the_end_however_often(sandbox):
    sandbox.close()
    sandbox.close()
    assert sandbox._container.id not in own_containers()
    for use in (
        lambda: sandbox.exec("true", 1),
        lambda: sandbox.write("/x", b""),
        lambda: sandbox.read("/x", 1),
        sandbox.successor,
    ):
        with pytest.raises(SandboxError, match="closed"):
            use()


@pytest.mark.parametrize("limits", [Limits(disk_mb=0), Limits(pids=-1), Limits(cpus=0.0)])
def test_limits_that_limit_nothing_are_refused(limits):
    with pytest.raises(SandboxError, match="expected each above 0"):
        opened(limits)


FAILING_OPENS = [
    (SandboxSpec(user="no-such-user"), BASE_IMAGE, "no-such-user"),
    (SandboxSpec(workdir="/etc/passwd"), BASE_IMAGE, "not a directory"),
    (SandboxSpec(env={"A": "x\0y"}), BASE_IMAGE, "null byte"),
    (SandboxSpec(workdir="relative"), BASE_IMAGE, "absolute"),
    (SandboxSpec(), "clawrl/no-such-image:7", "clawrl/no-such-image:7"),
    (SandboxSpec(), "Not A Name", "Not A Name"),
    (SandboxSpec(env={"A": "x" * 3_000_000}), BASE_IMAGE, "could not start"),
]


@pytest.mark.parametrize(("place", "image", "said"), FAILING_OPENS)
def test_s17_whatever_a_failing_open_does_nothing_is_left(place, image, said):
    """S17: the reference leaks the container whose start or first command failed."""
    before = own_containers()
    with pytest.raises(SandboxError, match=said):
        open_docker_sandbox(LIMITS, place, image=image)
    assert own_containers() <= before


def test_many_threads_open_use_and_close_at_a_time():
    meeting = threading.Barrier(4)

    def one(number):
        with opened() as sandbox:
            meeting.wait(60)
            sandbox.exec(f"X={number}; echo {number} > /root/f", 20)
            return sandbox.exec("cat /root/f; echo $X", 20).output

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(4)))
    assert results == [f"{number}\n{number}\n" for number in range(4)]


def test_too_much_on_the_disk_is_killed_and_said():
    write = "for i in $(seq 40); do head -c 4000000 /dev/zero > /root/f$i; sleep 0.1; done"
    with opened(Limits(disk_mb=16)) as sandbox:
        result = sandbox.exec(write, 60)
        assert "disk full" in result.output
        sandbox.exec("rm /root/f*; sync", 10)
        time.sleep(1)
        sandbox.exec("true", 5)
        assert sandbox.exec("echo fine", 5) == ExecResult("fine\n", 0)
        sandbox.exec("head -c 40000000 /dev/zero > /root/one", 10)
        time.sleep(1)  # with its folder it may be more than the limit, which is seen at some time
        sandbox.exec("true", 5)
        one = sandbox.exec("stat -c %s /root/one", 5)
        assert 0 < int(one.output) <= 16 << 20
