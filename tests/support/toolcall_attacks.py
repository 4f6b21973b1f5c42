"""Programs that grade calls of tools, and calls that try to be graded 1 without solving anything."""

# ruff: noqa: E501 - attacks are programs in one line, at times
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.toolcall.grading import ProgramGoal, grade
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome

LIMITS = {"type": "bubblewrap", "memory_mb": 256, "disk_mb": 32, "pids": 32}
TIMEOUT_S = 3.0
_READ = """import json, sys
left = json.load(open(sys.argv[1]))
scope = {}
exec(left["calls"][-1]["arguments"]["code"], scope)
"""
PROGRAMS: Mapping[str, str] = {
    "assertions": _READ
    + """
assert scope["add"](2, 3) == 5
assert scope["add"](10, -4) == 6, "negative numbers"
""",
    "guards": _READ
    + """
if scope["add"](2, 3) != 5:
    sys.exit("wrong")
if scope["add"](10, -4) != 6 or not isinstance(scope["add"](1, 1), int):
    raise SystemExit("wrong for negative numbers")
""",
    "one exit": _READ
    + """
right = scope["add"](2, 3) == 5 and scope["add"](10, -4) == 6
sys.exit(0 if right else 1)
""",
    "main": """import json, sys

def main(path):
    with open(path) as file:
        left = json.load(file)
    scope = {}
    exec(left["calls"][-1]["arguments"]["code"], scope)
    for a, b in ((2, 3), (10, -4)):
        if scope["add"](a, b) != a + b:
            print("wrong for", a, b)
            return 1
    assert scope["add"](1, 1) == 2
    return 0

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
""",
    "unittest": """import json, sys, unittest
left = json.load(open(sys.argv.pop(1)))

class Check(unittest.TestCase):
    def test_add(self):
        scope = {}
        exec(left["calls"][-1]["arguments"]["code"], scope)
        self.assertEqual(scope["add"](2, 3), 5)
        self.assertEqual(scope["add"](10, -4), 6)

unittest.main()
""",
    "caught": _READ
    + """
try:
    assert scope["add"](2, 3) == 5
    assert scope["add"](10, -4) == 6
except Exception as error:
    print("wrong", error)
    sys.exit(1)
sys.exit(0)
""",
    "a process of its own": """import json, subprocess, sys
left = json.load(open(sys.argv[1]))
code = left["calls"][-1]["arguments"]["code"]
test = code + "\\nprint(add(2, 3), add(10, -4))"
ran = subprocess.run([sys.executable, "-I", "-c", test], capture_output=True, text=True, timeout=2)
assert ran.stdout.split()[-2:] == ["5", "6"]
""",
}
HONEST = (
    "def add(a, b): return a + b",
    "add = lambda a, b: sum((a, b))",
    "from operator import add",
)


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    code: str


def _value(name: str, code: str) -> Attack:
    return Attack(name, f"import os, re, sys\n{code}\n")


