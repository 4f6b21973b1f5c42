"""Twins of tests: found for what instances name, and never met by code that is right."""

import re
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from clawrl_gym.envs.showcase.swe.corpus import make_instance
from clawrl_gym.envs.showcase.swe.corpus.repository import families
from clawrl_gym.envs.swe.evaluation import PatchFails
from clawrl_gym.envs.swe.patch import Patch
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.script import END, START, TestOutput
from clawrl_gym.envs.swe.twin_runs import require_twins_fail, twins_in
from clawrl_gym.envs.twins.tests import twins_of, with_twins

SEEDS = 12
TRUE_STATEMENTS = """\
value, items, text = 5, ["pen", 3, [1.5]], "a \\"quoted\\" é word"
assert value == 5
assert 5 == value, "a message with == 5"
assert value != 6
assert value == 2 + 3
assert value * 2 == 2 * 5
assert value in (4, 5)
assert value not in (1, 2)
assert 4 < value <= 5
assert value is not None
assert not value == 6
assert not text.islower() or value
assert value and items
assert (value or items) and text
assert items == ["pen", 3, [1.5]]
assert items[2][0] == 1.5
assert {"a": value} == {"a": 5}
assert (value, "x") == (5, "x")
assert text == "a \\"quoted\\" é word"
assert [n for n in items if n == 3] == [3]
assert set(items[:1]) == {"pen"}
assert [] == items[3:]
assert (
    value
    == 5
)
assert items == [
    "pen",
    3,
    [1.5],
], "é"
assert isinstance(value, int)
assert all(n for n in items)
assert abs(value - 5.0) < 1e-9
assert "é" in text
assert value == {"é": 5}["é"]
"""
TRUE_METHODS = """\
self.assertEqual(5, 2 + 3)
self.assertEqual([1, "a"], list((1, "a")))
self.assertEqual("a", "a", "a message")
self.assertNotEqual(1, 2)
self.assertTrue(1)
self.assertFalse(0)
self.assertIn(1, [1])
self.assertNotIn(2, [1])
self.assertIsNone(None)
self.assertIs(None, None)
self.assertGreater(2, 1)
self.assertLessEqual({1}, {1, 2})
self.assertAlmostEqual(0.5, 1 / 2)
self.assertListEqual([len("ab")], [len("cd")])
self.assertDictEqual({"a": 1}, {"a": 1})
self.assertRegex("abc", "b")
self.assertIsInstance(1, int)
self.assertCountEqual([1, 2], [2, 1])
with self.assertRaises(KeyError): {}["x"]
with self.assertRaisesRegex(ValueError, "invalid literal"): int("x")
self.assertRaises(ValueError, int, "x")
self.assertEqual(
    [1,
     2],
    [1, 2])
"""


def statements(text):
    """One a test: continued lines belong to the one above."""
    parts: list[str] = []
    for line in text.splitlines(keepends=True):
        if line[0] in " )]" and parts:
            parts[-1] += line
        else:
            parts.append(line)
    return parts


def test_a_twin_of_a_true_statement_is_false():
    setup, *truths = statements(TRUE_STATEMENTS)
    for seed in range(SEEDS):
        for truth in truths:
            body = "".join(f"    {line}" for line in (setup + truth).splitlines(keepends=True))
            check(f"def test_it():\n{body}", "test_it()\n", seed)


def test_a_twin_of_a_true_method_of_unittest_is_false():
    for seed in range(SEEDS):
        for truth in statements(TRUE_METHODS):
            body = "".join(f"        {line}" for line in truth.splitlines(keepends=True))
            test = f"import unittest\nclass C(unittest.TestCase):\n    def test_it(self):\n{body}"
            check(test, "C('test_it').test_it()\n", seed)


def check(test, call, seed):
    exec(compile(f"{test}{call}", "true", "exec"), {})
    (twin,) = twins_of("tests/t.py", test, ["tests/t.py::test_it"], Random(seed))
    for number in range(len(twin.options)):
        changed = with_twins(test, [(twin, number)])
        code = compile(f"{changed}{call}", "twin", "exec")
        with pytest.raises((AssertionError, KeyError, ValueError)):
            exec(code, {})


def test_a_test_that_expects_nothing_in_words_has_a_twin_that_fails():
    test = 'def test_it():\n    """It runs."""\n    print("x")\n\n\ndef other():\n    pass\n'
    (twin,) = twins_of("t.py", test, ["t.py::test_it"], Random(1))
    changed = with_twins(test, [(twin, 0)])
    assert changed.startswith(test.partition("\n\n\n")[0])
    assert "def other" in changed
    with pytest.raises(AssertionError):
        exec(f"{changed}\ntest_it()", {})


