"""The interpreter: state, output, time, and what is said when its state is lost."""

from functools import partial

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import ExecResult, SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.toolcall.toolset import ToolFailure
from clawrl_gym.envs.toolcall.toolsets.interpreter import RENEWED, Interpreter
from clawrl_gym.envs.toolcall.toolsets.python import Python
from tests.support.terminal_fakes import MemorySandbox

LIMITS = {"memory_mb": 256, "disk_mb": 32, "pids": 32, "output_bytes": 2000}
NEW = "(this is a new interpreter: earlier variables are lost)"


@pytest.fixture
def python():
    made = Interpreter(partial(Sandboxes.of(LIMITS).open, SandboxSpec()))
    yield made
    made.close()


@pytest.mark.sandbox
def test_state_is_kept_and_the_last_value_is_shown(python):
    assert python.run("x = 6\nprint('set')", 10) == "set"
    assert python.run("print('value')\nx * 7", 10) == "value\n42"
    assert python.run("x", 10) == "6"


@pytest.mark.sandbox
def test_output_before_an_exception_is_kept(python):
    """Section 4.5 of the reference's defects: what was printed before an exception was lost."""
    assert python.run("print('before')\n1 / 0", 10) == (
        'before\nTraceback (most recent call last):\n  File "<code 1>", line 2, in <module>\n'
        "    1 / 0\n    ~~^~~\nZeroDivisionError: division by zero"
    )


@pytest.mark.sandbox
def test_a_traceback_shows_the_code_and_only_its_end(python):
    said = python.run("def f(n):\n    return f(n + 1)\nf(0)", 10)
    assert said.startswith("Traceback (most recent call last):")
    assert said.endswith("RecursionError: maximum recursion depth exceeded")
    assert len(said.splitlines()) < 20
    said = python.run("x = = 1", 10)
    assert said.splitlines()[0] == "Traceback (most recent call last):"
    assert said.splitlines()[-1] == "SyntaxError: invalid syntax"


@pytest.mark.sandbox
def test_code_that_takes_too_long_is_interrupted_and_its_variables_stay(python):
    python.run("x = 5", 10)
    late = python.run("import time\nprint('begun')\ntime.sleep(60)", 0.2)
    assert late == "begun\n(stopped: it took too long)"
    assert python.run("while True: pass", 0.2) == "(stopped: it took too long)"
    assert python.run("x", 10) == "5"


@pytest.mark.sandbox
def test_code_that_does_not_listen_is_killed_and_the_loss_is_told(python):
    python.run("x = 5", 10)
    deaf = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass"
    assert python.run(deaf, 0.2) == (
        "(stopped: it took too long)\n(the interpreter was stopped: its variables are lost)"
    )
    assert python.run("'x' in globals()", 10) == f"{NEW}\nFalse"
    assert python.run("1", 10) == "1"


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "code", ["import os\nos._exit(0)", "import os\nos.kill(os.getppid(), 9)", "b'x' * 2**29"]
)
def test_an_interpreter_that_ends_is_started_again(python, code):
    assert python.run(code, 10).endswith(
        "(stopped: it ended by itself, perhaps out of memory: its variables are lost)"
    )
    assert python.run("'back'", 10) == f"{NEW}\n'back'"


@pytest.mark.sandbox
def test_output_has_a_limit(python):
    said = python.run("print('x' * 100_000)", 10)
    assert said.endswith("x\n(output cut)")
    assert len(said) < 2100
    assert python.run("1", 10) == "1"


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("input()", "EOFError: EOF when reading a line"),
        ("import sys\nsys.exit('bye')", "SystemExit: bye"),
        ("exit()", "(no output)"),
        ("import sys\nsys.stdout.close()\nsys.stderr.close()", "(no output)"),
        ("import os\nos.close(1)\nos.close(2)", "(no output)"),
        ("import os\nif os.fork():\n    os.wait()\n    print('parent')", "parent"),
        ("print('\\ud800')", "?"),
        ("'a\\0b'", "'a\\x00b'"),
        ('print("\'; echo $HOME")', "'; echo $HOME"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import sys\nsys.modules.clear()", "(no output)"),
        ("print('a\\n' * 3)", "a\na\na"),
    ],
)
def test_whatever_code_does_the_next_call_runs(python, code, said):
    assert python.run(code, 10).endswith(said)
    assert python.run("print(6 * 7)", 10) == "42"


@pytest.mark.sandbox
def test_long_code_runs(python):
    assert python.run("x = 0\n" + "x += 1\n" * 10_000 + "x", 20) == "10000"


@pytest.mark.sandbox
def test_answers_that_were_forged_are_not_taken_for_a_later_call(python):
    forge = "import os\nfor fd in range(3, 32):\n    try: os.write(fd, b'ok\\nok x\\n' * 9)\n"
    python.run(forge + "    except OSError: pass", 10)
    python.run("x = 1", 10)
    assert python.run("print(x)", 10) == "1"


@pytest.mark.sandbox
def test_code_that_breaks_its_sandbox_gets_another_one(python):
    """The failure of a sandbox is retried: code must not be able to ask for one."""
    remove = "import os, sys\nos.remove(os.path.realpath(sys.executable))\nos._exit(0)"
    assert python.run("x = 1", 10) == "(no output)"
    assert "ended by itself" in python.run(remove, 10)
    assert python.run("6 * 7", 10) == f"{RENEWED}\n42"
    assert python.run("6 * 7", 10) == "42"


@pytest.mark.sandbox
def test_an_interpreter_that_is_not_there_is_told():
    nowhere = SandboxSpec(env={"PATH": "/nowhere"})
    python = Interpreter(partial(Sandboxes.of(LIMITS).open, nowhere))
    try:
        with pytest.raises(SandboxError, match=r"\(exit code 127\)"):
            python.run("1", 1)
    finally:
        python.close()


@pytest.mark.docker
def test_an_interpreter_runs_in_a_container_too():
    docker = Sandboxes.of({**LIMITS, "type": "docker", "pids": 64})
    python = Interpreter(partial(docker.open, SandboxSpec()))
    try:
        assert python.run("x = 6\nprint('set')", 30) == "set"
        assert python.run("import time\ntime.sleep(60)", 0.2) == "(stopped: it took too long)"
        assert python.run("x * 7", 30) == "42"
        assert python.run("import os\nos._exit(0)", 30).startswith("(stopped: it ended by itself")
        assert python.run("'back'", 30) == f"{NEW}\n'back'"
    finally:
        python.close()


class Broken(MemorySandbox):
    """A sandbox without a Python."""

    def exec(self, command, timeout_s):
        return ExecResult("", 127)


def test_a_sandbox_without_python_is_an_error_of_the_machine():
    broken = Broken()
    python = Interpreter(lambda: broken)
    with pytest.raises(SandboxError, match="must have python3"):
        python.run("1", 1)
    python.close()
    python.close()
    assert broken.closed


def test_no_code_is_a_failure_that_needs_no_sandbox():
    toolset = Python(Interpreter(lambda: pytest.fail("opened")))
    with pytest.raises(ToolFailure, match="no code"):
        toolset.call("python", {"code": " \n"}, 1)
    assert toolset.state() is None
    toolset.close()
