from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clawrl_gym.core.files.files import make_private, private_files, replace_text
from clawrl_gym.run_folder.folder import RunFolder


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


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_made_inside_is_its_owners_alone_even_by_programs_that_are_started(
    tmp_path: Path,
) -> None:
    with private_files():
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").touch()
        subprocess.run(["touch", tmp_path / "of_a_program"], check=True)
    (tmp_path / "later").touch(mode=0o644)
    assert mode(tmp_path / "folder") == 0o700
    assert mode(tmp_path / "file") == mode(tmp_path / "of_a_program") == 0o600
    assert mode(tmp_path / "later") == 0o644


def test_an_older_folder_is_taken_from_everybody_else(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "vllm.log").touch()
    (run / "tool").touch(mode=0o755)
    outside.touch(mode=0o644)
    (run / "link").symlink_to(outside)
    run.chmod(0o755)
    assert make_private(run)
    assert mode(run) == mode(run / "logs") == mode(run / "tool") == 0o700
    assert mode(run / "logs" / "vllm.log") == 0o600
    assert mode(outside) == 0o644
    assert not make_private(run)


def test_only_a_runs_folder_is_taken(tmp_path: Path) -> None:
    """`run.dir=.` may be somebody's home."""
    for folder in (empty := tmp_path / "empty", home := tmp_path / "home", run := tmp_path / "run"):
        folder.mkdir(mode=0o755)
    (home / "letters").touch()
    (run / "config.yaml").touch()
    assert RunFolder(empty).take()
    assert RunFolder(run).take()
    assert not RunFolder(home).take()
    assert not RunFolder(tmp_path / "absent").take()
    assert [mode(folder) for folder in (empty, home, run)] == [0o700, 0o755, 0o700]
