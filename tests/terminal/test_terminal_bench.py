"""Tasks in the layout of Terminal-Bench 1."""

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.folders.folder_tasks import FolderTasks
from clawrl_gym.envs.terminal.folders.grading import grade
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures
from tests.support.terminal_fakes import MemorySandbox
from tests.support.terminal_folders import HELLO, load, write

COMPOSE = """services:
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment: ["TEST_DIR=${T_BENCH_TEST_DIR}"]
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
"""
PRINTED = (
    "printf '=== short test summary info ===\\n%s t::test_hello\\n' "
    '"$([ "$(cat hello.txt)" = hello ] && echo PASSED || echo FAILED)"\n'
)
"""A run-tests.sh that needs no pytest on the machine."""


def test_a_folder_becomes_a_task(tmp_path):
    text = "instruction: |\n  # terminal-bench-canary 1\n  Do it.\ncategory: files\n"
    yaml = f"{text}max_test_timeout_sec: 7\nunknown: 1\n"
    task = load(tmp_path, HELLO, **{"task.yaml": yaml, "docker-compose.yaml": COMPOSE})
    assert (task.id, task.family, task.instruction) == ("task", "files", "Do it.")
    assert (task.workdir, task.env["TEST_DIR"]) == ("/app", "/tests")
    assert task.grader_timeout_s == 7
    assert set(task.grader_files) == {"/tests/run-tests.sh", "/tests/test_outputs.py"}
    assert task.expected_tests == ("test_hello",)
    assert task.solution == ("bash /oracle/solution.sh",)


def test_neither_tests_nor_solution_are_part_of_the_machine(tmp_path):
    task = load(tmp_path, HELLO)
    assert [path for step in task.build for path in step.files] == []


def test_a_solution_may_be_typed_line_by_line(tmp_path):
    typed = "- command: cd /app\n  min_timeout_sec: 1\n- command: echo hello > hello.txt\n"
    task = load(tmp_path, HELLO, **{"solution.sh": None, "solution.yaml": typed})
    assert task.solution == ("cd /app", "echo hello > hello.txt")
    assert load(tmp_path / "b", HELLO, **{"solution.sh": None}).solution == ()


def test_both_layouts_may_lie_side_by_side(tmp_path):
    write(tmp_path / "old", HELLO)
    new = {"task.toml": "", "instruction.md": "do", "tests/test.sh": "true"}
    write(tmp_path / "new", new)
    source = FolderTasks.open(tmp_path, SandboxFeatures())
    assert [source.load(name).instruction for name in ("old", "new")] == [
        "Write hello to hello.txt.", "do",
    ]  # fmt: skip


