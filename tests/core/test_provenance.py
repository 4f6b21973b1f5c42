from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from clawrl_gym.core.provenance import (
    describe_start,
    read_starts,
    record_start,
    run_quietly,
    tree_memory_gb,
)


def test_the_command_is_the_one_that_was_typed() -> None:
    code = "import sys, clawrl_gym.core.provenance as p; sys.stdout.write(p.command_line())"
    command = [sys.executable, "-c", code, "env=terminal", "agent.system=two words"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(Path(sys.executable).name + " -c ")
    assert said.endswith("env=terminal 'agent.system=two words'")


def test_a_start_names_the_machine_and_the_versions() -> None:
    start = describe_start()
    assert start["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert 0 < start["machine"]["memory_gb"] < 1e5
    assert "ray" in start["versions"]
    json.dumps(start)


def test_each_start_of_a_run_is_kept(tmp_path: Path) -> None:
    record_start(tmp_path)
    record_start(tmp_path)
    assert len(read_starts(tmp_path)) == 2


def test_a_broken_record_is_none(tmp_path: Path) -> None:
    assert read_starts(tmp_path) == []
    (tmp_path / "run.json").write_text('{"starts": [')
    assert read_starts(tmp_path) == []


def test_a_command_that_fails_says_nothing() -> None:
    assert run_quietly(["/no/such/program"]) == ""
    assert run_quietly(["sh", "-c", "echo part; exit 1"]) == ""
    assert run_quietly(["sleep", "5"], timeout_s=0.05) == ""


def test_the_memory_of_a_tree_counts_its_children() -> None:
    alone = tree_memory_gb()
    code = "x = bytearray(200 << 20); print('made', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    try:
        assert 0.18 < tree_memory_gb() - alone < 0.5
        assert 0.18 < tree_memory_gb(child.pid) < 0.5
    finally:
        child.communicate(b"\n", timeout=60)
    assert tree_memory_gb(2**22 + 1) == 0.0
