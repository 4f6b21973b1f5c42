"""A verifier that gives no verdict: the task's error where it is silent by itself, else a 0."""

import json

import pytest

from clawrl_gym.core.errors import NoVerdict
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from tests.support.terminal_folders import HELLO, write

pytestmark = pytest.mark.sandbox

RIGHT, WRONG = "echo hello > out.txt", "echo bye > out.txt"
CHECK = 'ok=0\ngrep -q "^hello$" /app/out.txt && ok=1\n'
SAY = "echo $ok > /logs/verifier/reward.txt\n"
TASK = {
    "task.toml": "[verifier]\ntimeout_sec = 5.0\n",
    "instruction.md": "Write the word hello into /app/out.txt.\n",
    "environment/Dockerfile": "FROM host\nWORKDIR /app\n",
    "tests/test.sh": f"#!/bin/bash\n{CHECK}{SAY}",
    "solution/solve.sh": "#!/bin/bash\necho hello > /app/out.txt\n",
}
JSON = "/logs/verifier/reward.json"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def folder(tmp_path, files=TASK, **changes):
    write(tmp_path / "tasks" / "a", files, **changes)
    return str(tmp_path / "tasks")


def reward(tasks, command, **options):
    with TerminalEnv(tasks=tasks, **options) as env:
        env.reset(options={"task": "a"})
        return env.step(f"{command}\nsubmit")[1]


SILENT = {
    "an empty reward file": f"{CHECK}: > /logs/verifier/reward.txt",
    "no reward file": CHECK,
    "exit 0 at once": "exit 0",
    "not a number": f"{CHECK}echo nan > /logs/verifier/reward.txt",
    "infinite": f"{CHECK}echo inf > /logs/verifier/reward.txt",
    "text": f"{CHECK}echo passed > /logs/verifier/reward.txt",
    "several numbers": f"{CHECK}echo 1 1 > /logs/verifier/reward.txt",
    "an empty JSON file": f"{CHECK}: > {JSON}",
    "JSON without a reward": f'{CHECK}echo \'{{"a": 1, "b": 2}}\' > {JSON}',
    "JSON whose reward is a text": f'{CHECK}echo \'{{"reward": "yes"}}\' > {JSON}',
    "JSON whose reward is true": f"{CHECK}echo '{{\"reward\": {{}}}}' > {JSON}",
    "broken JSON": f"{CHECK}echo '{{' > {JSON}",
    "a missing interpreter": f"{CHECK}/opt/none/python3 /tests/grade.py",
    "a missing runner": "set -e\nno-such-runner /tests\necho 1 > /logs/verifier/reward.txt",
    "a script that is not executable": "/tests/other.sh",
    "a syntax error": "if then\n",
    "a wrong path": "cd /test/nowhere && echo 1 > /logs/verifier/reward.txt",
    "the wrong reward file": f"{CHECK}mkdir -p /logs/verifer; echo $ok > /logs/verifer/reward.txt",
    "a verifier that kills itself": f"{CHECK}{SAY}kill -9 $$",
    "a verifier that kills everything": f"{CHECK}kill -9 -1",
    "a verifier that hangs": f"{CHECK}sleep 60",
    "a full disk": f"{CHECK}head -c 9000000000 /dev/zero > /logs/verifier/reward.txt",
    "an address that no network reaches": (
        "set -e\npython3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)'\n"
        "echo 1 > /logs/verifier/reward.txt"
    ),
}
CONSTANT = {
    "0 for a runner that is missing": (
        "/opt/none/pytest /tests\nif [ $? -eq 0 ]; then echo 1; else echo 0; fi "
        "> /logs/verifier/reward.txt"
    ),
    "0 for a module that is missing, in silence": (
        "python3 -m no_such_runner > /dev/null 2>&1\necho $((! $?)) > /logs/verifier/reward.txt"
    ),
    "0 for tests at a wrong path": (
        "bash /test/grade.sh\necho $((! $?)) > /logs/verifier/reward.txt"
    ),
}


