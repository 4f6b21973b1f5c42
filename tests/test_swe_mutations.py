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
