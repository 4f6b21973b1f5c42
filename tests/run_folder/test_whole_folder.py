"""Folders that take the place of others whole, whatever a crash left; files in two places; and
what names a picture."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.files.files import cache_root, link_or_copy
from clawrl_gym.core.files.whole_folder import begin_folder, end_folder, finish_folder, link_folder
from clawrl_gym.core.pictures import (
    digest_of_part,
    parts_of,
    picture_part,
    pictures_of,
    text_of,
)
from clawrl_gym.core.repeats import Repeats


def made(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text(content)
    return folder


def content(folder: Path) -> str:
    return (folder / "sub" / "file").read_text()


def test_a_new_folder_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    place = tmp_path / "model"
    for words in ("first", "second"):
        partial = begin_folder(place)
        assert not partial.exists()
        assert partial.parent == tmp_path
        made(partial, words)
        end_folder(place)
        assert content(place) == words
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
    made(begin_folder(place), "given up")
    assert content(place) == "second"
    assert not begin_folder(place).exists(), "what was given up is gone"


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({"model": "old", ".model.partial": "half"}, "old"),
        ({".model.old": "old", ".model.partial": "new"}, "new"),
        ({".model.old": "old"}, "old"),
        ({"model": "new", ".model.old": "old"}, "new"),
    ],
)
def test_a_replacement_that_a_crash_cut_is_completed(
    tmp_path: Path, there: dict[str, str], expected: str
) -> None:
    for name, words in there.items():
        made(tmp_path / name, words)
    finish_folder(tmp_path / "model")
    assert content(tmp_path / "model") == expected
    assert not (tmp_path / ".model.old").exists()
    begin_folder(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_nothing_is_completed_where_nothing_was(tmp_path: Path) -> None:
    finish_folder(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_a_second_place_has_the_same_files(tmp_path: Path) -> None:
    source = made(tmp_path / "source", "words")
    (source / "top").write_text("more")
    target = made(tmp_path / "target", "old")
    link_folder(source, target)
    assert (content(target), (target / "top").read_text()) == ("words", "more")
    assert (target / "top").stat().st_ino == (source / "top").stat().st_ino
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_a_file_of_another_file_system_is_copied(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        link_or_copy(tmp_path / "file", Path(other, "file"))
        assert Path(other, "file").read_text() == "words"


def test_a_users_cache_is_where_it_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    assert cache_root() == tmp_path / "not" / "yet" / "clawrl_gym"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    instead = Path(tempfile.gettempdir(), f"clawrl-cache-{os.getuid()}", "clawrl_gym")
    assert cache_root() == instead
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "clawrl_gym"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nobody")
    assert cache_root() in (instead, Path("/proc/nobody/clawrl_gym")), "root may write anywhere"


def test_counts_of_like_lines_are_since_they_were_told_last() -> None:
    now_s, lines = 100.0, list[str]()
    repeats = Repeats(lines.append, every_s=30, clock=lambda: now_s)
    short, long = "y" * 120, "x" * 121
    for line in (short, long, short, long, short):
        repeats.add(line)
    now_s = 129.0
    repeats.flush_if_due()
    assert lines == [short, long]
    now_s = 130.0
    repeats.flush_if_due()
    assert lines[2:] == [
        f"2 more like this in 30 s: {short}", f"1 more like this in 30 s: {'x' * 120}...",
    ]  # fmt: skip
    now_s = 165.0
    repeats.flush_if_due()
    assert len(lines) == 4, "they are told once"
    repeats.add(short)
    now_s = 200.0
    repeats.add(short)
    assert lines[4:] == [short, short], "each time it is told anew"


def test_pictures_and_words_of_messages_are_told_apart() -> None:
    part = picture_part("abc")
    assert digest_of_part(part) == "abc"
    text: Any = {"type": "text", "text": "see"}
    strange: list[Any] = [
        None, "image_url", text, {"type": "image_url"}, {"type": "image_url", "image_url": "x"},
        {"type": "image_url", "image_url": {"url": 3}},
        {"type": "image_url", "image_url": {"url": "https://somewhere"}},
        {"type": "text", "image_url": {"url": "sha256:abc"}},
    ]  # fmt: skip
    assert [digest_of_part(one) for one in strange] == [None] * len(strange)
    messages: Any = [
        {"role": "user", "content": [part, text, picture_part("d"), part]},
        {"role": "assistant", "content": "words"}, {"role": "assistant", "content": None},
        {"role": "user", "content": strange},
    ]  # fmt: skip
    assert pictures_of(messages) == ("abc", "d", "abc")
    assert [len(parts_of(message)) for message in messages] == [4, 0, 0, len(strange)]
    assert [text_of(message) for message in messages] == [
        "(picture)\nsee\n(picture)\n(picture)", "words", "",
        "see\n(picture)\n(picture)\n(picture)\n(picture)",
    ]  # fmt: skip
