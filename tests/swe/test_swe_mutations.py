"""Small wrong changes of Python code, in the place of the right text alone."""

from __future__ import annotations

import pytest

from clawrl_gym.envs.swe.bugs.mutations import Mutation, mutations_of

SOURCE = '''\
from typing import TYPE_CHECKING

LIMIT = 3

def first(items: list[int], size: int = 2) -> list[int]:
    """A docstring is left alone."""
    assert size < 9, "and so is what the code says of itself"
    if TYPE_CHECKING:
        size = 7
    log.info("and talk", size - 5)
    if (len(items) < size  # of a comment with <
            and not items):
        raise ValueError(f"too {size + 3} few")
    total: int = items[0] + (size)
    total += 4
    return "ü-" * size, total


class Shelf:
    def place(self, book, at):
        self.books[at] = book
        self.insert(at, book)
        for one in self.books:
            if one is not book:
                continue
        return min(at, 8)

    def inner(self):
        def nested(x):
            return x == "ab"
        return nested
'''


def changes(function: str = "first") -> set[str]:
    return {
        f"{mutation.kind}: {original(mutation)} -> {mutation.change.text}"
        for mutation in mutations_of("a.py", SOURCE)
        if mutation.function == function
    }


def original(mutation: Mutation) -> str:
    return SOURCE[mutation.change.start : mutation.change.end]


def test_behaviour_is_changed_in_many_ways() -> None:
    assert {
        "comparison: < -> <=",
        "condition: and -> or",
        "condition: not items -> (items)",
        "deleted line: total += 4 -> pass",
        "operator: + -> -",
        "off by one: 2 -> 3",
        "off by one: 2 -> 1",
        "off by one: 0 -> (-1)",
        "off by one: len(items) -> (len(items) - 1)",
        'nothing returned: "ü-" * size, total -> None',
        'swapped values: "ü-" * size, total -> total, "ü-" * size',
    } <= changes()
    assert "removed branch" in {change.partition(":")[0] for change in changes()}
    assert {
        "deleted line: self.books[at] = book -> pass",
        "deleted line: self.insert(at, book) -> pass",
        "swapped arguments: at, book -> book, at",
        "comparison: is not -> is",
        "jump: continue -> break",
        "another function: min -> max",
    } <= changes("Shelf.place")


def test_words_annotations_and_guards_are_left_alone() -> None:
    texts = " ".join(original(mutation) for mutation in mutations_of("a.py", SOURCE))
    for word in ("LIMIT", "docstring", "assert", "TYPE_CHECKING", "log", "list"):
        assert word not in texts
    signs = [
        SOURCE[: mutation.change.start].rpartition("\n")[2]
        for mutation in mutations_of("a.py", SOURCE)
        if original(mutation) == "<"
    ]
    assert signs == ["    if (len(items) "]  # and not the one in the comment


def test_a_nested_function_belongs_to_the_one_around_it() -> None:
    assert changes("Shelf.inner") >= {"comparison: == -> !="}
    assert {mutation.function for mutation in mutations_of("a.py", SOURCE)} == {
        "first", "Shelf.place", "Shelf.inner"
    }  # fmt: skip


def test_a_change_is_of_one_place_and_has_a_name_of_its_own() -> None:
    mutations = mutations_of("a.py", SOURCE)
    assert len({mutation.name for mutation in mutations}) == len(mutations)
    assert mutations == mutations_of("a.py", SOURCE)
    for mutation in mutations:
        changed = mutation.applied(SOURCE)
        if changed is not None:
            grown = len(mutation.change.text) - (mutation.change.end - mutation.change.start)
            assert len(changed) == len(SOURCE) + grown
            assert changed[: mutation.change.start] == SOURCE[: mutation.change.start]


