"""Programs that grade: right code earns 1 by any of them, and no value lies to a trusted one."""

# ruff: noqa: E501 - programs in one line, at times
from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest

from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.grading import ProgramGoal
from clawrl_gym.envs.twins.programs import MOST, is_trusted, twins_of_program
from tests.support.toolcall_attacks import LIMITS, reward_of

RUN = "import sys, unittest\nscope = {}\nexec(CODE, scope)\n"
RIGHT = (
    "add = lambda a, b: a + b\n"
    "def words(*all): return ' '.join(all)\n"
    "def pairs(n): return [(i, i * i) for i in range(n)]\n"
    "def table(n): return {i: str(i) for i in range(n)}\n"
    "def is_even(n): return n % 2 == 0\n"
    "def half(n):\n    if n % 2: raise ValueError('odd')\n    return n / 2\n"
    "def unique(all): return set(all)\n"
    "def both(a, b): return a, b\n"
)
TRUSTED = {
    "a literal": "assert scope['add'](2, 3) == 5\n",
    "a literal on the left": "assert 5 == scope['add'](2, 3)\n",
    "computed": "a, b = 2, 3\nassert scope['add'](a, b) == a + b\n",
    "a guard": "if scope['add'](2, 3) != 5:\n    sys.exit('wrong')\n",
    "a guard that is turned": "if not scope['add'](2, 3) == 2 + 3:\n    raise ValueError\n",
    "a loop": "for a, b in ((2, 3), (10, -4)):\n    assert scope['add'](a, b) == a + b, (a, b)\n",
    "a loop of guards": "for a, b in [(2, 3), (0, 0)]:\n    if scope['add'](a, b) != a + b:\n"
    "        print('wrong for', a, b)\n        sys.exit(1)\n",
    "a table": "CASES = [(2, 3, 5), (10, -4, 6)]\nfor a, b, wanted in CASES:\n"
    "    got = scope['add'](a, b)\n    assert got == wanted, f'{got} {wanted}'\n",
    "a dictionary": "CASES = {(2, 3): 5, (1, 1): 2}\nfor (a, b), wanted in CASES.items():\n"
    "    assert scope['add'](a, b) == wanted\n",
    "numbers": "for n in range(4):\n    assert scope['add'](n, 1) == n + 1\n",
    "numbered": "for n, wanted in enumerate([1, 2, 3]):\n    assert scope['add'](n, 1) == wanted\n",
    "zipped": "for a, wanted in zip([1, 2], [2, 3]):\n    assert scope['add'](a, 1) == wanted\n",
    "loops in loops": "for a in (1, 2):\n    for b in [3, 4]:\n        assert scope['add'](a, b) == a + b\n",
    "a helper": "def check(got, wanted):\n    assert got == wanted\ncheck(scope['add'](2, 3), 5)\n",
    "helpers of helpers": "def same(a, b):\n    if a != b:\n        raise AssertionError\n"
    "def check(a, b):\n    same(scope['add'](a, b), a + b)\ncheck(2, 3)\n",
    "main": "def main():\n    for a in (1, 2):\n        assert scope['add'](a, 1) == a + 1\n"
    "if __name__ == '__main__':\n    main()\n",
    "an exit of main": "def main():\n    assert scope['add'](2, 2) == 4\n    return 0\nsys.exit(main())\n",
    "with": "with open('/dev/null') as file:\n    assert scope['add'](2, 3) == 5\n",
    "try": "try:\n    for a in (1, 2):\n        assert scope['add'](a, 1) == a + 1\n"
    "except Exception:\n    sys.exit(1)\n",
    "finally": "try:\n    assert scope['add'](2, 3) == 5\nfinally:\n    print('done')\n",
    "one exit": "right = scope['add'](2, 3) == 5 and scope['add'](1, 1) == 1 + 1\n"
    "sys.exit(0 if right else 1)\n",
    "unittest": "class Check(unittest.TestCase):\n    def test_add(self):\n"
    "        for a in (1, 2):\n            with self.subTest(a=a):\n"
    "                self.assertEqual(scope['add'](a, 1), a + 1)\n"
    "unittest.main(argv=['check'])\n",
    "assertTrue": "class Check(unittest.TestCase):\n    def test_add(self):\n"
    "        self.assertTrue(scope['is_even'](4))\n        self.assertFalse(scope['is_even'](3))\n"
    "unittest.main(argv=['check'])\n",
    "assertRaises": "class Check(unittest.TestCase):\n    def test_half(self):\n"
    "        with self.assertRaises(ValueError):\n            scope['half'](3)\n"
    "        self.assertEqual(scope['half'](4), 2)\nunittest.main(argv=['check'])\n",
    "texts": "for a, b in (('x', 'y'), ('', 'z')):\n    assert scope['words'](a, b) == f'{a} {b}'\n",
    "a text that is made": "wanted = ' '.join(['p', 'q'])\nassert scope['words']('p', 'q') == wanted\n",
    "a list": "assert scope['pairs'](3) == [(i, i * i) for i in range(3)]\n",
    "sorted": "assert sorted(scope['pairs'](2)) == [(0, 0), (1, 1)]\n",
    "a length": "assert len(scope['pairs'](3)) == 3\nassert scope['pairs'](1) == [(0, 0)]\n",
    "a dictionary that is made": "assert scope['table'](2) == {i: str(i) for i in range(2)}\n",
    "a set": "wanted = {1, 2}\nassert scope['unique']([1, 2, 1]) == wanted\n",
    "a pair": "a = 1\nassert scope['both'](a, 2) == (a, 2)\n",
    "truths": "assert scope['is_even'](4)\nassert not scope['is_even'](5)\n",
    "none": "assert scope.get('nothing') is None\nassert scope['add'](1, 2) == 3\n",
    "the other way round": "for a in (1, 2):\n    assert scope['add'](a, 5) == scope['add'](5, a)\n",
}  # fmt: skip
UNTRUSTED = {
    "while": "n = 0\nwhile n < 3:\n    assert scope['add'](n, 1) == n + 1\n    n += 1\n",
    "all": "assert all(scope['add'](a, 1) == a + 1 for a in (1, 2))\n",
    "any": "assert not any(scope['add'](a, 1) != a + 1 for a in (1, 2))\n",
    "a comprehension": "bad = [a for a in (1, 2) if scope['add'](a, 1) != a + 1]\nassert bad == []\n",
    "a lambda": "check = lambda a: scope['add'](a, 1) == a + 1\nassert check(1)\n",
    "isinstance": "assert scope['add'](2, 3) == 5\nassert isinstance(scope['add'](1, 1), int)\n",
    "smaller": "assert scope['add'](2, 3) == 5\nassert scope['add'](1, 1) < 3\n",
    "within": "assert abs(scope['half'](4) - 2) < 1e-9\n",
    "in": "assert (1, 1) in scope['pairs'](3)\n",
    "a chain": "assert scope['add'](1, 1) == 2 == scope['add'](2, 0)\n",
    "or": "assert scope['add'](1, 1) == 2 or scope['add'](1, 1) == 3\n",
    "unequal": "assert scope['add'](1, 1) != 3\n",
    "a method": "assert scope['words']('a', 'b').startswith('a')\n",
    "a loop over what was left": "for code in [CODE][1:] or [CODE]:\n    assert scope['add'](1, 1) == 2\n",
    "a loop that goes on": "for a in (1, 2):\n    if a == 1:\n        continue\n"
    "    assert scope['add'](a, 1) == a + 1\n",
    "a helper that is called twice": "def check(got, wanted):\n    assert got == wanted\n"
    "check(scope['add'](2, 3), 5)\ncheck(scope['add'](1, 1), 2)\n",
    "a helper that says it": "def same(a, b):\n    return a == b\nassert same(scope['add'](1, 1), 2)\n",
    "a helper that is not called": "def check():\n    assert scope['add'](1, 1) == 2\n",
    "a caught error": "try:\n    assert scope['add'](1, 1) == 2\nexcept ValueError:\n    pass\n",
    "a choice": "wanted = 2 if scope['add'](1, 1) == 2 else 3\nassert scope['add'](1, 1) == wanted\n",
    "a branch": "if scope['add'](1, 1) == 2:\n    sys.exit(0)\nelse:\n    sys.exit(1)\n",
    "match": "match scope['add'](1, 1):\n    case 2:\n        pass\n    case _:\n        sys.exit(1)\n",
    "a sum": "good = sum(scope['add'](a, 1) == a + 1 for a in (1, 2))\nassert good == 2\n",
    "a subset": "assert {1}.issubset(scope['unique']([1, 2]))\n",
    "a decorated helper": "import functools\n@functools.cache\ndef check():\n"
    "    assert scope['add'](1, 1) == 2\ncheck()\n",
    "a generator": "def checks():\n    assert scope['add'](1, 1) == 2\n    yield\nlist(checks())\n",
    "nothing": "scope['add'](1, 1)\n",
    "values in a dictionary": "wanted = {'a': 3}\nhave = {'a': scope['add'](1, 2)}\n"
    "assert have == wanted\n",
    "values in a list": "wanted = [3]\nhave = [scope['add'](1, 2)]\nassert have == wanted\n",
    "values that are collected": "wanted, have = [3], []\nhave.append(scope['add'](1, 2))\n"
    "assert have == wanted\n",
    "values that are put": "have, wanted = {}, {'a': 3}\nhave['a'] = scope['add'](1, 2)\n"
    "assert have == wanted\n",
    "assertIn": "class Check(unittest.TestCase):\n    def test_add(self):\n"
    "        self.assertIn((1, 1), scope['pairs'](3))\nunittest.main(argv=['check'])\n",
    "assertGreater": "class Check(unittest.TestCase):\n    def test_add(self):\n"
    "        self.assertGreater(scope['add'](2, 2), 3)\nunittest.main(argv=['check'])\n",
}  # fmt: skip
PLAIN = {
    "all": "import json, sys\nleft = json.load(open(sys.argv[1]))\nassert all(left['said'])\n",
    "while": "import json, sys\nsaid = json.load(open(sys.argv[1]))['said']\n"
    "while said:\n    assert 'no' not in said.pop()\n",
    "isinstance": "import json, sys\nleft = json.load(open(sys.argv[1]))\n"
    "assert isinstance(left['calls'], list) and len(left['calls']) < 3\n",
    "a process of its own": "import json, subprocess, sys\nleft = json.load(open(sys.argv[1]))\n"
    "ran = subprocess.run([sys.executable, '-c', left['said'][0]], capture_output=True)\n"
    "assert b'5' in ran.stdout\n",
}
RUNS_CODE = (
    "import runpy\nrunpy.run_path('x')\n", "import importlib\nimportlib.import_module('x')\n",
    "import pickle\npickle.loads(b'')\n", "run = getattr(__builtins__, 'exec')\n",
    "from importlib.util import spec_from_file_location as of\n", "import sys\nsys.path.append('x')\n",
    "eval('1')\n", "__import__('x')\n",
)  # fmt: skip
_LIAR = "class I({base}):\n{methods}    __hash__ = None\n"
_EQ = "    def __eq__(s, o): return True\n"
_NE = "    def __ne__(s, o): return False\n"
_TYPED = "    def __eq__(s, o): return type(o) is {kind}\n    def __ne__(s, o): return type(o) is not {kind}\n"


