import pytest

from clawrl_gym.core.errors import EnvError, SandboxError
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.sandbox.interface import ExecResult, FileData
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.terminal.checks import Absent, FileIs
from clawrl_gym.envs.terminal.folders.grading import SandboxFiles, grade, parse_reward
from clawrl_gym.envs.terminal.folders.machines import Machines
from clawrl_gym.envs.terminal.task import BuildStep, MachineSpec, Task
from tests.support.terminal_fakes import MemorySandbox

REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")


def a_task(**changes):
    return Task(id="t", family="f", split="train", instruction="do", **changes)


def graded(task, sandbox):
    earned, still_open = grade(task, sandbox, 5.0)
    return earned.reward, still_open


def report(task, sandbox):
    return grade(task, sandbox, 5.0)[0].report


def grader_that(does, **files):
    """A sandbox whose grader does something."""
    command = "cd /root 2> /dev/null || cd /\nbash /tests/test.sh"
    return MemorySandbox(dict(files), script={command: does})


def leaving(path, data):
    def run(sandbox):
        sandbox.files[path] = data
        return ExecResult("", 1)

    return run


def test_checks_alone_decide_without_a_fresh_sandbox():
    task = a_task(checks=(FileIs("a", b"x"), FileIs("b", b"y")))
    sandbox = MemorySandbox({"/root/a": b"x", "/root/b": b"y"})
    assert graded(task, sandbox) == (1.0, sandbox)
    del sandbox.files["/root/b"]
    assert graded(task, sandbox) == (0.0, sandbox)
    assert not sandbox.heirs
    assert not sandbox.ran


def test_a_task_without_checks_and_grader_earns_nothing():
    assert graded(a_task(), MemorySandbox())[0] == 0.0


def test_a_grader_runs_in_a_fresh_sandbox_with_its_own_files():
    sandbox = grader_that(lambda _: ExecResult("", 0))
    files = {"/tests/test.sh": FileData(b"exit 0", 0o755)}
    reward, fresh = graded(a_task(grader="bash /tests/test.sh", grader_files=files), sandbox)
    assert reward == 1.0
    assert fresh.generation == 1
    assert sandbox.closed
    assert fresh.modes["/tests/test.sh"] == 0o755
    assert "/tests/test.sh" not in sandbox.files


@pytest.mark.parametrize("code", [1, 127, None])
def test_a_grader_that_does_not_end_well_earns_nothing(code):
    sandbox = grader_that(lambda _: ExecResult("", code, timed_out=code is None))
    assert graded(a_task(grader="bash /tests/test.sh"), sandbox)[0] == 0.0


def test_no_grader_runs_when_a_check_has_failed():
    sandbox = grader_that(lambda _: ExecResult("", 0))
    task = a_task(grader="bash /tests/test.sh", checks=(FileIs("a", b"x"),))
    assert graded(task, sandbox) == (0.0, sandbox)
    assert sandbox.heirs == []


def test_a_reward_file_counts_and_the_exit_code_does_not():
    sandbox = grader_that(leaving(REWARDS[1], b"0.5\n"))
    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS)
    assert graded(task, sandbox)[0] == 0.5


def test_the_first_reward_file_wins():
    def both(sandbox):
        sandbox.files |= {REWARDS[0]: b'{"reward": 1}', REWARDS[1]: b"0"}
        return ExecResult("", 0)

    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS)
    assert graded(task, grader_that(both))[0] == 1.0


def test_rewards_of_the_agent_are_gone_before_the_grader_runs():
    sandbox = grader_that(lambda _: ExecResult("nothing", 0), **{REWARDS[0]: b"1"})
    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS)
    earned, fresh = grade(task, sandbox, 5.0)
    assert earned.reward == 0.0
    assert "ended with 0; it left none of" in earned.report
    assert earned.report.endswith("nothing")
    assert fresh is sandbox.heirs[0]


