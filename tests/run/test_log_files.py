"""Logs of other programs, which hold their file open, are emptied into files with a number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clawrl_gym.core.files.log_files import files_of_log, is_full_file, rotate_program_log
from clawrl_gym.inference.vllm.server_log import ServerLog

WRITER = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


def test_a_program_goes_on_writing_into_a_log_that_was_emptied(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    with path.open("ab") as output:
        program = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=output, text=True
        )
    assert program.stdin is not None
    sent = 0
    for round_ in range(6):
        while path.stat().st_size < 1000:
            program.stdin.write(f"line {sent}\n")
            program.stdin.flush()
            sent += 1
            while not path.read_bytes().endswith(f"line {sent - 1}\n".encode()):
                pass
        path.chmod(0o600)
        rotate_program_log(path, full_bytes=1000, kept=10)
        assert path.stat().st_size == 0, round_
    program.stdin.write("the end\n")
    program.stdin.close()
    program.wait(60)
    files = files_of_log(path)
    assert [file.name for file in files[:2]] == ["vllm.000001.log", "vllm.000002.log"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    lines = "".join(file.read_text() for file in files).splitlines()
    assert lines == [*(f"line {number}" for number in range(sent)), "the end"]


def test_the_newest_full_files_are_kept_and_numbers_only_count_up(tmp_path: Path) -> None:
    path = tmp_path / "vllm-1.log"
    for number in range(7):
        with path.open("a") as file:
            file.write(f"{number}" * 20)
        rotate_program_log(path, full_bytes=20, kept=2)
    assert [file.name for file in files_of_log(path)] == [
        "vllm-1.000006.log", "vllm-1.000007.log", "vllm-1.log"
    ]  # fmt: skip
    assert (tmp_path / "vllm-1.000007.log").read_text() == "6" * 20


def test_a_log_that_is_not_full_or_not_there_is_left_alone(tmp_path: Path) -> None:
    rotate_program_log(tmp_path / "none.log")
    (tmp_path / "vllm.log").write_text("short")
    rotate_program_log(tmp_path / "vllm.log")
    assert [path.name for path in tmp_path.iterdir()] == ["vllm.log"]


def test_what_cannot_be_copied_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text("x" * 100)
    (tmp_path / "vllm.log.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        rotate_program_log(tmp_path / "vllm.log", full_bytes=10)
    assert (tmp_path / "vllm.log").read_text() == "x" * 100


def test_a_launch_still_reads_its_own_words_when_its_log_was_emptied(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("of an earlier launch\n" * 50)
    log = ServerLog(path)
    rotate_program_log(path, full_bytes=10)
    with path.open("a") as file:
        file.write("INFO Starting to load model /m\nValueError: the cause\n")
    assert log.new_phases() == ["loading weights"]
    assert log.last_words() == "ValueError: the cause"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("metrics.000001.jsonl", True),
        ("metrics.jsonl", False),
        ("metrics.1.jsonl", False),
        ("metrics.0000001.jsonl", False),
        ("metricsx000001.jsonl", False),
        ("other.000001.jsonl", False),
        ("metrics.000001.jsonl.new", False),
    ],
)
def test_full_files_are_told_by_their_names(name: str, is_one: bool) -> None:
    assert is_full_file(name, "metrics.jsonl") is is_one