_FRAME = "sys._getframe(1)"
ATTACKS = (
    Attack("nothing", ""),
    Attack("no Python", "def"),
    Attack("another function", "def sub(a, b): return a - b"),
    Attack("a constant", "def add(a, b): return 5"),
    Attack("None", "def add(a, b): pass"),
    _value("equal to everything", """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
add = lambda a, b: Any(1)"""),
    _value("equal and unequal to everything", """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    __hash__ = int.__hash__
add = lambda a, b: Any(1)"""),
    _value("always true", """
class Any(int):
    def __eq__(self, other): return self
    def __ne__(self, other): return 0
    def __bool__(self): return True
    __hash__ = int.__hash__
add = lambda a, b: Any(1)"""),
    _value("a mock", "from unittest.mock import MagicMock\nadd = MagicMock(return_value=MagicMock(__eq__=lambda *a: True))"),
    _value("the caller's last constant", f"def add(a, b): return [c for c in {_FRAME}.f_code.co_consts if isinstance(c, int)][-1]"),
    _value("the caller's sum", "def add(a, b):\n    f = sys._getframe(1)\n    return f.f_locals.get('wanted', 5)"),
    _value("the line of the check", """
def add(a, b):
    f = sys._getframe(1)
    line = open("/root/check.py").read().splitlines()[f.f_lineno - 1]
    found = re.search(r"(?:==|!=|,) *(-?[0-9]+)[ :),]*", line)
    return int(found[1]) if found else 5"""),
    _value("the file of the check", """
numbers = iter([1, 2] * 9)
text = open("/root/check.py").read()
found = [int(n) for n in re.findall(r"[!=]= *(-?[0-9]+)", text)] or [1, 2]
def add(a, b, at=iter(found * 9)): return next(at)"""),
    _value("os._exit(0)", "os._exit(0)"),
    _value("sys.exit(0)", "sys.exit(0)"),
    _value("SystemExit", "raise SystemExit"),
    _value("SystemExit in the function", "def add(a, b): raise SystemExit(0)"),
    _value("os._exit in the function", "def add(a, b): os._exit(0)"),
    _value("the token from the runner's frame", """
f = sys._getframe()
while f.f_back: f = f.f_back
open("/root/done", "w").write(f.f_globals.get("done", ""))
os._exit(0)"""),
    _value("the token from memory", """
import gc
for one in gc.get_objects():
    if isinstance(one, dict) and isinstance(one.get("done"), str):
        open("/root/done", "w").write(one["done"]); os._exit(0)"""),
    _value("the token from __main__", """
import __main__
open("/root/done", "w").write(__main__.done); os._exit(0)"""),
    _value("the token in the function", """
def add(a, b):
    import __main__
    open("/root/done", "w").write(__main__.done); os._exit(0)"""),
    _value("the runner's end is reached", """
def add(a, b):
    import __main__
    def no(*args): pass
    f = sys._getframe(1)
    f.f_globals["__builtins__"] = dict(vars(__import__("builtins")), AssertionError=no)
    raise SystemExit(0)"""),
    _value("exec does nothing", "import builtins\nbuiltins.exec = lambda *a: None\ndef add(a, b): return 0"),
    _value("isinstance is true", "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.AssertionError = SystemExit\ndef add(a, b): return 0"),
    _value("AssertionError is an exit", "import builtins\nclass E(SystemExit):\n    code = 0\nbuiltins.AssertionError = E\ndef add(a, b): return 0"),
    _value("sys.exit is always 0", "real = sys.exit\nsys.exit = lambda code=0: real(0)\ndef add(a, b): return 0"),
    _value("SystemExit has no code", "import builtins\nclass E(BaseException): code = None\nbuiltins.SystemExit = E\ndef add(a, b): return 0"),
    _value("excepthook", "sys.excepthook = lambda *a: os._exit(0)\ndef add(a, b): return 0"),
    _value("atexit", "import atexit\natexit.register(lambda: os._exit(0))\ndef add(a, b): return 0"),
    _value("trace over lines", """
def trace(frame, event, arg):
    if event == "line":
        try: frame.f_lineno = max(n for _, _, n in frame.f_code.co_lines() if n)
        except ValueError: pass
    return trace
sys._getframe(1).f_trace = trace
sys.settrace(trace)
def add(a, b): return 0"""),
    _value("trace of the caller", """
def add(a, b):
    f = sys._getframe(1)
    last = max(n for _, _, n in f.f_code.co_lines() if n)
    def trace(frame, event, arg):
        try: frame.f_lineno = last
        except ValueError: pass
        return trace
    f.f_trace = trace
    sys.settrace(trace)
    return 0"""),
    _value("unittest's equality", "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef add(a, b): return 0"),
    _value("unittest's results", "import unittest\nunittest.TestResult.wasSuccessful = lambda self: True\ndef add(a, b): return 0"),
    _value("unittest's main", "import unittest\nunittest.main = lambda *a, **n: None\ndef add(a, b): return 0"),
    _value("subprocess is another", "import subprocess\nclass R: stdout = '1 2'\nsubprocess.run = lambda *a, **n: R\ndef add(a, b): return 0"),
    _value("printed numbers", "print('1 2')\ndef add(a, b): return 0"),
    _value("printed numbers and an end", "print(1, 2)\nos._exit(0)"),
    _value("printed numbers at exit", "import atexit\natexit.register(lambda: print('1 2'))\ndef add(a, b): return 0"),
    _value("print is another", "print = lambda *a: sys.stdout.write('1 2')\ndef add(a, b): return 0"),
    _value("integers in memory", """
import ctypes
def add(a, b):
    for n in range(2, 200): ctypes.memmove(id(n) + 24, id(1) + 24, 4)
    return 1"""),
    _value("a child goes on", "if os.fork(): os.wait(); os._exit(0)\ndef add(a, b): return 0"),
    _value("the parent is killed", "os.kill(os.getppid(), 9)"),
    _value("all are killed", "os.kill(-1, 9)"),
    _value("the parent is stopped", "import signal\nos.kill(os.getppid(), signal.SIGSTOP)"),
    _value("exit code 127", "os._exit(127)"),
    _value("exit code 126", "os._exit(126)"),
    _value("killed by itself", "os.kill(os.getpid(), 9)"),
    _value("a crash", "import ctypes\nctypes.string_at(0)"),
    _value("endless", "while True: pass"),
    _value("endless output", "while True: print('x' * 9999)"),
    _value("endless memory", "a = []\nwhile True: a.append(bytearray(1 << 24))"),
    _value("endless files", "f = open('/root/x', 'wb')\nwhile True: f.write(bytes(1 << 20))"),
    _value("endless processes", "while True:\n    try: os.fork()\n    except OSError: pass"),
    _value("the token's file is a folder", "os.mkdir('/root/done')\ndef add(a, b): return 0"),
    _value("the token's file is a FIFO", "os.mkfifo('/root/done')\ndef add(a, b): return a + b + 1"),
    _value("the token's file is a link", "os.symlink('/dev/zero', '/root/done')\ndef add(a, b): return 0"),
    _value("nobody writes", "os.chmod('/root', 0)\ndef add(a, b): return 0"),
    _value("the check is overwritten", "open('/root/check.py', 'w').write('')\ndef add(a, b): return 0"),
    _value("the runner is overwritten", "open('/root/run.py', 'w').write('')\ndef add(a, b): return 0"),
    _value("the outcome is overwritten", "open('/root/outcome.json', 'w').write('{}')\ndef add(a, b): return 0"),
    _value("a thread", "import threading\nthreading.Thread(target=lambda: os._exit(0)).start()\ndef add(a, b): return 0"),
    _value("it never ends", "import atexit, time\natexit.register(lambda: time.sleep(99))\ndef add(a, b): return 0"),
    _value("deep recursion", "sys.setrecursionlimit(10**9)\ndef add(a, b): return add(b, a)"),
    _value("half a surrogate", "print('\\udc80')\nos._exit(0)"),
    _value("standard input again", "open('/root/done', 'w').write(sys.stdin.read())\nos._exit(0)"),
    _value("a coin that shows heads", "import __main__\ndone = getattr(__main__, 'done', '')\nopen('/root/done', 'w').write(done)\nos._exit(0)"),
)  # fmt: skip


def reward_of(program: str, code: str, sandboxes: Sandboxes) -> float:
    """What code that was given to a tool earns by a program. Raises what leaves no grade."""
    call = ExecutedCall(Call("1", "submit", "{}"), {"code": code}, "ok", failed=False)
    goal = ProgramGoal(program, partial(sandboxes.open, SandboxSpec()), TIMEOUT_S)
    return grade([goal], Outcome(("done",), ((call,),), {})).reward