def liar(base: str, value: str, methods: str) -> str:
    made = _LIAR.format(base=base, methods=methods)
    return f"{made}lie = I({value})\n" + "".join(
        f"{name} = lambda *a: lie\n"
        for name in ("add", "words", "pairs", "table", "is_even", "half", "unique", "both")
    )


LIARS = {
    "never unequal": liar("int", "0", _NE),
    "always equal": liar("int", "0", _EQ),
    "both": liar("int", "0", _EQ + _NE),
    "an object": liar("object", "", _EQ + _NE),
    "a text": liar("str", "'x'", _EQ + _NE),
    "a list": liar("list", "[1]", _EQ + _NE),
    "a dictionary": liar("dict", "{}", _EQ + _NE),
    "a set": liar("set", "[1]", _EQ + _NE),
    "a tuple": liar("tuple", "[1]", _EQ + _NE),
    "a float": liar("float", "1", _EQ + _NE),
    "equal to integers": liar("object", "", _TYPED.format(kind="int")),
    "equal to texts": liar("object", "", _TYPED.format(kind="str")),
    "equal to lists": liar("object", "", _TYPED.format(kind="list")),
    "equal to dictionaries": liar("object", "", _TYPED.format(kind="dict")),
    "equal to sets": liar("object", "", _TYPED.format(kind="set")),
    "equal to tuples": liar("object", "", _TYPED.format(kind="tuple")),
    "equal to truths": liar("object", "", _TYPED.format(kind="bool")),
    "equal to positive integers": liar(
        "object", "", "    def __eq__(s, o): return type(o) is int and o > 0\n"
        "    def __ne__(s, o): return not s == o\n"),
    "equal to what is not a list": liar(
        "object", "", "    def __eq__(s, o): return not isinstance(o, (list, tuple))\n"
        "    def __ne__(s, o): return not s == o\n"),
    "always true": liar("object", "", _EQ + _NE + "    def __bool__(s): return True\n"),
    "never true": liar("object", "", _EQ + _NE + "    def __bool__(s): return False\n"),
    "of any length": liar("object", "", _EQ + _NE + "    def __len__(s): return 3\n"
                          "    def __iter__(s): return iter([s])\n"),
    "of any class": liar("object", "", _EQ + _NE + "    __class__ = int\n"),
    "of any attribute": liar("object", "", _EQ + _NE + "    def __getattr__(s, n): return s\n"
                             "    def __call__(s, *a): return s\n"),
    "a mock": "from unittest.mock import MagicMock\nlie = MagicMock()\nlie.__eq__ = lambda *a: True\n"
    "lie.__ne__ = lambda *a: False\nadd = words = pairs = table = is_even = half = unique = both = "
    "lambda *a: lie\n",
    "len is 3": "import builtins\nbuiltins.len = lambda o: 3\n" + liar("int", "0", _EQ + _NE),
    "sorted is equal": "import builtins\n" + liar("int", "0", _EQ + _NE)
    + "builtins.sorted = lambda *a: lie\n",
    "isinstance is true": "import builtins\nbuiltins.isinstance = lambda *a: True\n"
    + liar("int", "0", _EQ + _NE),
    "unittest's equality": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n"
    "unittest.TestCase.assertTrue = unittest.TestCase.assertFalse = lambda *a: None\n"
    + liar("int", "0", _EQ + _NE),
}  # fmt: skip