def test_what_means_the_same_or_nothing_is_no_change() -> None:
    mutation = mutations_of("a.py", "def f(x):\n    return x < 1\n")[0]
    assert mutation.applied("def f(x):\n    return x < 1\n") is not None
    assert mutation.applied("def f(x):\n    return (((((((((((((((((((((((\n") is None


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        mutations_of("a.py", "def f(:\n")


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("x = a < b", ["comparison: < -> <="]),
        ("x = a <= b", ["comparison: <= -> <"]),
        ("x = a > b", ["comparison: > -> >="]),
        ("x = a >= b", ["comparison: >= -> >"]),
        ("x = a == b", ["comparison: == -> !="]),
        ("x = a != b", ["comparison: != -> =="]),
        ("x = a is b", ["comparison: is -> is not"]),
        ("x = a is  not b", ["comparison: is  not -> is"]),
        ("x = a in b", ["comparison: in -> not in"]),
        ("x = a not in b", ["comparison: not in -> in"]),
        ("x = a < b <= c", ["comparison: < -> <=", "comparison: <= -> <"]),
        ("x = a + b", ["operator: + -> -"]),
        ("x = a - b", ["operator: - -> +"]),
        ("x = a * b", ["operator: * -> +"]),
        ("x = a / b", ["operator: / -> *"]),
        ("x = a // b", ["operator: // -> /"]),
        ("x = a % b", ["operator: % -> //"]),
        ("x = a ** b", ["operator: ** -> *"]),
        ("x = a & b", ["operator: & -> |"]),
        ("x = a | b", ["operator: | -> &"]),
        ("x = a << b", ["operator: << -> >>"]),
        ("x = a >> b", ["operator: >> -> <<"]),
        ("x = a @ b", []),
        ("x = a ^ b", []),
        ("x = 'n' % a", ["constant: 'n' -> 'u'"]),
        ("x = a + 'n'", ["constant: 'n' -> 'u'"]),
        ("x = f'{a}' + b", []),
        ("x = b'n' + a", []),
        ("x += a", ["deleted line: x += a -> pass", "operator: + -> -"]),
        ("x @= a", ["deleted line: x @= a -> pass"]),
        ("x: int", []),
        ("x: int = 1", ["off by one: 1 -> 2", "off by one: 1 -> 0"]),
        ("self.x = a", ["deleted line: self.x = a -> pass"]),
        ("x[0] = a", ["deleted line: x[0] = a -> pass"]),
        ("x = self.y = a", []),
        ("f(a)", ["deleted line: f(a) -> pass"]),
        ("await f()", ["deleted line: await f() -> pass"]),
        ("a.f", []),
        ("'''words'''", []),
        ("raise a", ["deleted line: raise a -> pass"]),
        ("continue", ["jump: continue -> break"]),
        ("break", ["jump: break -> continue"]),
        ("assert a < 1", []),
        ("x = f'{a + 1}'", []),
        (
            "if a:\n        b()",
            ["condition: a -> not (a)", "removed branch: a -> False", "deleted line: b() -> pass"],
        ),
        ("if TYPE_CHECKING:\n        b()", []),
        ("if typing.TYPE_CHECKING:\n        b(1)\n    else:\n        c()", []),
        ("while a:\n        b()", ["deleted line: b() -> pass"]),
        ("x = a if b else c", ["condition: b -> not (b)"]),
        ("x = a and b and c", ["condition: and -> or", "condition: and -> or"]),
        ("x = a or b", ["condition: or -> and"]),
        ("x = not a", ["condition: not a -> (a)"]),
        ("x = -a", []),
        ("x = True", ["constant: True -> False"]),
        ("x = False", ["constant: False -> True"]),
        ("x = 0", ["off by one: 0 -> 1", "off by one: 0 -> (-1)"]),
        ("x = 3", ["off by one: 3 -> 4", "off by one: 3 -> 2"]),
        ("x = 1.5", ["constant: 1.5 -> 4.0"]),
        ("x = None", []),
        ("x = ''", []),
        ("x = 'ab'", ["constant: 'ab' -> 'kb'"]),
        ('x = "ab"', ['constant: "ab" -> "kb"']),
        ("x = r'ab'", []),
        ("x = b'ab'", []),
        ("x = 'a' 'b'", []),
        ("x = '''ab'''", []),
        ("x = ...", []),
        ("return", []),
        ("return None", []),
        ("return a", ["nothing returned: a -> None"]),
        ("return a, b, b", ["nothing returned: a, b, b -> None", "swapped values: a, b -> b, a"]),
        ("return (a, *b)", ["nothing returned: (a, *b) -> None"]),
        ("return a, a", ["nothing returned: a, a -> None"]),
        ("x = f(a, b, c)", ["swapped arguments: a, b -> b, a", "swapped arguments: b, c -> c, b"]),
        ("x = f(a, a)", []),
        ("x = f(*a, b)", []),
        ("x = f(a, k=1)", ["off by one: 1 -> 2", "off by one: 1 -> 0"]),
        ("x = len(a)", ["off by one: len(a) -> (len(a) - 1)"]),
        ("x = min(a)", ["another function: min -> max"]),
        ("x = max(a)", ["another function: max -> min"]),
        ("x = a.lower()", ["another function: lower -> upper"]),
        ("x = a.b.startswith(c)", ["another function: startswith -> endswith"]),
        ("x = a.rfind(c)", ["another function: rfind -> find"]),
        ("x = union(a)", ["another function: union -> intersection"]),
        ("x = a.intersection(b)", ["another function: intersection -> union"]),
        ("x = ceil(a)", ["another function: ceil -> floor"]),
        ("print(a, 1)", []),
        ("log.info(a, 1)", []),
        ("self.logger.error(a, 1)", []),
        ("warnings.warn(a, 1)", []),
        ("get(1).log(a, 1)", []),
        ("x = logging.getLogger(a, b)", []),
        ("x = other(a).find(b)", ["another function: find -> rfind"]),
        (
            "def g(y=1):\n        return y",
            ["off by one: 1 -> 2", "off by one: 1 -> 0", "nothing returned: y -> None"],
        ),
        (
            "class A:\n        x = 1\n        def g(self):\n            return 2",
            [
                "off by one: 1 -> 2",
                "off by one: 1 -> 0",
                "nothing returned: 2 -> None",
                "off by one: 2 -> 3",
                "off by one: 2 -> 1",
            ],
        ),
        ("for i in a:\n        pass", []),
        ("with a(1) as b:\n        pass", ["off by one: 1 -> 2", "off by one: 1 -> 0"]),
        ("x = [i for i in a if i]", []),
        ("x = {a: 1}", ["off by one: 1 -> 2", "off by one: 1 -> 0"]),
        ("x = lambda: 1", ["off by one: 1 -> 2", "off by one: 1 -> 0"]),
    ],
)
def test_each_form_of_code_has_these_changes_and_no_others(body: str, changes: list[str]) -> None:
    text = f"{'async ' if body.startswith('await') else ''}def f():\n    {body}\n"
    assert [
        f"{one.kind}: {text[one.change.start : one.change.end]} -> {one.change.text}"
        for one in mutations_of("a.py", text)
    ] == changes