def test_with_docker_the_image_is_built_from_the_folder(tmp_path):
    changes = {"Dockerfile": "FROM debian:12 AS a\nFROM a\n", "docker-compose.yaml": COMPOSE}
    task = load(tmp_path, HELLO, SandboxFeatures(images=True, users=True), **changes)
    assert task.image.context == str(tmp_path / "task")
    assert (task.image.dockerfile, task.workdir, task.build) == ("Dockerfile", None, ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run-tests.sh": None}, r"has no 'run-tests\.sh'"),
        ({"task.yaml": "a: ["}, r"'task\.yaml': "),
        ({"task.yaml": "- 1"}, r"'task\.yaml': "),
        ({"task.yaml": "difficulty: easy"}, "instruction: Field required"),
        ({"task.yaml": "instruction: a\nparser_name: swebench"}, "parser_name: .*got 'swebench'"),
        ({"task.yaml": "instruction: a\nmax_test_timeout_sec: -1"}, "max_test_timeout_sec: "),
        ({"task.yaml": "instruction: a\nmax_test_timeout_sec: true"}, "max_test_timeout_sec: "),
        ({"task.yaml": "instruction: !!python/name:os.system"}, "could not determine a construct"),
        ({"run-tests.sh": "apt-get update\npytest"}, r"run-tests\.sh fetches.*'apt-get update'"),
        ({"docker-compose.yaml": "services: {a: {image: x}, b: {image: x}}"}, "several services"),
        ({"docker-compose.yaml": "services: {a: {build: ., privileged: true}}"}, "privileged"),
        ({"docker-compose.yaml": "services: {a: {image: x}}"}, "built on 'x': .*sandbox=docker"),
        ({"Dockerfile": None}, "has '.' but no './Dockerfile'"),
        ({"Dockerfile": "FROM ubuntu:24.04"}, "built on 'ubuntu:24.04'.*sandbox=docker"),
        ({"solution.sh": None, "solution.yaml": "3"}, "expected a list of entries"),
        ({"solution.sh": None, "solution.yaml": "3"}, "got 3"),
        ({"solution.sh": None, "solution.yaml": "- {a: 1}"}, "expected a list of entries"),
        (
            {"solution.sh": None, "solution.yaml": "- {command: q, append_enter: false}"},
            "types keys into a running program",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(TaskError, match=message):
        load(tmp_path, HELLO, **changes)


def test_links_out_of_the_task_are_refused(tmp_path):
    folder = write(tmp_path / "task", HELLO)
    (folder / "tests" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="leads outside, to '/etc/passwd'"):
        FolderTasks.open(tmp_path, SandboxFeatures()).load("task")


def graded(task, output, code=0, timed_out=False):
    """Grade with a test script that printed this."""
    command = "cd /app 2> /dev/null || cd /\n( export TEST_DIR=/tests; bash /tests/run-tests.sh\n)"

    class Sandbox(MemorySandbox):
        def exec(self, command, timeout_s):
            words = command.split()
            if "run-tests.sh" in command:
                assert command.startswith(expected)
                return ExecResult("", None if timed_out else code, timed_out)
            if words[0] == "tail":
                self.files[words[-1]] = output.encode()
            return super().exec(command, timeout_s)

        def successor(self):
            return self

    expected = command
    return grade(task, Sandbox(), 5.0)[0]


IN_PLACE = SandboxFeatures(verifier="in_place")
SUMMARY = "== short test summary info ==\nPASSED t::test_hello\n"


def test_the_summary_and_the_exit_code_decide(tmp_path):
    task = load(tmp_path, HELLO, IN_PLACE)
    assert graded(task, SUMMARY).reward == 1.0
    assert graded(task, SUMMARY, code=1).report.endswith("ended with exit code 1")
    assert graded(task, "1 passed").report.endswith("the tests printed no summary")
    assert graded(task, SUMMARY, timed_out=True).report.endswith("ran past 60 s")
    skipped = SUMMARY.replace("PASSED", "SKIPPED")
    assert graded(task, skipped).reward == 0.0


def test_a_long_list_of_failures_is_cut(tmp_path):
    lines = "".join(f"FAILED t::test_{n}\n" for n in range(500))
    report = graded(load(tmp_path, HELLO, IN_PLACE), SUMMARY + lines).report
    assert len(report.splitlines()) == 11


@pytest.mark.sandbox
def test_a_task_is_played_and_graded(tmp_path):
    write(tmp_path / "task", HELLO, **{"run-tests.sh": PRINTED})
    with TerminalEnv(tasks=str(tmp_path)) as env:
        for commands, reward in (
            (None, 1.0), (["submit"], 0.0), (["echo bye > hello.txt", "submit"], 0.0),
        ):  # fmt: skip
            env.reset(options={"task": "task"})
            for command in commands or [*env.solve(), "submit"]:
                last = env.step(command)
            assert last[1:3] == (reward, True)


@pytest.mark.sandbox
def test_more_output_than_is_kept_of_a_command_is_read_to_its_end(tmp_path):
    noisy = f"head -c 200000 /dev/zero | tr '\\0' x; echo\n{PRINTED}"
    write(tmp_path / "task", HELLO, **{"run-tests.sh": noisy})
    with TerminalEnv(tasks=str(tmp_path)) as env:
        env.reset(options={"task": "task"})
        env.step("echo hello > hello.txt")
        assert env.step("submit")[1] == 1.0


@pytest.mark.sandbox
def test_tests_of_the_agents_own_are_gone_before_the_tests_run(tmp_path):
    """A conftest.py that the agent put beside the tests would steer them."""
    script = f"ls -A $TEST_DIR >&2; test ! -e $TEST_DIR/conftest.py || exit 3\n{PRINTED}"
    write(tmp_path / "task", HELLO, **{"run-tests.sh": script})
    with TerminalEnv(tasks=str(tmp_path)) as env:
        env.reset(options={"task": "task"})
        env.step("echo hello > hello.txt; mkdir -p /tests; echo x > /tests/conftest.py")
        assert env.step("submit")[1] == 1.0