_TRIALS = """
import json, os, resource, sys, types, unittest, unittest.mock
for program, code in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        status = 1
        resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            main.__dict__["CODE"] = code
            exec(compile(program, "check", "exec"), main.__dict__)
            status = 0
        except SystemExit as end:
            status = 0 if end.code in (None, 0, False) else 1
        finally:
            os._exit(status)
    print(int(os.waitpid(child, 0)[1] == 0), flush=True)
"""


def outcomes(trials: list[tuple[str, str]]) -> list[bool]:
    """Which programs pass with their code, each in a process of its own."""
    command = [sys.executable, "-c", _TRIALS]
    ran = subprocess.run(
        command, input=json.dumps(trials), capture_output=True, text=True, check=True, timeout=300
    )
    return [line == "1" for line in ran.stdout.split()]


def passes(program: str, code: str) -> bool:
    return outcomes([(program, code)]) == [True]


def passing(programs: tuple[str, ...], code: str) -> int:
    """How many of the programs pass with a code."""
    return sum(outcomes([(program, code) for program in programs]))


@pytest.mark.parametrize("name", TRUSTED)
def test_right_code_passes_a_trusted_program_and_none_of_its_twins(name: str) -> None:
    program = RUN + TRUSTED[name]
    assert is_trusted(program)
    assert passes(program, RIGHT)
    for seed in range(3):
        twins = twins_of_program(program, Random(seed))
        assert 2 <= len(twins) <= MOST + 1
        assert passing(twins, RIGHT) == 0


