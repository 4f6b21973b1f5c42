"""What loaders leave out, and in which words it is told."""

import json

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.provenance import read_starts, record_notes
from clawrl_gym.envs.selection import LeftOut, Selection, select, selection_of
from clawrl_gym.envs.terminal.__main__ import _arguments, _make
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.folders.folder_tasks import FolderTasks
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures
from clawrl_gym.envs.validate import main
from tests.support.terminal_folders import APART, HELLO, write

GPU = {"task.toml": "[environment]\ngpus = 1\n"}


def a_set(root):
    """Four that can be used, two that ask for a GPU, one without a base, one that is no task."""
    for name in "abcd":
        write(root / name, APART)
    write(root / "gpu1", APART, **GPU)
    write(root / "gpu2", APART, **GPU)
    write(root / "ubuntu", APART, **{"environment/Dockerfile": "FROM ubuntu:24.04\n"})
    (root / "notes").mkdir()
    return root


def test_what_cannot_load_is_left_out_and_never_drawn(tmp_path):
    source = FolderTasks.open(a_set(tmp_path), SandboxFeatures())
    assert sorted(source.ids("train") + source.ids("heldout")) == ["a", "b", "c", "d"]
    assert [entry.name for entry in source.selection.left_out] == [
        "gpu1", "gpu2", "notes", "ubuntu",
    ]  # fmt: skip
    assert selection_of(source) is source.selection


def test_reasons_that_differ_in_names_only_are_one_line(tmp_path):
    summary, *reasons = FolderTasks.open(a_set(tmp_path), SandboxFeatures()).selection.lines()
    assert summary == "4 tasks used, 4 left out:"
    assert reasons[0].startswith("  2: task folder ")
    assert reasons[0].endswith("asks for gpus: not supported (gpu1, gpu2)")
    assert len(reasons) == 3
    assert "needs sandbox=docker" in "".join(reasons)
    assert "has neither task.toml" in "".join(reasons)


def test_where_all_are_used_nothing_is_told(tmp_path):
    write(tmp_path / "a", HELLO)
    assert TerminalEnvConfig.of({"tasks": str(tmp_path)}).left_out() == ()
    assert TerminalEnvConfig.of({}).left_out() == ()


def test_a_set_of_which_nothing_can_be_used_is_refused_with_the_reasons(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, APART, **GPU)
    with pytest.raises(TaskError, match=r"no task of .* can be used here: 2: .*gpus.*\(one, two\)"):
        TerminalEnvConfig.of({"tasks": str(tmp_path)}).task_ids("train")


@pytest.mark.parametrize("names", ["ab", "cd", "xy", "gh", "pq"])
def test_of_two_folders_the_one_that_can_be_used_is_trained_on(tmp_path, names):
    good, bad = names
    write(tmp_path / good, APART)
    write(tmp_path / bad, APART, **GPU)
    source = FolderTasks.open(tmp_path, SandboxFeatures())
    assert (source.ids("train"), source.ids("heldout")) == ([good], [])
    assert source.load(good).split == "train"


@pytest.mark.parametrize("bad", range(8))
def test_one_of_each_split_can_be_used_whatever_else_cannot(tmp_path, bad):
    for number in range(2):
        write(tmp_path / f"good{number}", APART)
    for number in range(bad):
        write(tmp_path / f"bad{number}", APART, **GPU)
    source = FolderTasks.open(tmp_path, SandboxFeatures())
    assert len(source.ids("train")) == len(source.ids("heldout")) == 1


def test_a_folder_that_was_mended_is_tried_again(tmp_path):
    write(tmp_path / "a", APART)
    write(tmp_path / "b", APART, **{"instruction.md": None})
    config = TerminalEnvConfig.of({"tasks": str(tmp_path)})
    assert len(config.left_out()) == 2
    write(tmp_path / "b", APART)
    assert config.left_out() == ()


def test_many_reasons_and_long_ones_are_cut():
    words = "abcdefghijklmnopqrstuvwxyz"
    left_out = tuple(LeftOut(f"task-{c}", f"{c * 8} " + "w " * 300) for c in words)
    lines = Selection(1, left_out).lines()
    assert lines[0] == "1 task used, 26 left out:"
    assert lines[-1] == "  14: 14 further reasons"
    assert max(map(len, lines)) < 350
    many = Selection(0, tuple(LeftOut(f"t{n}", f"row {n} is 'x{n}'") for n in range(9)))
    assert many.lines()[1] == "  9: row 0 is 'x0' (t0, t1, t2, t3, t4 and 4 more)"