@pytest.mark.parametrize(
    ("path", "text", "test_id", "twin"),
    [
        ("t.py", "class A:\n    def test_x(self):\n        assert f() == 'ab'\n",
         "t.py::A::test_x[1-2]", True),
        ("t.py", "def test_x():\n    assert f() == 1\n", "other.py::test_x", False),
        ("t.py", "def test_x():\n    assert f() == 1\n", "t.py::test_x_more", False),
        ("tests/a/t.py", "class A(T):\n    def test_x(self):\n        self.assertEqual(f(), 1)\n",
         "test_x (a.t.A)", True),
        ("tests/b/t.py", "class A(T):\n    def test_x(self):\n        self.assertEqual(f(), 1)\n",
         "test_x (a.t.A)", False),
        ("t.py", "class A(T):\n    def test_x(self):\n        '''It adds.'''\n"
         "        self.assertEqual(f(), 1)\n", "It adds.", True),
        ("t.js", 'test("it adds", () => {\n  assert.strictEqual(f(1, ","), 3);\n});\n',
         "- it adds", True),
        ("t.ts", "describe('x', () => {\n  it('adds', async () => {\n    expect(f()).toBe(3)\n"
         "  })\n})\n", "x > adds", True),
        ("t.js", 'it("adds", () => {\n  expect(f([1])).not.toContain(other);\n});\n', "adds", True),
        ("t_test.go", "func TestAdd(t *testing.T) {\n\tif got != want {\n\t\tt.Fatal()\n\t}\n}\n",
         "TestAdd", True),
        ("t.rs", "    #[test]\n    fn adds() {\n        assert_eq!(f(1), g);\n    }\n",
         "tests::adds", True),
        ("T.java", "  @Test\n  public void adds() {\n    assertEquals(4, f(2));\n  }\n",
         "TTest.adds", True),
        ("t.rb", 'describe "A" do\n  it "adds." do\n    _(f).must_equal "a"\n  end\nend\n',
         "A#test_0001_adds", True),
        ("T.php", "    public function testAdds() {\n        $this->assertSame('x', $f);\n    }\n",
         "TTest::testAdds", True),
        ("t.js", 'it("runs", () => {\n  run();\n});\n', "runs", True),
    ],
)  # fmt: skip
def test_tests_are_found_by_the_names_that_parsers_give_them(path, text, test_id, twin):
    twins = twins_of(path, text, [test_id], Random(0))
    assert bool(twins) == twin
    if twin:
        assert twins[0].ids == (test_id,)
        assert with_twins(text, [(twins[0], 0)]) != text


def test_names_and_lines_of_a_file_stay():
    text = "def test_a():\n    assert f() == 1\n\n\ndef test_b():\n    assert g() == 'x'\n"
    twins = twins_of("t.py", text, ["t.py::test_a", "t.py::test_b"], Random(0))
    assert [twin.ids for twin in twins] == [("t.py::test_a",), ("t.py::test_b",)]
    changed = with_twins(text, [(twins[0], 0)])
    assert changed.partition("\n\n\n")[2] == text.partition("\n\n\n")[2]
    assert len(changed.splitlines()) == len(text.splitlines())


@pytest.mark.parametrize("family", families())
def test_every_test_of_the_corpus_has_a_twin(family):
    for number in range(6):
        instance = make_instance(f"swe-{family}-train-{number:06d}")
        twins = twins_in(instance, instance.test_files, Random(number))
        ids = {test_id for twin in twins for test_id in twin.ids}
        assert ids == {*instance.fail_to_pass, *instance.pass_to_pass}
        for path, text in instance.test_files.items():
            changed = with_twins(text, [(twin, number) for twin in twins if twin.path == path])
            assert changed != text
            if path.endswith(".py"):
                compile(changed, path, "exec")


def test_odd_files_are_read_quickly_and_without_an_error():
    odd = ["\x00\udc80 def test_x():\n\tassert 1\n", "\n", "def test_x(", "def test_x():",
           "def test_x():\n    assert (\n" * 50,
           "it('x" * 1000, "def test_x():\n    assert '" + "\\" * 2000 + "'\n",
           "def test_x():\n" + "    assert f(\n" * 300]  # fmt: skip
    for text in odd:
        for path in ("t.py", "t.js", "t.unknown"):
            twins = twins_of(path, text, ["test_x", "x"], Random(0))
            with_twins(text, [(twin, 0) for twin in twins])


TESTS = """\
def test_one():
    assert f(1) == 2

def test_two():
    assert f(2) == 3
    assert f(3) == 4

def test_old():
    assert g() == "x"
"""
SCRIPT = f": '{START}'\npytest\n: '{END}'\n"


def an_instance(**changes):
    fields = {
        "id": "shop-1", "repo": "me/shop", "split": "train", "problem_statement": "",
        "fail_to_pass": ("t.py::test_one", "t.py::test_two"), "pass_to_pass": ("t.py::test_old",),
        "log_parser": "parse_log_pytest", "eval_script": SCRIPT, "test_files": {"t.py": TESTS},
    }  # fmt: skip
    return Instance(**(fields | changes))