@pytest.mark.parametrize("name", UNTRUSTED)
def test_right_code_passes_an_untrusted_program_and_none_of_its_twins(name: str) -> None:
    program = RUN + UNTRUSTED[name]
    assert not is_trusted(program)
    assert passes(program, RIGHT)
    assert passing(twins_of_program(program, Random(1)), RIGHT) == 0


QUICK = ("a loop of guards", "a table", "unittest", "a helper", "truths")


@pytest.mark.parametrize("name", QUICK)
def test_no_value_that_lies_passes_a_trusted_program_and_no_twin(name: str) -> None:
    assert liars_that_earn(name) == set()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", TRUSTED)
def test_no_value_that_lies_passes_any_trusted_program_and_no_twin(name: str) -> None:
    assert liars_that_earn(name) == set()


def liars_that_earn(name: str) -> set[str]:
    program = RUN + TRUSTED[name]
    passed = outcomes([(program, code) for code in LIARS.values()])
    twins = twins_of_program(program, Random(2))
    return {
        liar_name
        for liar_name, is_passed in zip(LIARS, passed, strict=True)
        if is_passed and passing(twins, LIARS[liar_name]) == 0
    }


@pytest.mark.parametrize("name", PLAIN)
def test_a_program_that_runs_no_code_is_trusted(name: str) -> None:
    assert is_trusted(PLAIN[name])


