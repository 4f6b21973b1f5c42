"""The launcher process as its owner sees it."""

import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.launcher_client import launcher_client
from clawrl_gym.envs.sandbox.processes import children
from tests.support.waiting import becomes_true

pytestmark = pytest.mark.sandbox


def run_owner(code, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def gone(pid):
    return becomes_true(lambda: not Path(f"/proc/{pid}").exists())


def test_one_launcher_serves_a_process():
    assert launcher_client() is launcher_client()
    with open_sandbox(Limits()), open_sandbox(Limits()):
        assert launcher_client().alive


def test_the_launcher_is_small_and_knows_nothing_of_its_owner():
    pid = launcher_client().launcher_pid
    status = Path(f"/proc/{pid}/status").read_text()
    assert "Threads:\t1\n" in status
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "numpy" not in maps
    assert "site-packages" not in maps


def test_a_launcher_that_was_killed_is_an_error_and_then_replaced():
    code = """
        import os, signal
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        from clawrl_gym.envs.sandbox.launcher_client import launcher_client
        from clawrl_gym.core.errors import SandboxError
        sandbox = open_sandbox(Limits())
        os.kill(launcher_client().launcher_pid, signal.SIGKILL)
        try:
            for _ in range(100):
                sandbox.exec("sleep 0.05", 5)
        except SandboxError as error:
            print(error)
        sandbox.close()
        with open_sandbox(Limits()) as second:
            print(second.exec("echo second", 5).output)
    """
    done = run_owner(code)
    assert "launcher" in done.stdout, done.stderr
    assert "second" in done.stdout, done.stderr


def test_the_launcher_ends_with_its_owner():
    code = """
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        from clawrl_gym.envs.sandbox.launcher_client import launcher_client
        kept = open_sandbox(Limits())
        print(launcher_client().launcher_pid)
    """
    done = run_owner(code)
    assert gone(int(done.stdout)), done.stderr
    assert done.returncode == 0


def test_the_launcher_ends_with_an_owner_that_was_killed():
    code = """
        import os, signal
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        from clawrl_gym.envs.sandbox.launcher_client import launcher_client
        kept = open_sandbox(Limits())
        print(launcher_client().launcher_pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run_owner(code)
    assert done.returncode == -signal.SIGKILL
    assert gone(int(done.stdout))


def test_a_forked_child_gets_a_launcher_of_its_own():
    code = """
        import os, sys
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        from clawrl_gym.envs.sandbox.launcher_client import launcher_client
        parents = open_sandbox(Limits())
        child = os.fork()
        if child == 0:
            with open_sandbox(Limits()) as own:
                print(own.exec("echo child", 5).output, launcher_client().owner_pid == os.getpid())
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        print(parents.exec("echo parent", 5).output)
        parents.close()
    """
    done = run_owner(code)
    assert done.stdout.split() == ["child", "True", "parent"], done.stderr


def test_an_interrupt_at_the_keyboard_does_not_reach_the_launcher():
    pid = launcher_client().launcher_pid
    assert os.getsid(pid) != os.getsid(0)
    with open_sandbox(Limits()) as sandbox:
        os.kill(pid, signal.SIGINT)
        assert sandbox.exec("echo alive", 5).output == "alive\n"


def test_a_launcher_that_cannot_start_says_why(tmp_path):
    code = """
        import sys
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        sys.executable = "/bin/false"
        open_sandbox(Limits())
    """
    done = run_owner(code)
    assert "SandboxError: the sandbox launcher did not start" in done.stderr


def test_without_bubblewrap_the_cure_is_named(tmp_path):
    from clawrl_gym.envs.sandbox.isolation import cure_for

    assert cure_for("FileNotFoundError: bwrap not found") == "apt-get install bubblewrap"
    with pytest.raises(SandboxError, match="doctor"):
        open_sandbox(Limits(), rootfs=str(tmp_path / "none"))


def descriptors(pid="self"):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_sandbox_costs_its_owner_two_descriptors_and_the_launcher_one():
    launcher = launcher_client().launcher_pid
    with open_sandbox(Limits()) as first:
        first.write("/root/a", b"a")
        own, other = descriptors(), descriptors(launcher)
        more = [open_sandbox(Limits()) for _ in range(3)]
        for sandbox in more:
            sandbox.write("/root/a", b"a")
        assert descriptors() - own == 6
        assert becomes_true(lambda: descriptors(launcher) - other <= 3)
        for sandbox in more:
            sandbox.close()
        assert descriptors() == own


def test_a_sandbox_that_nobody_holds_any_more_ends():
    sandbox = open_sandbox(Limits())
    mine = children(launcher_client().launcher_pid)[-1]
    del sandbox
    assert gone(mine)


def test_files_are_read_after_the_processes_were_killed():
    with open_sandbox(Limits()) as sandbox:
        sandbox.write("/root/kept", b"kept")
        monitor = children(launcher_client().launcher_pid)[-1]
        os.kill(monitor, signal.SIGKILL)
        assert gone(monitor)
        assert sandbox.read("/root/kept", 100) == b"kept"
        with pytest.raises(FileNotFoundError):
            sandbox.read("/root/other", 100)
        with sandbox.successor() as heir:
            assert heir.exec("cat /root/kept", 5).output == "kept"


def test_a_stopped_launcher_is_waited_for_and_loses_no_answer():
    pid = launcher_client().launcher_pid
    with open_sandbox(Limits()) as sandbox:
        os.kill(pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(8) as pool:
                writes = [pool.submit(sandbox.write, f"/root/{i}", b"x") for i in range(8)]
                os.kill(pid, signal.SIGCONT)
                for write in writes:
                    write.result()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert sandbox.exec("ls /root", 5).output.split() == [str(i) for i in range(8)]


def test_more_starts_than_descriptors_are_refused_and_those_alive_go_on():
    code = """
        import resource
        from clawrl_gym.core.errors import SandboxError
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        from clawrl_gym.envs.sandbox.launcher_client import launcher_client
        alive = [open_sandbox(Limits())]
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        try:
            while len(alive) < 30:
                alive.append(open_sandbox(Limits()))
        except SandboxError as error:
            print(len(alive), error)
        print({sandbox.exec("echo alive", 5).output for sandbox in alive})
        alive.pop().close()
        alive.pop().close()
        alive.append(open_sandbox(Limits()))
        print("again")
    """
    done = run_owner(code)
    assert "raise `ulimit -n`" in done.stdout, done.stderr
    assert "{'alive\\n'}\nagain" in done.stdout, done.stderr


def test_closing_while_others_start_ends_them_all_with_an_error():
    code = """
        import threading
        from clawrl_gym.core.errors import SandboxError
        from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
        from clawrl_gym.envs.sandbox.interface import Limits
        from clawrl_gym.envs.sandbox.launcher_client import launcher_client
        first, ends, opened = launcher_client(), [], []
        def start():
            try:
                while launcher_client() is first:
                    opened.append(open_sandbox(Limits()))
            except SandboxError as error:
                ends.append(str(error))
        threads = [threading.Thread(target=start) for _ in range(8)]
        for thread in threads:
            thread.start()
        while len(opened) < 10:
            pass
        first.close()
        for thread in threads:
            thread.join(20)
        print(sum(thread.is_alive() for thread in threads), first.launcher_pid)
        for sandbox in opened:
            sandbox.close()
        with open_sandbox(Limits()) as sandbox:
            print(sandbox.exec("echo again", 5).output)
    """
    done = run_owner(code)
    alive, pid, again = done.stdout.split()
    assert (alive, again) == ("0", "again"), done.stderr
    assert gone(int(pid))
    assert "Traceback" not in done.stderr