def test_what_a_loader_did_not_expect_is_a_reason_too():
    def load(value):
        return {"good": 1}[value]

    used, left_out = select([("a", "good"), ("b", "bad")], load)
    assert used == ["a"]
    assert left_out[0].name == "b"
    assert "KeyError" in left_out[0].reason


@pytest.mark.sandbox
def test_validate_tells_what_it_left_out_and_does_not_hold(tmp_path, capsys):
    write(tmp_path / "gpu", APART, **GPU)
    write(tmp_path / "good", APART)
    command = ["validate", str(tmp_path), "--sandbox", "bubblewrap"]
    assert main("p", _arguments, _make, command) == 1
    told = capsys.readouterr().out
    assert "1 of 1 tasks hold." in told
    assert "1 task used, 1 left out:" in told
    assert main("p", _arguments, _make, [*command, "--json"]) == 1
    rows = {row["task"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["good"]["ok"]
    assert rows["gpu"]["error"].startswith("left out: task folder")


def test_a_task_that_was_left_out_cannot_be_asked_for(tmp_path, capsys):
    write(tmp_path / "gpu", APART, **GPU)
    write(tmp_path / "good", APART)
    command = ["validate", str(tmp_path), "--sandbox", "bubblewrap", "--ids", "gpu"]
    assert main("p", _arguments, _make, command) == 2
    assert "got --ids gpu, which cannot be used: task folder" in capsys.readouterr().err


def test_a_run_keeps_what_was_told_at_its_start(tmp_path):
    record_notes(tmp_path, ["before any start"])
    assert read_starts(tmp_path) == []
    (tmp_path / "run.json").write_text(json.dumps({"starts": [{"command": "a"}, {"command": "b"}]}))
    record_notes(tmp_path, ["1 task used, 2 left out:"])
    assert [start.get("notes") for start in read_starts(tmp_path)] == [
        None, ["1 task used, 2 left out:"],
    ]  # fmt: skip


def test_the_twelve_most_frequent_reasons_are_told_and_the_others_counted():
    def left_out(kinds):
        letters = "abcdefghijklmnop"[:kinds]
        return tuple(
            LeftOut(f"{letter}{number}", f"no {letter}: {letter}{number}")
            for place, letter in enumerate(letters)
            for number in range(20 - place)
        )

    summary, *lines = Selection(1, left_out(12)).lines()
    assert summary == "1 task used, 174 left out:"
    assert len(lines) == 12
    assert lines[0] == "  20: no a: a0 (a0, a1, a2, a3, a4 and 15 more)"
    lines = list(Selection(1_200, left_out(14)).lines())
    assert lines[0] == "1,200 tasks used, 189 left out:"
    assert lines[13:] == ["  15: 2 further reasons"]


def test_five_names_are_told_and_a_reason_has_a_longest():
    def line(count, length=3):
        entries = tuple(LeftOut(f"t{number}", "x" * length) for number in range(count))
        return Selection(0, entries).lines()[1].strip()

    assert line(5) == "5: xxx (t0, t1, t2, t3, t4)"
    assert line(6) == "6: xxx (t0, t1, t2, t3, t4 and 1 more)"
    assert line(1, 300) == f"1: {'x' * 300} (t0)"
    assert line(1, 301) == f"1: {'x' * 296} ... (t0)"


def test_what_is_not_trusted_and_what_else_there_is_come_last():
    selection = Selection(3, (), ("a", "b"), ("All well.",))
    assert selection.lines() == (
        "2 of 3 tasks used have grades that are not trusted, as an agent may have prepared them "
        "(a, b)",
        "All well.",
    )
    assert Selection(3).lines() == ()
    with pytest.raises(TaskError, match=r"no task of here can be used here: there is none$"):
        Selection(0).require_some("here")
    Selection(1).require_some("here")


def test_why_one_is_left_out_is_found_by_its_name():
    selection = Selection(0, (LeftOut("a", "no a"), LeftOut("b", "no b")))
    assert [selection.reason_of(name) for name in ("a", "b", "c")] == ["no a", "no b", None]
    assert selection_of(object()) is None