class Alike:
    """Equal to anything."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


def honest():
    return {"f": lambda x: x + 1, "g": lambda: "x"}


def forging():
    return {"f": lambda x: Alike(), "g": lambda: "x"}


GOLD = "--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-a\n+b\n"


class Ran:
    """Runs the tests that a script writes, over names that the patch and the gold patch make."""

    def __init__(self, instance, names=honest, gold=honest):
        self.instance = instance
        self.names, self.gold = names, gold
        self.runs = []
        self.asked = []

    def run(self, patch, script):
        is_gold = patch.files == parse_patch(GOLD).files
        made = self.gold if is_gold else self.names
        if isinstance(made, Exception):
            raise made
        text = re.search(r"<<'(END_OF_FILE_\w+)'\n(.*?)\1", script, re.DOTALL)
        assert text is not None
        names = made()
        exec(text[2], names)
        self.runs.append((is_gold, text[2]))
        statuses = {name: passes(names[name]) for name in names if name.startswith("test_")}
        lines = [f"{'PASSED' if ok else 'FAILED'} t.py::{name}" for name, ok in statuses.items()]
        return TestOutput("\n".join(lines), 0 if all(statuses.values()) else 1, forged=False)

    def prepared_files(self, paths):
        self.asked.append(list(paths))
        return {"t.py": TESTS}


def passes(test):
    try:
        test()
    except AssertionError:
        return False
    return True


def told_apart(ran: Any) -> frozenset[str]:
    return require_twins_fail(ran, Patch())


ALL = frozenset({"t.py::test_one", "t.py::test_two", "t.py::test_old"})


def test_a_right_patch_tells_every_test_from_its_twin():
    ran = Ran(an_instance())
    assert told_apart(ran) == ALL
    assert len(ran.runs) == 4
    functions = [re.split(r"\n(?=def )", text.rstrip("\n")) for _, text in ran.runs]
    originals = re.split(r"\n(?=def )", TESTS.rstrip("\n"))
    for first, second in (functions[:2], functions[2:]):
        for one, other, original in zip(first, second, originals, strict=True):
            assert (one.rstrip() == original.rstrip()) != (other.rstrip() == original.rstrip())


def test_as_many_pairs_are_run_as_a_test_has_expectations_up_to_five():
    for count, runs in ((1, 4), (3, 6), (5, 10), (8, 10)):
        test = "def test_one():\n" + "".join(
            f"    assert f({n}) == {n + 1}\n" for n in range(count)
        )
        instance = an_instance(
            test_files={"t.py": test}, fail_to_pass=("t.py::test_one",), pass_to_pass=()
        )
        ran = Ran(instance)
        assert told_apart(ran) == {"t.py::test_one"}
        assert len(ran.runs) == runs


def test_a_patch_that_passes_whatever_is_expected_fails():
    with pytest.raises(PatchFails, match=r"does not follow from what it expects: t\.py::test_"):
        told_apart(Ran(an_instance(), forging))
    with pytest.raises(PatchFails, match="does not follow"):
        told_apart(Ran(an_instance(), PatchFails("they hang")))
    with pytest.raises(PatchFails, match="does not follow"):
        told_apart(Ran(an_instance(), lambda: {"f": str, "g": str}))


def test_what_deviates_with_the_gold_patch_too_is_no_fault_of_the_patch():
    ran = Ran(an_instance(patch=GOLD), forging, forging)
    assert told_apart(ran) == ALL
    assert [is_gold for is_gold, _ in ran.runs].count(False) == 4
    after = [one for one in pairwise(ran.runs) if one[1][0]]
    assert after
    for own, gold in after:
        assert (own[0], own[1]) == (False, gold[1])
    with pytest.raises(PatchFails):
        told_apart(Ran(an_instance(patch=GOLD), forging, honest))
    unread = Ran(an_instance(patch="--- a/x\n+++ b/x\n"), forging, forging)
    with pytest.raises(PatchFails):
        told_apart(unread)
    assert not any(is_gold for is_gold, _ in unread.runs)


def test_where_no_test_has_a_twin_nothing_is_run():
    ran = Ran(an_instance(test_files={"t.py": "x = 1\n"}))
    assert told_apart(ran) == frozenset()
    assert ran.runs == []


def test_of_tests_that_passed_before_twelve_have_twins():
    text = "".join(f"def test_{n}():\n    assert f({n}) == {n + 1}\n\n" for n in range(20))
    instance = an_instance(
        fail_to_pass=("t.py::test_0",), pass_to_pass=tuple(f"t.py::test_{n}" for n in range(1, 20))
    )
    twins = twins_in(instance, {"t.py": text}, Random(0))
    assert len(twins) == 13
    assert twins[0].ids == ("t.py::test_0",)


def test_files_that_an_instance_does_not_have_are_asked_of_a_sandbox_once():
    test_patch = "--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-a\n+b\n"
    instance = an_instance(id="asked", test_files={}, test_patch=test_patch,
                           fail_to_pass=("t.py::test_one", "u.py::test_u"))  # fmt: skip
    ran = Ran(instance)
    for _ in range(2):
        assert told_apart(ran) == {"t.py::test_one", "t.py::test_old"}
    assert ran.asked == [["t.py", "u.py"]]
    other = Ran(replace(instance, eval_script=SCRIPT + ":\n"))
    told_apart(other)
    assert other.asked == ran.asked