@pytest.mark.parametrize("script", [*SILENT.values(), *CONSTANT.values()],
                         ids=[*SILENT, *CONSTANT])  # fmt: skip
def test_a_right_solution_is_no_failure_where_the_verifier_never_says_so(tmp_path, script):
    changes = {"tests/test.sh": f"#!/bin/bash\n{script}\n", "tests/other.sh": "echo 1\n"}
    if "sleep" in script:
        changes["task.toml"] = "[verifier]\ntimeout_sec = 1.0\n"
    with pytest.raises(NoVerdict, match="even without the agent's work"):
        reward(folder(tmp_path, **changes), RIGHT)


@pytest.mark.parametrize("script", SILENT.values(), ids=SILENT)
def test_the_same_without_a_solution_of_the_tasks_own(tmp_path, script):
    changes = {"tests/test.sh": f"#!/bin/bash\n{script}\n", "solution/solve.sh": None}
    if "sleep" in script:
        changes["task.toml"] = "[verifier]\ntimeout_sec = 1.0\n"
    with pytest.raises(NoVerdict):
        reward(folder(tmp_path, **changes), RIGHT)


CRLF = {name: text.replace("\n", "\r\n") for name, text in TASK.items()}
REPAIRED = {
    "Windows line ends everywhere": CRLF,
    "in test.sh": {**TASK, "tests/test.sh": CRLF["tests/test.sh"]},
    "in task.toml": {**TASK, "task.toml": CRLF["task.toml"]},
    "in solve.sh": {**TASK, "solution/solve.sh": CRLF["solution/solve.sh"]},
    "in the Dockerfile": {**TASK, "environment/Dockerfile": CRLF["environment/Dockerfile"]},
    "a mark before test.sh": {**TASK, "tests/test.sh": "\ufeff" + TASK["tests/test.sh"]},
    "a mark before task.toml": {**TASK, "task.toml": "\ufeff" + TASK["task.toml"]},
    "no first line": {**TASK, "tests/test.sh": f"{CHECK}{SAY}"},
    "another interpreter's first line": {**TASK, "tests/test.sh": f"#!/opt/none\n{CHECK}{SAY}"},
    "a mark before the reward": {
        **TASK, "tests/test.sh": f"{CHECK}printf '\\xef\\xbb\\xbf%s\\r\\n' $ok "
        "> /logs/verifier/reward.txt\n",
    },
    "a helper with Windows line ends": {
        **TASK, "tests/test.sh": f"{CHECK}. /tests/say.sh\n", "tests/say.sh": f"{SAY[:-1]}\r\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("files", REPAIRED.values(), ids=REPAIRED)
def test_what_an_editor_left_in_scripts_does_not_change_the_grade(tmp_path, files):
    files = {name: text.encode() for name, text in files.items()}
    for name, data in files.items():
        path = tmp_path / "tasks" / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    tasks = str(tmp_path / "tasks")
    assert reward(tasks, RIGHT) == 1.0
    assert reward(tasks, WRONG) == 0.0
    with TerminalEnv(tasks=tasks) as env:
        env.reset(options={"task": "a"})
        assert [env.step(f"{command}\nsubmit")[1] for command in env.solve()] == [1.0]


def test_repaired_scripts_are_told_in_one_line(tmp_path):
    for name in ("a", "b"):
        path = write(tmp_path / "tasks" / name, TASK) / "tests/test.sh"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    (line,) = TerminalEnvConfig(tasks=str(tmp_path / "tasks")).left_out()
    assert line.startswith("2 scripts have Windows line ends")


SPOILT = {
    "it kills what grades": "echo 'import os; os.kill(os.getppid(), 9)' > /app/out.py",
    "it leaves nothing": "true",
    "it leaves a folder": "mkdir out.txt",
    "it leaves what never ends": "mkfifo out.txt",
    "it leaves far too much": "head -c 3000000 /dev/zero > out.txt",
    "it ends its own shell": "exit 1",
    "it leaves what is not text": "printf '\\377\\376' > out.txt",
    "it writes its own reward": "mkdir -p /logs/verifier; echo nan > /logs/verifier/reward.txt",
}


@pytest.mark.parametrize("mode", ["separate", "in_place"])
@pytest.mark.parametrize("command", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("solution", [TASK["solution/solve.sh"], None])
def test_an_agent_that_breaks_a_working_verifier_earns_nothing(tmp_path, command, mode, solution):
    test = (
        'if [ -e /app/out.py ]; then python3 /app/out.py; fi\nset -e\nread -r word < /app/out.txt'
        f" || word=\n{CHECK}[ -z \"$word\" ] || [ \"$word\" = hello ] || exit 3\n{SAY}"
    )  # fmt: skip
    toml = "[verifier]\ntimeout_sec = 2.0\n"
    changes = {"tests/test.sh": test, "solution/solve.sh": solution, "task.toml": toml}
    assert reward(folder(tmp_path, **changes), command, verifier=mode) == 0.0


def test_a_verifier_that_says_only_yes_is_silent_of_failures(tmp_path):
    tasks = folder(
        tmp_path,
        **{"tests/test.sh": f"set -e\ngrep -q hello /app/out.txt\n{SAY}".replace("$ok", "1")},
    )
    assert reward(tasks, RIGHT) == 1.0
    assert reward(tasks, WRONG) == 0.0


def test_a_solution_that_fails_here_does_not_condemn_its_task(tmp_path):
    tasks = folder(tmp_path, **{"solution/solve.sh": "exit 7\n"})
    assert reward(tasks, WRONG) == 0.0
    assert reward(tasks, RIGHT) == 1.0


@pytest.mark.parametrize("script", [
    "python3 -m no_such_pytest $TEST_DIR -rA\n",
    "/opt/none/uv run pytest\n",
    "true\n",
    "exit 3\n",
    "echo '1 passed'\n",
    "sleep 60\n",
])  # fmt: skip
def test_tests_of_terminal_bench_that_never_run_are_the_tasks_error(tmp_path, script):
    yaml = "instruction: Write hello to hello.txt.\nmax_test_timeout_sec: 1\n"
    tasks = folder(tmp_path, HELLO, **{"run-tests.sh": script, "task.yaml": yaml})
    with pytest.raises(NoVerdict):
        reward(tasks, "echo hello > hello.txt")


def test_a_broken_task_is_known_to_later_runs_until_it_is_mended(tmp_path):
    tasks = folder(tmp_path, **{"tests/test.sh": CHECK})
    write(tmp_path / "tasks" / "b", TASK)
    write(tmp_path / "tasks" / "c", TASK)
    config = TerminalEnvConfig(tasks=tasks)
    assert not config.left_out()
    with pytest.raises(NoVerdict):
        reward(tasks, RIGHT)
    (line,) = config.left_out()
    assert line.startswith("1 task is broken and not drawn (a: its verifier gives no verdict")
    assert "it left none of" in line
    sampler = TaskSampler.of(config, 0)
    drawn = {sampler.train(number).id for number in range(50)}
    drawn |= {task.id for task in sampler.heldout(5)}
    assert drawn == {"b", "c"}
    folder(tmp_path)  # mended
    assert not config.left_out()
    assert reward(tasks, RIGHT) == 1.0


def test_a_reward_takes_back_what_was_found(tmp_path):
    tasks = folder(tmp_path, **{"instruction.md": "Write hello, please."})
    config = TerminalEnvConfig(tasks=tasks)
    key = TerminalEnv.source_of(config).load("a").key
    record = tmp_path / "cache/clawrl_gym/verifiers" / f"{key}.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"task": "a", "problem": "silent", "found": "yesterday"}))
    assert len(config.left_out()) == 1
    assert reward(tasks, RIGHT) == 1.0
    assert not config.left_out()
