import json
from typing import Any

import pytest
from rich.console import Console

from clawrl_gym.core.errors import ConfigError, EnvError, SandboxError, TaskError
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.terminal.__main__ import _arguments, _make, _prepare
from clawrl_gym.envs.validate import TaskCheck, main, show, validate, validate_with
from tests.support.terminal_folders import STEPS, write


class Env:
    """Tasks by name: what their oracle and what doing nothing earns, or the error they raise."""

    def __init__(self, **tasks):
        self.tasks = {"good": (1.0, 0.0), **tasks}
        self.closed = False

    selection = None
    report = ""

    def task_ids(self, split):
        return list(self.tasks) if split == "train" else []

    def reset(self, *, options=None):
        self.found = self.tasks[options["task"]]
        self.solved = False
        if isinstance(self.found, Exception):
            raise self.found
        return "do", {"family": "f"}

    def solve(self):
        if self.found[0] is None:
            raise TaskError("it has no solution")
        return ("first", "last")

    def step(self, action):
        self.solved = action == "last"
        ends = self.solved and len(self.found) > 2
        return "", self.found[0] if ends else 0.0, ends, False, {}

    def finish(self):
        return self.found[0] if self.solved else self.found[1]

    def close(self):
        self.closed = True


def run(env, *arguments, capsys=None):
    return main("p", lambda parser: None, lambda given, sandbox: env, ["validate", ".", *arguments])


def test_a_task_holds_when_the_oracle_solves_it_and_nothing_does_not():
    (checked,) = validate(Env(), ["good"])
    assert (checked.oracle, checked.noop, checked.ok, checked.verdict) == (1.0, 0.0, True, "ok")
    assert checked.family == "f"
    assert validate(Env(ends=(1.0, 0.0, "ends")), ["ends"])[0].ok


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ((0.5, 0.0), "the oracle earns 0.5, expected 1"),
        ((1.0, 1.0), "doing nothing earns 1, expected 0"),
        ((0.0, -1.0), "the oracle earns 0, expected 1; doing nothing earns -1, expected 0"),
        ((None, 0.0), "it has no solution"),
        (SandboxError("no image"), "no image"),
        (EnvError("broken"), "broken"),
        (OSError("disk full"), "task 'x': OSError: disk full"),
        (KeyError("k"), "task 'x': KeyError: 'k'"),
    ],
)
def test_what_is_wrong_with_a_task_is_said_once(found, verdict):
    (checked,) = validate(Env(x=found), ["x"])
    assert (checked.ok, checked.verdict) == (False, verdict)


def test_what_the_oracle_misses_is_named():
    env = Env(x=(0.0, 0.0))
    env.report = report_of(["tests/a.py::test_b did not run", "test_c fails"])
    (checked,) = validate(env, ["x"])
    assert checked.failures == ("tests/a.py::test_b did not run", "test_c fails")
    assert checked.verdict == (
        "the oracle earns 0, expected 1 (tests/a.py::test_b did not run; test_c fails)"
    )


def test_one_bad_task_does_not_end_the_others():
    heard: list[Any] = []
    found = validate(Env(bad=TaskError("no")), ["bad", "good"], heard.append)
    assert [checked.ok for checked in found] == [False, True]
    assert heard == found


def test_several_environments_share_the_tasks_and_keep_their_order():
    ids = [f"t{number}" for number in range(20)]
    tasks = dict.fromkeys(ids, (1.0, 0.0))
    found = validate_with([Env(**tasks), Env(**tasks), Env(**tasks)], ids)
    assert [checked.task for checked in found] == ids
    assert all(checked.ok for checked in found)


def test_the_exit_code_says_whether_all_hold(capsys):
    env = Env()
    assert run(env) == 0
    assert env.closed
    assert "1 of 1 tasks hold." in capsys.readouterr().out
    assert run(Env(bad=(0.0, 0.0))) == 1
    out = capsys.readouterr().out
    assert "1 of 2 tasks hold." in out
    assert "the oracle earns 0" in out


