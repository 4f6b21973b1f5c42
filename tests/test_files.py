from __future__ import annotations

from pathlib import Path

import pytest

from clawrl_gym.core.files import replace_text


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for text in ("first", "second, with a lone \ud800"):
        replace_text(path, text)
    assert path.read_text() == "second, with a lone ?"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("whole")
    (tmp_path / "page.html.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_text(path, "half")
    assert path.read_text() == "whole"
