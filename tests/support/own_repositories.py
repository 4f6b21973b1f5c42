"""Small repositories as somebody could have them, for tests that make bugs in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

CART = '''\
"""The cart."""


class Cart:
    """What somebody wants to buy."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []

    def add(self, name: str, price: int, count: int = 1) -> None:
        """Put something in."""
        if count < 1:
            raise ValueError(f"count {count} is below 1")
        self.lines.append((name, price, count))

    def total(self, fee: int = 0) -> int:
        """All prices, and the fee where there is anything."""
        total = 0
        for _, price, count in self.lines:
            total += price * count
        return total + fee if total > 0 else 0
'''
TEXT = '''\
def pages(items, size):
    """Split into pages."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def slug(title, separator="-"):
    return separator.join(title.lower().split())


def unused(value):
    if value > 3:
        return value + 1
    return value - 1
'''
TEST_CART = """\
import pytest

from shop.cart import Cart


def filled():
    cart = Cart()
    cart.add("pen", 2, 3)
    cart.add("ink", 5)
    return cart


def test_total_multiplies_prices():
    assert filled().total() == 11


def test_fee_is_added():
    assert filled().total(fee=3) == 14


@pytest.mark.parametrize("count", [0, -1])
def test_count_must_be_positive(count):
    with pytest.raises(ValueError):
        Cart().add("pen", 1, count)
"""
TEST_TEXT = """\
import unittest

from shop import text


class TextTest(unittest.TestCase):
    def test_pages(self):
        self.assertEqual(text.pages([1, 2, 3], 2), [[1, 2], [3]])

    def test_slug(self):
        self.assertEqual(text.slug("Big  News"), "big-news")
"""
SHOP: Mapping[str, str] = {
    "README.md": "# A shop\n",
    "src/shop/__init__.py": "",
    "src/shop/cart.py": CART,
    "src/shop/text.py": TEXT,
    "tests/test_cart.py": TEST_CART,
    "tests/test_text.py": TEST_TEXT,
}
_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@localhost",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
}


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def make_repository(folder: Path, files: Mapping[str, str] = SHOP) -> Path:
    """A repository with these files in its only commit."""
    folder.mkdir(parents=True)
    write_files(folder, files)
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | _ENV,
    ).stdout