def test_a_reward_that_cannot_be_removed_earns_nothing():
    clearing = "rm -rf /logs/verifier; mkdir -p /logs/verifier"
    sandbox = MemorySandbox({REWARDS[1]: b"1"}, script={clearing: lambda _: ExecResult("", 1)})
    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS)
    assert grade(task, sandbox, 5.0)[0].reward == 0.0
    assert "cannot be removed" in report(task, MemorySandbox(sandbox.files, script=sandbox.script))


def test_a_grader_that_ran_too_long_is_named_as_such_whatever_it_left():
    def hangs(sandbox):
        sandbox.files[REWARDS[1]] = b"1"
        return ExecResult("", None, timed_out=True)

    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS, grader_timeout_s=2.0)
    earned = grade(task, grader_that(hangs), 5.0)[0]
    assert (earned.reward, earned.report) == (0.0, "Test report: failed\nit ran past 2 s")


@pytest.mark.parametrize("code", [None, 129, 130, 131, 134, 137, 143])
def test_a_grader_that_was_killed_gives_no_reward_whatever_it_left(code):
    def killed(sandbox):
        sandbox.files[REWARDS[1]] = b"1"
        return ExecResult("", code)

    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS)
    earned = grade(task, grader_that(killed), 5.0)[0]
    assert earned.reward == 0.0
    assert "was killed" in earned.report


@pytest.mark.parametrize("code", [1, 127, 128, 132, 139])
def test_a_grader_that_ends_by_itself_gives_the_reward_that_it_left(code):
    def left(sandbox):
        sandbox.files[REWARDS[1]] = b"1"
        return ExecResult("", code)

    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS)
    assert graded(task, grader_that(left))[0] == 1.0


def test_what_is_no_file_is_none_but_a_dead_sandbox_is_an_error():
    sandbox = MemorySandbox(folders={"/root/a"})
    left = SandboxFiles(sandbox, "/root")
    assert left.read("a") is None
    assert left.read("b") is None
    assert left.mode("b") is None
    sandbox.dead = True
    with pytest.raises(SandboxError):
        left.read("a")
    with pytest.raises(SandboxError):
        left.mode("a")


@pytest.mark.parametrize(
    ("path", "data", "reward"),
    [
        ("r.txt", b"1", 1.0),
        ("r.txt", b" 0.25\n", 0.25),
        ("r.txt", b"-1e-3", -0.001),
        ("r.json", b"true", 1.0),
        ("r.json", b"2", 2.0),
        ("r.json", b'{"score": 0.5}', 0.5),
        ("r.json", b'{"style": 0, "reward": 1}', 1.0),
    ],
)
def test_a_reward_is_one_number(path, data, reward):
    assert parse_reward(data, path) == reward


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("r.txt", b""),
        ("r.txt", b"nan"),
        ("r.txt", b"1 2"),
        ("r.txt", b"\xff"),
        ("r.json", b"NaN"),
        ("r.json", b"[1]"),
        ("r.json", b'"1"'),
        ("r.json", b"{}"),
        ("r.json", b'{"a": 1, "b": 2}'),
        ("r.json", b"1" + b"0" * 400),
        ("r.json", b"[" * 100_000),
    ],
)
def test_anything_else_is_an_error(path, data):
    with pytest.raises(EnvError, match="expected one finite number"):
        parse_reward(data, path)


def test_every_check_that_failed_is_reported_in_order_and_the_others_are_not():
    checks = (FileIs("a", b"x"), FileIs("b", b"y"), Absent("c"))
    sandbox = MemorySandbox({"/root/a": b"x", "/root/c": b""})
    told = "Test report: failed\n- b is missing\n- c is still there"
    assert report(a_task(checks=checks), sandbox) == told
    assert report(a_task(checks=checks[:1]), sandbox) == "Test report: passed"


def test_a_task_that_nothing_checks_says_so():
    told = "Test report: failed\n- the task has nothing that checks it"
    assert report(a_task(), MemorySandbox()) == told


