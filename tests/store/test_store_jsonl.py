"""Taking lines out of a log that others append to."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.jsonl import JsonLines, read_json_lines


def keep(line: bytes) -> bool:
    return b"gone" not in line


def test_only_the_lines_that_are_not_kept_leave(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = JsonLines(path)
    for number in range(9):
        lines.append({"id": number, "text": "gone" if number % 3 == 1 else "kept"})
    path.chmod(0o600)
    assert lines.rewrite(keep) == 3
    assert lines.rewrite(keep) == 0
    lines.append({"id": 9})
    lines.close()
    assert [row["id"] for row in read_json_lines(path)] == [0, 2, 3, 5, 6, 8, 9]
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_without_such_lines_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = JsonLines(path)
    lines.append({"id": 1})
    before = path.stat().st_ino
    assert lines.rewrite(keep) == 0
    assert path.stat().st_ino == before
    lines.close()


def test_no_line_that_is_appended_meanwhile_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = JsonLines(path)
    total = 4000

    def write(part: int) -> None:
        for number in range(part, total, 4):
            lines.append({"id": number, "text": "gone" if number % 5 == 0 else "x" * 200})

    writers = [threading.Thread(target=write, args=(part,)) for part in range(4)]
    for writer in writers:
        writer.start()
    passes = 0
    while any(writer.is_alive() for writer in writers) or passes < 3:
        lines.rewrite(keep)
        passes += 1
    for writer in writers:
        writer.join()
    lines.rewrite(keep)
    lines.close()
    left = sorted(int(str(row["id"])) for row in read_json_lines(path))
    assert left == [number for number in range(total) if number % 5]


def test_a_copy_that_a_kill_left_behind_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"id": 1}\n')
    (tmp_path / "log.jsonl.new").write_text('{"id": 1}\n{"id": 2, "text": "half of')
    JsonLines(path).close()
    assert list(tmp_path.iterdir()) == [path]
    assert read_json_lines(path) == [{"id": 1}]


def test_a_log_that_cannot_be_written_again_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = JsonLines(path)
    lines.append({"text": "gone"})
    (tmp_path / "log.jsonl.new").mkdir()
    with pytest.raises(StoreError, match=r"cannot rewrite .*log\.jsonl"):
        lines.rewrite(keep)
    lines.append({"id": 2})
    lines.close()
    assert len(read_json_lines(path)) == 2
