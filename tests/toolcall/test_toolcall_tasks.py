"""Tasks of a user's file, the command that plays them, and programs that grade."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import ConfigError, SandboxError, TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult, SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.toolcall.__main__ import _arguments, _make
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.goals import (
    AnswerGoal,
    CallsGoal,
    ExpectedCall,
    MentionGoal,
    StateGoal,
)
from clawrl_gym.envs.toolcall.grading import ProgramGoal, grade
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome
from clawrl_gym.envs.toolcall.task_file import open_file
from clawrl_gym.envs.toolcall.toolset import ToolContext
from clawrl_gym.envs.validate import main
from tests.support.terminal_fakes import MemorySandbox

TASK = {"id": "a", "instruction": "1 + 1?", "goals": [{"type": "answer", "wanted": "2"}]}
LIMITS = {"memory_mb": 256, "disk_mb": 32, "pids": 32}


def opened(tmp_path, text, name="tasks.json"):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return open_file(path, ToolContext())


@pytest.mark.parametrize("form", ["list", "object", "lines"])
def test_a_file_is_a_list_an_object_or_lines(tmp_path, form):
    tasks = [TASK | {"id": "a", "split": "train"}, TASK | {"id": "b", "split": "heldout"}]
    if form == "lines":
        source = opened(tmp_path, "\n".join(map(json.dumps, tasks)) + "\n\n", "tasks.jsonl")
    else:
        source = opened(tmp_path, tasks if form == "list" else {"tasks": tasks})
    assert (source.ids("train"), source.ids("heldout")) == (["a"], ["b"])


def test_every_field_becomes_part_of_the_task(tmp_path):
    row = TASK | {
        "family": "f", "split": "train", "system": "s", "toolsets": ["files"], "turns": 3,
        "tools": ["read_file"], "state": {"files": {"a": "1"}}, "customer": {"yes": "x"},
        "goals": [
            {"type": "answer", "wanted": "x", "form": "text", "boxed": True, "tolerance": 0.5},
            {"type": "state", "toolset": "files", "wanted": {}, "at": ["a"], "contains": True},
            {"type": "said", "texts": ["x"]},
            {"type": "calls", "wanted": [{"name": "f", "arguments": {"a": [1, ""]}}],
             "ordered": True, "extra": True},
            {"type": "program", "program": "pass", "timeout_s": 5},
        ],
        "solution": [{"calls": [{"name": "f", "arguments": {"a": 1}}]}, {"say": "x"}],
    }  # fmt: skip
    task = opened(tmp_path, [row]).load("a")
    assert (task.family, task.split, task.system, task.turns) == ("f", "train", "s", 3)
    assert (task.toolsets, task.tools) == (("files",), ("read_file",))
    assert (task.state, task.customer) == ({"files": {"a": "1"}}, {"yes": "x"})
    assert task.goals[:4] == (
        AnswerGoal("x", "text", True, 0.5),
        StateGoal("files", {}, ("a",), True),
        MentionGoal(("x",)),
        CallsGoal((ExpectedCall("f", {"a": [1, ""]}),), ordered=True, extra=True),
    )
    assert isinstance(task.goals[4], ProgramGoal)
    assert task.solution == (Reply("", (Call("1-1", "f", '{"a": 1}'),)), Reply("x"))


def test_about_one_task_in_five_is_held_out_and_always_the_same(tmp_path):
    tasks = [TASK | {"id": str(n), "instruction": f"{n} + 1?"} for n in range(500)]
    source = opened(tmp_path, tasks)
    assert 70 <= len(source.ids("heldout")) <= 130
    assert opened(tmp_path, tasks[::-1]).ids("heldout") == source.ids("heldout")[::-1]


def test_the_same_request_is_never_in_both_splits(tmp_path):
    source = opened(tmp_path, [TASK | {"id": str(n)} for n in range(50)])
    assert {len(source.ids("train")), len(source.ids("heldout"))} == {0, 50}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not JSON tasks"),
        ("[", "not JSON tasks"),
        ("[" * 100_000, "not JSON tasks"),
        ("[]", "expected a list of tasks"),
        ("5", "expected a list of tasks"),
        ('{"task": []}', "expected a list of tasks"),
        ([5], r"row: Input should be a valid dictionary .*\(task 1\)"),
        ([{"id": "x"}], r"instruction: Field required \(x\)"),
        ([TASK | {"goals": []}], "goals: Tuple should have at least 1 item"),
        ([TASK | {"goal": 1}], "goal: Extra inputs are not permitted"),
        ([TASK | {"goals": [{"type": "magic"}]}], r"goals\.0: Input tag 'magic'"),
        ([TASK | {"goals": [{"type": "answer"}]}], r"goals\.0\.answer\.wanted: Field required"),
        ([TASK | {"goals": [{"type": "said", "texts": [""]}]}], "texts"),
        ([TASK | {"split": "test"}], "split: Input should be 'train' or 'heldout'"),
        ([TASK | {"turns": 0}], "turns: Input should be greater than or equal to 1"),
    ],
)
def test_a_wrong_file_is_told_by_row_and_field(tmp_path, content, why):
    with pytest.raises(TaskError, match=why):
        opened(tmp_path, content)


def test_a_bad_line_is_left_out_by_its_number(tmp_path):
    lines = f"{json.dumps(TASK)}\n\n{{\n"
    (left_out,) = opened(tmp_path, lines, "tasks.jsonl").selection.left_out
    assert left_out.name == "line 3"
    assert left_out.reason.startswith("not JSON: Expecting property name")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (TASK, "the id is taken already"),
        (TASK | {"id": "b", "goals": []}, "goals: Tuple should have at least 1 item"),
        (TASK | {"id": "b", "toolsets": ["nonsense"]}, "got the toolset 'nonsense', expected"),
        (TASK | {"id": "b", "toolsets": ["files"], "tools": ["fly"]}, r"got the tools \['fly'\]"),
        (TASK | {"id": "b", "toolsets": ["files"], "state": {"files": 1}}, "texts by path"),
        (TASK | {"id": "b", "toolsets": ["shop"], "state": {"shop": {"users": 1}}}, "shop's state"),
        (TASK | {"id": "b", "customer": {"wants": "x"}}, "customer's script is wrong"),
        (TASK | {"id": "b", "goals": [{"type": "program", "program": "if"}]}, "no Python"),
    ],
)
def test_one_bad_row_is_left_out_and_never_drawn(tmp_path, bad, why):
    source = opened(tmp_path, [TASK, bad])
    assert [*source.ids("train"), *source.ids("heldout")] == ["a"]
    assert source.selection.summary == "1 task used, 1 left out"
    assert re.search(why, source.selection.left_out[0].reason)


def test_a_run_says_at_its_start_what_is_left_out(tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps([TASK, {"id": "b"}]))
    config = ToolCallEnvConfig(tasks=str(tmp_path / "tasks.json"))
    assert config.left_out() == (
        "1 task used, 1 left out:",
        "  1: instruction: Field required (b)",
    )
    assert ToolCallEnvConfig().left_out() == ()


def test_a_file_that_is_not_there_or_no_text_is_a_task_error(tmp_path):
    with pytest.raises(TaskError, match="expected a file of tasks"):
        open_file(tmp_path / "none.json", ToolContext())
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="not JSON tasks"):
        open_file(tmp_path / "bytes.json", ToolContext())


def test_a_folder_that_is_no_benchmark_is_an_error_that_says_what_could_be_one(tmp_path):
    (tmp_path / "tasks.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"got the folder .* BFCL .BFCL_v4_CATEGORY\.json"):
        ToolCallEnvConfig(tasks=str(tmp_path)).task_ids("train")


def test_a_program_that_is_no_python_is_told_when_the_task_is_loaded(tmp_path):
    bad = TASK | {"goals": [{"type": "program", "program": "if"}]}
    with pytest.raises(TaskError, match="no Python"):
        opened(tmp_path, [bad]).load("a")


def checked(program, outcome=None, timeout_s=10.0):
    sandboxes = Sandboxes.of(LIMITS)
    goal = ProgramGoal(program, partial(sandboxes.open, SandboxSpec()), timeout_s)
    return list(goal.missing(outcome or Outcome((), (), {})))


@pytest.mark.sandbox
def test_a_program_sees_all_that_was_left():
    program = (
        "import json, sys\n"
        "left = json.load(open(sys.argv[1]))\n"
        "assert left['said'] == ['hi'] and left['states'] == {'files': {'a': '1'}}\n"
        "assert left['calls'] == [{'name': 'f', 'arguments': {'x': 1}, 'result': 'ok',"
        " 'failed': False}]\n"
    )
    made = ExecutedCall(Call("1", "f", "{}"), {"x": 1}, "ok", failed=False)
    left = Outcome(("hi",), ((made,),), {"files": {"a": "1"}})
    assert checked(program, left) == []
    assert grade([AnswerGoal("5")], left).reward == 0.0


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("program", "missing"),
    [
        ("pass", []),
        ("raise SystemExit(0)", []),
        ("import sys; sys.exit()", []),
        ("import sys; print('a line'); print('a.txt is missing'); sys.exit(1)", "a.txt is missing"),
        ("assert 1 == 2, 'no sum'", "AssertionError: no sum"),
        ("raise SystemExit('too few')", "too few"),
        ("import os; os._exit(0)", "the check failed"),
        ("import os; os.kill(os.getpid(), 9)", "the check was killed"),
        ("while True: pass", "the check took too long"),
    ],
)
def test_only_a_program_that_comes_to_its_end_is_passed(program, missing):
    found = checked(program, timeout_s=1.0)
    if not missing:
        assert found == []
    else:
        assert len(found) == 1
        assert missing in found[0]


class Dying(MemorySandbox):
    """A sandbox that dies in the middle."""

    done = ExecResult("", None)

    def exec(self, command, timeout_s):
        return self.done


@pytest.mark.parametrize(
    "done", [ExecResult("gone", None, shell_restarted=True), ExecResult("", 127)]
)
def test_s12_a_check_that_could_not_run_is_an_error_and_no_reward(done):
    """S12: an evaluator that failed by itself had become a reward of -1 that was trained on."""
    sandbox = Dying()
    sandbox.done = done
    with pytest.raises(SandboxError):
        grade([ProgramGoal("pass", lambda: sandbox)], Outcome((), (), {}))
    assert sandbox.closed


@dataclass
class Machine(MemorySandbox):
    """Runs no program: what becomes of one is said by `does`, `passes` for its end."""

    does: Callable[[str], ExecResult | None] = lambda program: None
    run: list[str] = field(default_factory=list)

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        assert self.files["/root/outcome.json"].startswith(b'{"said": ')
        words = command.split()
        assert words[2:] == ["|", "python3", "-I", "/root/run.py", "/root/check.py",
                             "/root/outcome.json"]  # fmt: skip
        program = self.files["/root/check.py"].decode()
        self.run.append(program)
        ended = self.does(program)
        if ended is None:
            self.files["/root/done"] = words[1].encode()
        return ended or ExecResult("", 0)


PROGRAM = "assert 1 + 1 == 2\nassert 2 == 2\n"
FAILS = ExecResult("Traceback\nAssertionError: no\n", 1)


def judged(does, outcome=None):
    """What a goal says, and the programs that were run for it; every machine is closed."""
    machines = []

    def opened():
        machines.append(Machine(does=does))
        return machines[-1]

    try:
        missing = ProgramGoal(PROGRAM, opened, 5.0).missing(outcome or Outcome(("x",), (), {}))
    finally:
        assert all(machine.closed for machine in machines)
        assert all(len(machine.run) <= 1 for machine in machines)
    return list(missing), [program for machine in machines for program in machine.run]


def test_a_program_is_passed_that_passes_each_time_while_its_twins_fail():
    missing, run = judged(lambda program: None if program == PROGRAM else FAILS)
    assert missing == []
    assert run[0] == PROGRAM
    assert run.count(PROGRAM) == 2
    assert len(run) > 3


def test_what_passes_every_program_is_no_pass():
    missing, run = judged(lambda program: None)
    assert missing == ["what was left passes a check that nothing can pass"]
    assert len(run) <= 3


def test_a_program_that_passes_once_only_is_not_passed():
    ends = iter([None])
    missing, run = judged(lambda program: next(ends, FAILS))
    assert missing == ["AssertionError: no"]
    assert run[-1] == PROGRAM


@pytest.mark.parametrize(
    ("end", "missing"),
    [
        (FAILS, "AssertionError: no"),
        (ExecResult("a\n" + "x" * 900 + "\n \n", 1), "x" * 500),
        (ExecResult(" \n", 1), "the check failed"),
        (ExecResult("", 0), "the check failed"),
        (ExecResult("said", 128), "said"),
        (ExecResult("said", 129), "the check was killed, perhaps out of memory"),
        (ExecResult("said", None, timed_out=True), "the check took too long"),
    ],
)
def test_what_did_not_pass_is_told_by_its_last_line_and_tried_once(end, missing):
    assert judged(lambda program: end) == ([missing], [PROGRAM])


GONE = ExecResult("gone", None, shell_restarted=True)


def test_a_machine_that_failed_once_is_tried_again():
    ends = iter([GONE])
    missing, _ = judged(lambda program: next(ends, None if program == PROGRAM else FAILS))
    assert missing == []


def test_a_machine_that_fails_only_with_what_was_left_is_the_policy_s_doing():
    ends = iter([GONE, GONE])
    missing, run = judged(lambda program: next(ends, None))
    assert missing == ["with what was left the check does not come to its end"]
    assert run == [PROGRAM] * 3


def test_a_machine_that_fails_without_it_too_is_an_error():
    with pytest.raises(SandboxError, match="program ended: 'gone'"):
        judged(lambda program: GONE)


SOLVED = {
    **TASK,
    "toolsets": ["calculator", "python", "files"],
    "solution": [
        {
            "calls": [
                {"name": "calculate", "arguments": {"expression": "1 + 1"}},
                {"name": "python", "arguments": {"code": "1 + 1"}},
            ]
        },
        {"say": "2"},
    ],
}


def validate(tmp_path, *tasks):
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks))
    return main("toolcall", _arguments, _make, ["validate", str(path), "--json"])


@pytest.mark.sandbox
def test_validate_plays_every_task_of_a_file(tmp_path):
    assert validate(tmp_path, SOLVED, SOLVED | {"id": "b", "split": "train"}) == 0


@pytest.mark.sandbox
def test_validate_fails_for_a_task_whose_oracle_does_not_solve_it(tmp_path):
    assert validate(tmp_path, SOLVED | {"solution": [{"say": "3"}]}) == 1
    trivial = SOLVED | {"goals": [{"type": "state", "toolset": "files", "wanted": {}}]}
    assert validate(tmp_path, trivial) == 1