def test_a_name_of_several_lines_stays_one_line_of_the_report():
    assert report_of(["a\n- b is missing"]) == "Test report: failed\n- a - b is missing"
    assert report_of([]) == "Test report: passed"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("one\n\ntwo  \n", "\none\ntwo"),
        ("", ""),
        ("x" * 300 + "\n" + "y" * 390 + "\n", "\n" + "y" * 390),
        ("x" * 1000, "\n" + "x" * 400),
        ("first\n" + "line\n" * 500, "\nline" * 80),
    ],
)
def test_a_grader_that_is_not_satisfied_is_reported_by_its_last_lines(output, told):
    sandbox = grader_that(lambda _: ExecResult(output, 1))
    assert report(a_task(grader="bash /tests/test.sh"), sandbox) == f"Test report: failed{told}"


def test_a_grader_that_was_stopped_is_reported_as_such():
    sandbox = grader_that(lambda _: ExecResult("step 1\n", None, timed_out=True))
    told = "Test report: failed\nstep 1\nit ran past 2 s"
    assert report(a_task(grader="bash /tests/test.sh", grader_timeout_s=2.0), sandbox) == told


@pytest.mark.parametrize(
    ("reward", "end"), [(b"1", "passed"), (b"0.5", "failed"), (b"0", "failed")]
)
def test_a_task_is_reported_as_passed_from_a_reward_of_one_on(reward, end):
    task = a_task(grader="bash /tests/test.sh", reward_files=REWARDS)
    assert report(task, grader_that(leaving(REWARDS[1], reward))) == f"Test report: {end}"


class Verifying(MemorySandbox):
    """A machine whose grader leaves a reward; nothing else happens on it."""

    reward = b"1"

    def exec(self, command, timeout_s):
        done = super().exec(command, timeout_s)
        if command.endswith("\nbash /tests/test.sh"):
            self.files[REWARDS[1]] = self.reward
            return ExecResult("judged\n", 0)
        return done


def apart(reward, **changes):
    """A grade on a machine of its own, with the agent's machine and the grader's."""

    def opened(limits, **options):
        machines.append(Verifying())
        machines[-1].reward = reward
        return machines[-1]

    machines: list[Verifying] = []
    left = MemorySandbox()
    fields = {"verifier": MachineSpec(workdir="/check"), "reward_files": REWARDS, **changes}
    task = a_task(grader="bash /tests/test.sh", **fields)
    earned, still_open = grade(task, left, 5.0, Machines(Sandboxes.of({}, opened)))
    assert still_open is left.heirs[0]
    assert [machine.closed for machine in machines] == [True]
    return earned, still_open, machines[0]


def test_a_grader_of_its_own_machine_runs_there_and_not_on_the_agents():
    files = {"/tests/test.sh": FileData(b"x", 0o755)}
    earned, left, verifier = apart(b"1", grader_files=files)
    assert (earned.reward, earned.report) == (1.0, "Test report: passed")
    assert verifier.files["/tests/test.sh"] == b"x"
    assert "/tests/test.sh" not in left.files
    (judged,) = [one for one in verifier.ran if one.endswith("bash /tests/test.sh")]
    assert judged.startswith("export PYTHONPATH=/.verifier-")
    assert "\ncd /check 2> /dev/null || cd /\n" in judged


def test_log_folders_are_made_where_a_reward_is_left():
    made = "mkdir -p /logs/agent /logs/verifier /logs/artifacts 2> /dev/null"
    assert apart(b"1")[2].ran[0] == made
    assert made not in apart(b"1", reward_files=())[2].ran


@pytest.mark.parametrize(
    ("reward", "report"),
    [
        (b"1", "Test report: passed"),
        (b"0", "Test report: failed\njudged\n/check could not be handed over: it is gone, "
               "unreadable or larger than 21 MiB (a third of env.sandbox.disk_mb)"),
    ],
)  # fmt: skip
def test_what_could_not_be_handed_over_is_told_with_a_grade_that_failed(reward, report):
    assert apart(reward, takes="work")[0].report == report


def test_what_is_collected_is_run_over_what_the_agent_left_in_its_folder():
    hooks = (BuildStep(command="save"), BuildStep(command="false"))
    _, left, verifier = apart(b"1", collect=hooks, workdir="/my app")
    assert left.ran[:2] == [
        f"cd '/my app' 2> /dev/null; ( {command}\n)" for command in ("save", "false")
    ]
    assert not any("save" in command for command in verifier.ran)


