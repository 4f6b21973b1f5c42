"""Twins of many statements, tests and programs, and the bugs made in one file, as hashes.

That twins are never met by code that is right is tested in test_swe_twins.py; here none of them
changes unseen. `python -m tests.project.golden_twins` writes the hashes anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from random import Random

from clawrl_gym.envs.swe.bugs.mutations import mutations_of
from clawrl_gym.envs.twins.programs import twins_of_program
from clawrl_gym.envs.twins.python import of_function
from clawrl_gym.envs.twins.tests import twins_of, with_twins
from clawrl_gym.envs.twins.text import Expectation, of_lines
from tests.swe.test_swe_mutations import SOURCE
from tests.swe.test_swe_twins import TRUE_METHODS, TRUE_STATEMENTS, statements

FILE = Path(__file__).parents[1] / "fixtures" / "golden" / "twins.json"
SEEDS = 8
MORE_STATEMENTS = """\
assert a == 1 and not b or c != "x"
assert a < b < 3
assert not in_use is not None
assert a  not   in  b
assert (yield_ := f()) == -1
assert x == None
assert x == b"a"
assert x == 'it''s'
assert x == 0x1F
assert x == 1_000
assert x == {**a}
assert x == f"{a}"
assert x == approx(0.5) == y
assert x == Path("a/b")
assert x == 3 * 0
assert x == frozenset({1, "b"})
assert [] != x
self.fail("no")
self.assertRaises(MyError, f)
self.assertRaisesMessage(ValueError, 'is "bad', f)
self.assertEqual(f(), g())
self.assert_called_with(1, b="x")
np.testing.assert_allclose(f(), [1.5, 2])
assert_equal(f(), 'a')
mock.assert_not_called()
self.assertLessEqual(1, f())
await self.assertEqual(f(), True)
self.assertXMLEqual(f(), f"<a>")
with pytest.raises(KeyError): f()
with pytest.raises(ValueError, match=r"not \\d"): f()
with pytest.raises(ValueError, match='not good'): f()
with pytest.raises(Exception): f()
with warns(DeprecationWarning): f()
with suppress(KeyError): assert f() == 1
async with aiohttp() as session, raises(OSError): assert f() == 1
"""
BODIES = (
    "for a in b:\n    assert a == 1\nelse:\n    assert b == 2\nassert c == 3\n",
    "if a:\n    raise SystemExit\nassert b == 2\n",
    "if a == 1:\n    raise ValueError(a)\nif b or c is None:\n    self.fail()\nassert d == 4\n",
    "try:\n    assert a == 1\nexcept E:\n    pass\nfinally:\n    assert b == 2\n",
    "try:\n    assert a == 1\nexcept E:\n    raise\n",
    "def inner():\n    return 1\nassert inner() == 1\n",
    "class A:\n    assert a == 1\n    def b(self):\n        assert c == 2\n",
    "if a:\n    return\nassert b == 2\n",
    "if a:\n    pytest.skip('no')\nassert b == 2\n",
    "if a:\n    sys.exit(0)\nassert b == 2\n",
    "if a:\n    sys.exit('bad')\nassert b == 2\n",
    "while a:\n    assert b == 2\n",
    "if __name__ == '__main__':\n    assert b == 2\n",
    "with a:\n    assert b == 'é' * 2\n",
    "print(1)\n",
)
LINES = {
    "a.js": (
        "assert.strictEqual(f(1, 'a,b'), 5);", "assert.deepEqual(f(), [1, {a: 'x'}]);",
        "assert.equal('q', f());", "assert.equal(f(), g());", "assert.ok(!f(1));", "assert(f());",
        "expect(f()).toBe(3);", "expect(f()).not.toEqual([]);", "expect(f()).toThrow();",
        "expect(f()).to.equal('a');", "assert.throws(() => f(), TypeError);", "f(1);",
        "expect(f('(')).toStrictEqual({ a: true, b: null });", "assert.deepStrictEqual(f(), []);",
        "assert.notEqual(f(), 1);", "assert.equal(f(", "expect(f(1.5)).toBe(2.5, 'why');",
    ),
    "a_test.go": (
        "if got != 3 {", "if err == nil && ok {", "assert.Equal(t, \"a\", f())",
        "require.NoError(t, err)", "require.Equal(t, 2, f())", "t.Log(1)",
    ),
    "a_test.rb": (
        "assert_equal 3, f(1)", "assert_equal(\"x\", f)", "_(f).must_equal 4",
        "expect(f).to eq 'a'", "expect(f).to be 3", "assert_nil f", "must_raise(ArgumentError)",
        "assert_raises(MyError) { f }", "f.must_be_nil", "assert_equal [], f",
    ),
    "a.rs": ("assert_eq!(f(), 3);", "assert!(f() > 2);", "assert_ne!(f(), \"x\");", "let a = 1;"),
    "A.java": (
        "assertEquals(3, f());", "assertTrue(f());", "assertNull(f());",
        "assertEquals(\"a\", f(\"b\"));",
    ),
    "a.php": ("$this->assertSame('x', f());", "$this->assertContains(1, f());"),
}  # fmt: skip
HEADS = {
    "a.js": "  it('works', () => {\n", "a_test.go": "func TestIt(t *testing.T) {\n",
    "a_test.rb": "  it 'works' do\n", "a.rs": "fn works() {\n",
    "A.java": "public void works() {\n", "a.php": "public function testWorks() {\n",
}  # fmt: skip
PROGRAMS = (
    "import sys\nright = f() == 3\nsys.exit(0 if right else 1)\n",
    "import sys\nok = f() in ('a', 'b')\nsys.exit(not ok)",
    "ok = f() == 1 and g() != 2\nexit(int(not ok))\n",
    "assert f() == [1, 'a']\nif g() != 4:\n    raise SystemExit('no')\nraise SystemExit\n",
    "def check():\n    assert f() == 1\n    return\ncheck()\nsys.exit()\n",
    "def unused():\n    assert f() == 1\nif h() > 3:\n    quit(1)\nquit(h())\n",
    "import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n"
    "        self.assertEqual(f(), 2)\n    def other(self):\n        self.assertEqual(f(), 3)\n"
    "unittest.main()\n",
    "import unittest\nunittest.main(verbosity=2)\nunittest.main(exit=False)\n",
    "a = f()\nb = f()\nexit(1 if a else 0)\nexit(f'{b}')\nos._exit('no')\n",
)


def _in_python(statement: str) -> str:
    return "def test_it():\n" + "".join(f"    {line}" for line in statement.splitlines(True))


def _forms(
    text: str, found: Callable[[str, Random], list[Expectation]]
) -> Iterator[tuple[str, bool]]:
    for seed in range(SEEDS):
        for one in found(text, Random(seed)):
            change = one.change
            yield f"{text[: change.start]}<{change.text}>{text[change.end :]}", one.is_sure


def _twins(path: str, text: str, test_id: str) -> list[str]:
    return [
        with_twins(text, [(twin, number)])
        for seed in range(SEEDS)
        for twin in twins_of(path, text, [test_id], Random(seed))
        for number in range(len(twin.options))
    ]


def of_python() -> dict[str, object]:
    parts = [*statements(TRUE_STATEMENTS), *statements(TRUE_METHODS), *statements(MORE_STATEMENTS)]
    texts = [_in_python(part) for part in (*parts, *BODIES)]
    return {
        text: [list(_forms(text, of_function)), _twins("t.py", text, "t.py::test_it")]
        for text in texts
    }


def of_other_languages() -> dict[str, object]:
    found: dict[str, object] = {}
    for path, lines in LINES.items():
        for line in lines:
            text = f"{HEADS[path]}    {line}\n      deep(1);\n      {line}\n}}\nafter\n"
            ids = (f"{path}::works", f"{path}::TestIt", "a testWorks", "it works", "works")
            found[path + text] = [
                list(_forms(text, of_lines)), [_twins(path, text, one) for one in ids]
            ]  # fmt: skip
    return found


def of_programs() -> dict[str, object]:
    return {
        program: [twins_of_program(program, Random(seed)) for seed in range(SEEDS)]
        for program in PROGRAMS
    }


def of_bugs() -> dict[str, object]:
    return {
        path: [asdict(one) for one in mutations_of(path, SOURCE)] for path in ("a.py", "b/c.py")
    }


GROUPS: Mapping[str, Callable[[], dict[str, object]]] = {
    "python": of_python,
    "other languages": of_other_languages,
    "programs": of_programs,
    "bugs": of_bugs,
}


def hashes(group: str) -> dict[str, str]:
    return {
        " ".join(text.split())[:60]: hashlib.sha256(json.dumps(found).encode()).hexdigest()[:12]
        for text, found in GROUPS[group]().items()
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps({group: hashes(group) for group in GROUPS}, indent=0) + "\n")