@pytest.mark.parametrize(("letters", "count"), [(38, 1), (39, 0)])
def test_a_text_is_changed_while_it_is_short(letters: int, count: int) -> None:
    assert len(mutations_of("a.py", f"def f():\n    x = '{'a' * letters}'\n")) == count


def test_functions_are_found_in_classes_and_branches_but_not_behind_guards() -> None:
    body = "    def {}(self): return 1\n"
    text = (
        "if A:\n" + body.format("a") + "else:\n" + body.format("b")
        + "try:\n" + body.format("c") + "except E:\n    pass\nelse:\n" + body.format("d")
        + "class C:\n" + body.format("e") + "    class D:\n    " + body.format("g")
        + "if __name__ == '__main__':\n" + body.format("h")
        + "for i in x:\n" + body.format("i") + "async def j(): return 1\n"
    )  # fmt: skip
    names = dict.fromkeys(mutation.function for mutation in mutations_of("a.py", text))
    assert list(names) == ["a", "b", "c", "d", "C.e", "C.D.g", "j"]


def test_a_change_is_named_by_its_file_its_place_and_its_text() -> None:
    one, *_ = mutations_of("a.py", "def f(): return x < 1\n")
    (other, *_), (moved, *_) = (
        mutations_of(path, text)
        for path, text in [
            ("b.py", "def f(): return x < 1\n"),
            ("a.py", "def f(): return  x < 1\n"),
        ]
    )
    assert one.place == "a.py::f"
    assert len({one.name, other.name, moved.name}) == 3
    assert len(one.name) == 10
