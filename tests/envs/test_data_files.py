"""One odd row or byte of a data file costs only itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.selection import Selection
from clawrl_gym.envs.swe.rows.loader import read_rows
from clawrl_gym.envs.toolcall.env import ToolCallEnv

GOOD: dict[str, Any] = {
    "id": "good", "instruction": "What is 17 * 23?", "toolsets": ["calculator"], "split": "train",
    "goals": [{"type": "answer", "wanted": "391"}],
}  # fmt: skip
ODD_BYTES = {
    "a byte order mark": (b"\xef\xbb\xbf%s", 0),
    "Windows line ends": (b"%s\r\n\r\n", 0),
    "blank lines": (b"\n\n%s\n\n", 0),
    "a row in Latin-1": (b'%s\n{"id": "caf\xe9", "instance_id": "caf\xe9"}\n', 1),
    "a first row in Latin-1": (b'{"id": "caf\xe9", "instance_id": "caf\xe9"}\n%s\n', 1),
    "half a pair": (b'%s\n{"id": "\\ud83d", "instance_id": "\\ud83d"}\n', 1),
    "a row that is cut": (b'%s\n{"id": "x", \n', 1),
    "words": (b"%s\nhello\n", 1),
    "a comment": (b"// tasks\n%s\n", 1),
    "a zero byte": (b"%s\n\0\0\n", 1),
    "a deep row": (b"%s\n" + b"[" * 100_000 + b"\n", 1),
    "a long number": (b'%s\n{"id": ' + b"9" * 5_000 + b"}\n", 1),
    "null": (b"%s\nnull\n", 1),
    "a list": (b"%s\n[1]\n", 1),
    "a bare text": (b'%s\n"good"\n', 1),
}


def write(tmp_path: Path, form: bytes, row: object) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(form.replace(b"%s", json.dumps(row).encode()))
    return str(path)


def toolcall(place: str) -> tuple[list[str], Selection]:
    with ToolCallEnv(tasks=place) as env:
        selection = env.selection
        assert selection is not None
        return list(env.task_ids("train")), selection


@pytest.mark.parametrize("form", ODD_BYTES.values(), ids=list(ODD_BYTES))
def test_odd_bytes_cost_only_the_row_that_they_stand_in(
    tmp_path: Path, form: tuple[bytes, int]
) -> None:
    text, left_out = form
    ids, selection = toolcall(write(tmp_path, text, GOOD))
    assert (ids, len(selection.left_out)) == (["good"], left_out)
    rows = read_rows(write(tmp_path, text, {"instance_id": "good"}))
    assert (list(rows.rows), len(rows.left_out)) == (["good"], left_out)
    for line in selection.lines():
        assert line.encode()


@pytest.mark.parametrize(
    "change",
    [
        {"id": 5}, {"id": None}, {"id": ""}, {"id": "   "}, {"id": "a\nb"}, {"id": "a\0"},
        {"id": "x" * 500}, {"id": "good"}, {"instruction": ""}, {"instruction": 5},
        {"instruction": "a\ud83db"}, {"goals": []}, {"goals": {}}, {"goals": [{"type": "no"}]},
        {"goals": [{"type": "answer"}]}, {"goals": [{"type": "answer", "wanted": 391}]},
        {"goals": [{"type": "program", "program": "if ("}]},
        {"goals": [{"type": "program", "program": "\0"}]},
        {"goals": [{"type": "state", "toolset": "none", "wanted": 1}]},
        {"goals": [{"type": "said", "texts": [""]}]}, {"toolsets": ["none"]},
        {"toolsets": "calculator"}, {"tools": ["none"]}, {"split": "test"}, {"extra": 1},
        {"solution": "391"}, {"state": []}, {"customer": 5}, {"turns": 0}, {"system": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_row_that_cannot_be_used_costs_only_itself(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    odd = {**GOOD, "id": "odd", **change}
    ids, selection = toolcall(write(tmp_path, b"%s\n" + json.dumps(odd).encode(), GOOD))
    assert (ids, len(selection.left_out)) == (["good"], 1)
    assert len([line for line in selection.lines() if "left out" in line]) == 1


def test_a_file_without_any_row_that_can_be_used_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    with pytest.raises(TaskError, match="not UTF-8"):
        toolcall(write(tmp_path, b'{"id": "caf\xe9"}\n', GOOD))