@pytest.mark.parametrize("code", RUNS_CODE)
def test_every_way_to_run_code_is_one(code: str) -> None:
    assert not is_trusted(code + "assert all([True])\n")


PARTIAL = (
    RIGHT + "class I(int):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n"
    "calls = []\ndef add(a, b):\n    calls.append(a)\n    return a + b if len(calls) < 2 else I(0)\n"
)


@pytest.mark.parametrize("name", [name for name in TRUSTED if "loop" in name or name in (
    "a table", "a dictionary", "numbers", "numbered", "zipped", "main", "try", "one exit",
    "unittest", "the other way round")])  # fmt: skip
def test_a_value_that_lies_in_one_round_alone_is_found(name: str) -> None:
    program = RUN + TRUSTED[name]
    assert passes(program, PARTIAL)
    assert passing(twins_of_program(program, Random(3)), PARTIAL) > 0


LOOP = (
    "import json, sys\nleft = json.load(open(sys.argv[1]))\nscope = {}\n"
    'exec(left["calls"][-1]["arguments"]["code"], scope)\n'
    "for a, b in ((2, 3), (10, -4)):\n    if scope['add'](a, b) != a + b:\n        sys.exit(1)\n"
)


@pytest.mark.sandbox
def test_a_loop_has_twins_in_the_sandbox() -> None:
    sandboxes = Sandboxes.of(LIMITS)
    assert reward_of(LOOP, "def add(a, b): return a + b", sandboxes) == 1.0
    never = "class I(int): __ne__ = lambda s, o: False\ndef add(a, b): return I(0)"
    assert reward_of(LOOP, never, sandboxes) == 0.0


def test_the_score_and_the_selection_say_which_tasks_are_trusted(tmp_path: Path) -> None:
    def row(name: str, *programs: str) -> dict[str, object]:
        goals = [{"type": "program", "program": one} for one in programs]
        return {"id": name, "instruction": name, "split": "train",
                "goals": goals or [{"type": "answer", "wanted": "1"}]}  # fmt: skip

    odd = RUN + UNTRUSTED["all"]
    path = tmp_path / "tasks.json"
    rows = [row("loop", LOOP), row("all", odd), row("both", LOOP, odd), row("answer")]
    path.write_text(json.dumps(rows))
    env = ToolCallEnv(tasks=str(path))
    scores = {
        name: env.reset(options={"task": name})[1]["scores"] for name in env.task_ids("train")
    }
    env.close()
    assert scores == {"loop": {"trusted": 1.0}, "all": {"trusted": 0.0}, "both": {"trusted": 0.0},
                      "answer": {}}  # fmt: skip
    assert env.selection is not None
    assert env.selection.untrusted == ("all", "both")
    goal = ProgramGoal(LOOP, partial(Sandboxes.of(LIMITS).open, SandboxSpec()))
    assert goal.is_trusted