def test_the_rows_come_as_json_too(capsys):
    assert run(Env(bad=(None, 0.0)), "--json") == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["task"], row["ok"], row["oracle"]) for row in rows] == [
        ("good", True, 1.0), ("bad", False, None),
    ]  # fmt: skip


def test_tasks_can_be_chosen(capsys):
    env = Env(a=(1.0, 0.0), b=(1.0, 0.0))
    for arguments, names in (
        (["--ids", "b,a"], ["b", "a"]), (["--limit", "2"], ["good", "a"]),
    ):  # fmt: skip
        assert run(env, "--json", "--jobs", "1", *arguments) == 0
        assert [row["task"] for row in json.loads(capsys.readouterr().out)] == names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ids", "nothing"], "got --ids nothing, expected some of ['good']"),
        (["--ids", ","], "there is no task"),
        (["--split", "heldout"], "there is no task in '.' (--split heldout)"),
    ],
)
def test_a_choice_of_no_task_is_refused_in_one_line(capsys, arguments, message):
    assert run(Env(), *arguments) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_how_far_it_is_stands_beside_the_table(capsys, arguments):
    assert run(Env(), *arguments) == 0
    shown = capsys.readouterr()
    assert shown.err == "1 of 1 tasks, left 0:00\n"
    assert "left 0:00" not in shown.out


@pytest.mark.parametrize("error", [ConfigError("no folder"), TaskError("bad"), SandboxError("no")])
def test_tasks_that_cannot_be_opened_are_one_line(capsys, error):
    def broken(given, sandbox):
        raise error

    assert main("p", lambda parser: None, broken, ["validate", "x"]) == 2
    assert capsys.readouterr().err == f"p: {error}\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["validate"], ["play", "x"], ["validate", "x", "--jobs", "0"],
     ["validate", "x", "--limit", "-1"], ["validate", "x", "--limit", "1e9"],
     ["validate", "x", "--jobs", "9999999"], ["validate", "x", "--sandbox", "vm"]],
)  # fmt: skip
def test_a_wrong_command_is_refused(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main("p", lambda parser: None, lambda given, sandbox: Env(), arguments)
    assert "p" in capsys.readouterr().err


def test_the_environment_is_made_with_the_sandbox_that_was_asked_for():
    asked = []

    def make(given, sandbox):
        asked.append((given.path, given.extra, dict(sandbox)))
        return Env()

    prepared = []

    def add_extra(parser):
        parser.add_argument("--extra")

    code = main(
        "p", add_extra, make,
        ["validate", "p", "--sandbox", "docker", "--extra", "e", "--jobs", "4"],
        prepare=lambda given, sandbox, say: prepared.append(sandbox["type"]),
    )  # fmt: skip
    assert (code, prepared) == (0, ["docker"])
    assert asked == [("p", "e", {"type": "docker"})]  # one job is enough for one task


def test_a_name_that_looks_like_markup_stays_as_it_is():
    console = Console(width=100, record=True, force_terminal=False)
    show([TaskCheck("[red]a", "f", None, None, "[bold]bad [/]", 0.1)], console)
    shown = console.export_text()
    assert "[red]a" in shown
    assert "[bold]bad [/]" in shown


@pytest.mark.sandbox
def test_a_users_folder_is_checked_by_the_command(tmp_path, capsys):
    write(tmp_path / "good", STEPS)
    never = {"steps/two/tests/test.sh": "echo 0 > /logs/verifier/reward.txt"}
    write(tmp_path / "never", STEPS, **never)
    write(tmp_path / "broken", STEPS, **{"environment/Dockerfile": "FROM host\nRUN exit 3\n"})
    given = ["validate", str(tmp_path), "--sandbox", "bubblewrap", "--json", "--jobs", "2"]
    assert main("p", _arguments, _make, given, prepare=_prepare) == 1
    rows = {row["task"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["good"]["ok"]
    assert rows["never"]["oracle"] == 0.5
    assert "exit code 3" in rows["broken"]["error"]