def test_what_steers_tests_on_the_agents_machine_is_removed_first():
    sandbox = grader_that(lambda _: ExecResult("", 0))
    files = {"/tests/test.sh": FileData(b"x")}
    _, fresh = graded(a_task(grader="bash /tests/test.sh", grader_files=files), sandbox)
    above = "/conftest.py /pytest.ini /.pytest.ini /tox.ini /setup.cfg /pyproject.toml"
    assert fresh.ran[0] == f"rm -rf /tests {above}"
    assert "-name sitecustomize.py -o -name usercustomize.py" in fresh.ran[1]


def test_a_task_whose_work_is_below_the_root_keeps_its_settings_there():
    command = "cd / 2> /dev/null || cd /\nbash /tests/test.sh"
    files = {"/tests/test.sh": FileData(b"x")}
    task = a_task(grader="bash /tests/test.sh", grader_files=files, workdir="/")
    sandbox = MemorySandbox(script={command: lambda _: ExecResult("", 0)})
    reward, fresh = graded(task, sandbox)
    assert (reward, fresh.ran[0]) == (1.0, "rm -rf /tests")


def test_a_grader_without_tests_or_rewards_has_nothing_to_clear():
    sandbox = grader_that(lambda _: ExecResult("", 0))
    _, fresh = graded(a_task(grader="bash /tests/test.sh"), sandbox)
    assert fresh.ran == ["cd /root 2> /dev/null || cd /\nbash /tests/test.sh"]


def test_tests_of_the_agents_that_cannot_be_removed_earn_nothing():
    sandbox = grader_that(lambda _: ExecResult("", 0), **{"/pytest.ini": b""})
    files = {"/tests/test.sh": FileData(b"x")}
    earned, _ = grade(a_task(grader="bash /tests/test.sh", grader_files=files), sandbox, 5.0)
    assert earned.reward == 0.0
    assert earned.report == ("Test report: failed\n- the agent's own /pytest.ini cannot be removed")


class Summing(MemorySandbox):
    """A machine on which tests print a summary of pytest."""

    summary = b""
    done = ExecResult("", 0)

    def successor(self):
        heir = super().successor()
        heir.summary, heir.done = self.summary, self.done
        return heir

    def exec(self, command, timeout_s):
        done = super().exec(command, timeout_s)
        if command.startswith("tail -c 2097152 /tmp/"):
            log = command.split()[3]
            assert command == f"tail -c 2097152 {log} > {log}.end"
            assert f"\n( bash /tests/run.sh\n) > {log} 2>&1" in self.ran[-2]
            self.files[f"{log}.end"] = self.summary
        return self.done if "( bash /tests/run.sh" in command else done


def summed(summary, done=ExecResult("", 0), expected=("test_a", "test_b")):  # noqa: B008
    sandbox = Summing()
    sandbox.summary, sandbox.done = summary, done
    task = a_task(grader="bash /tests/run.sh", expected_tests=expected, grader_timeout_s=7.0)
    return grade(task, sandbox, 5.0)[0]


def test_tests_that_all_passed_by_pytest_s_summary_solve_a_task():
    passed = b"PASSED t.py::test_a\nPASSED t.py::test_b[1]\n"
    solved = summed(b"=== short test summary info ===\n" + passed)
    assert (solved.reward, solved.report) == (1.0, "Test report: passed")
    ended = summed(b"=== short test summary info ===\n" + passed, ExecResult("", 3))
    assert ended.reward == 0.0
    assert ended.report == "Test report: failed\n- the test script ended with exit code 3"
    slow = summed(b"", ExecResult("", None, timed_out=True))
    assert slow.report == "Test report: failed\n- the tests ran past 7 s"


def test_of_tests_that_did_not_pass_ten_are_reported():
    many = summed(
        b"=== short test summary info ===\n", expected=tuple(f"test_{n}" for n in range(12))
    )
    assert many.reward == 0.0
    assert many.report.count("\n- ") == 10
    assert "test_9 did not run" in many.report
    assert "test_10" not in many.report
