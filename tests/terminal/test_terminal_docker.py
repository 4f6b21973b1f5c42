"""The terminal environment over real containers: images built, taken, refused; the same grades."""

import pytest

from clawrl_gym.core.errors import SandboxError, TaskError
from clawrl_gym.envs.sandbox.docker.images import TERMINAL_IMAGE
from clawrl_gym.envs.showcase.terminal.generated import task_ids
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import TerminalEnv
from tests.support.docker_engine import own_containers
from tests.support.terminal_folders import APART, HELLO, REWARD, STEPS, write

pytestmark = pytest.mark.docker

DOCKER = {"type": "docker", "pids": 128}
BUILT = {
    "task.toml": "[environment]\nhealthcheck = { command = 'test -f seed', interval_sec = 0.1 }\n",
    "instruction.md": "Copy seed to out.",
    "environment/Dockerfile": (
        "FROM clawrl/base:1 AS first\nRUN echo made > /made\n"
        "FROM clawrl/base:1\nARG NAME=seed\nWORKDIR /app\nENV COLOR=red\n"
        "COPY --from=first /made /etc/made\nCOPY ${NAME} .\nRUN test -s seed\n"
    ),
    "environment/seed": "seed\n",
    "tests/test.sh": f"cmp seed out && [ $COLOR$(cat /etc/made) = redmade ]\n{REWARD}",
    "solution/solve.sh": "cp seed out",
}


def play(root, commands=None, **options):
    """Reward and observations of an episode; None plays the oracle."""
    with TerminalEnv(tasks=str(root), sandbox=DOCKER, max_turns=20, **options) as env:
        env.reset(options={"task": "task"})
        seen = []
        for command in [*(env.solve() if commands is None else commands), "submit"]:
            observation, reward, terminated, _, _ = env.step(command)
            seen.append(observation)
        assert terminated
        return reward, seen


def test_generated_tasks_run_in_our_image():
    said: list[str] = []
    TerminalEnv.prepare(TerminalEnvConfig.of({"sandbox": DOCKER}), said.append)
    TerminalEnv.prepare(TerminalEnvConfig.of({"sandbox": DOCKER}), said.append)
    with TerminalEnv(families=["copy", "script"], sandbox=DOCKER) as env:
        for task_id in (
            task_ids("train", ["copy"])[0], task_ids("heldout", ["script"])[0],
        ):  # fmt: skip
            env.reset(options={"task": task_id})
            for command in env.solve():
                last = env.step(command)
            assert last[1:3] == (1.0, True)
            env.reset(options={"task": task_id})
            assert env.finish() == 0.0


def test_a_dockerfile_is_really_built_and_cached(tmp_path):
    write(tmp_path / "task", BUILT)
    assert play(tmp_path)[0] == 1.0
    reward, seen = play(tmp_path, ["pwd; echo $COLOR; cd /; X=1", "pwd; echo $X", "exit"])
    assert reward == 0.0
    assert seen[:2] == ["/app\nred", "/\n1"]


def test_a_user_of_its_own_works_and_grades_as_that_user(tmp_path):
    dockerfile = (
        "FROM clawrl/base:1\nRUN useradd -m worker && mkdir /app && chown worker /app\n"
        "WORKDIR /app\n"
    )
    changes = {
        "task.toml": "[agent]\nuser = 'worker'\n",
        "environment/Dockerfile": dockerfile,
        "tests/test.sh": f'[ "$(cat who) $(id -un)" = "worker worker" ]\n{REWARD}',
        "solution/solve.sh": "id -un > who; test ! -w /etc",
    }
    write(tmp_path / "task", BUILT, **changes)
    assert play(tmp_path)[0] == 1.0
    assert play(tmp_path, [])[0] == 0.0


def test_an_image_by_name_is_taken_as_it_is(tmp_path):
    toml = f"[environment]\ndocker_image = '{TERMINAL_IMAGE}'\n"
    changes = {"task.toml": toml, "environment/Dockerfile": "FROM nothing\n"}
    changes["tests/test.sh"] = f'[ "$(cat a)" = /root ]\n{REWARD}'
    write(tmp_path / "task", BUILT, **changes)
    assert play(tmp_path, ["pwd > a"])[0] == 1.0


def test_an_image_that_does_not_exist_is_named(tmp_path):
    toml = "[environment]\ndocker_image = 'clawrl/no-such-image:0'\n"
    write(tmp_path / "task", BUILT, **{"task.toml": toml})
    with pytest.raises(SandboxError, match=r"clawrl/no-such-image:0"):
        play(tmp_path, [])


def test_an_image_that_does_not_build_is_an_error_of_the_task(tmp_path):
    dockerfile = "FROM clawrl/base:1\nRUN echo no such mirror; exit 7\n"
    write(tmp_path / "task", BUILT, **{"environment/Dockerfile": dockerfile})
    with pytest.raises(TaskError, match="no such mirror"):
        play(tmp_path, [])


def test_a_build_cannot_reach_out_of_its_folder(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = write(tmp_path / "tasks" / "task", BUILT)
    (folder / "solution" / "solve.sh").unlink()
    (folder / "environment" / "link").symlink_to(tmp_path / "secret")
    dockerfile = "FROM clawrl/base:1\nWORKDIR /app\nCOPY . .\nRUN ! cat link\n"
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    assert play(tmp_path / "tasks", ["cat link"])[1][0].endswith("(exit code 1)")
    dockerfile = "FROM clawrl/base:1\nCOPY ../tests/test.sh /\n"
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    with pytest.raises(TaskError, match="COPY"):
        play(tmp_path / "tasks", [])


def test_an_entrypoint_is_started_in_the_background(tmp_path):
    dockerfile = (
        "FROM clawrl/base:1\nWORKDIR /app\nCOPY seed .\n"
        "RUN printf '#!/bin/sh\\necho up > /tmp/up\\nexec \"$@\"\\n' > /up && chmod +x /up\n"
        'ENTRYPOINT ["/up"]\n'
    )
    toml = (
        "[environment]\n"
        "healthcheck = { command = 'test -f /tmp/up', interval_sec = 0.1, retries = 100 }\n"
    )
    changes = {"environment/Dockerfile": dockerfile, "task.toml": toml, "solution/solve.sh": None}
    write(tmp_path / "task", BUILT, **changes)
    assert play(tmp_path, ["cat /tmp/up"])[1][0] == "up"


def test_a_machine_that_does_not_get_healthy_is_an_error(tmp_path):
    toml = "[environment]\nhealthcheck = { command = 'echo ill; false', interval_sec = 0.1 }\n"
    write(tmp_path / "task", BUILT, **{"task.toml": toml})
    with pytest.raises(TaskError, match=r"not healthy.*'ill'"):
        play(tmp_path, [])


def test_one_service_of_a_compose_file_is_the_machine(tmp_path):
    compose = (
        "services:\n  main:\n    build: {context: '${CONTEXT_DIR}', args: {NAME: seed}}\n"
        "    environment: [COLOR=red]\n    command: [sleep, infinity]\n"
    )
    write(tmp_path / "task", BUILT, **{"environment/docker-compose.yaml": compose})
    assert play(tmp_path)[0] == 1.0


def test_steps_and_a_verifier_of_its_own_work_as_with_bubblewrap(tmp_path):
    write(tmp_path / "steps" / "task", STEPS)
    assert play(tmp_path / "steps")[0] == 1.0
    write(tmp_path / "apart" / "task", APART, **{"tests/Dockerfile": (
        "FROM clawrl/base:1\nWORKDIR /check\nRUN echo 42 > expected\n"
    )})  # fmt: skip
    assert play(tmp_path / "apart")[0] == 1.0
    assert play(tmp_path / "apart", ["ln -s /check/expected out"])[0] == 0.0


@pytest.mark.parametrize(
    "tampering",
    [
        "echo 1 > /logs/verifier/reward.txt; chmod 0 /logs/verifier/reward.txt",
        "(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) & disown",
        "for f in cmp test bash sh rm; do cp /usr/bin/true /usr/bin/$f; done",
        "echo 'exit 0' | tee ~/.bashrc ~/.profile /etc/bash.bashrc; export BASH_ENV=~/.bashrc",
    ],
)
def test_tampering_with_the_machine_earns_nothing(tmp_path, tampering):
    write(tmp_path / "task", BUILT)
    assert play(tmp_path, [tampering])[0] == 0.0


@pytest.fixture(scope="module")
def hello(tmp_path_factory):
    """A task of Terminal-Bench whose tests are run by the real pytest."""
    root = tmp_path_factory.mktemp("hello")
    write(root / "task", HELLO, Dockerfile="FROM clawrl/base:1\nWORKDIR /app\n")
    return root


def test_a_task_of_terminal_bench_is_graded_by_its_own_pytest(hello):
    assert play(hello)[0] == 1.0
    assert play(hello, ["echo bye > hello.txt"])[0] == 0.0


@pytest.mark.parametrize(
    "tampering",
    [
        "mkdir /tests; echo 'import pytest; pytest.skip(allow_module_level=True)' "
        "> /tests/conftest.py",
        "printf '[pytest]\\naddopts = --co\\n' > /pytest.ini",
        "printf '[pytest]\\npython_functions = none_\\n' > /app/pytest.ini",
        "echo 'def pytest_collection_modifyitems(items): items.clear()' > /app/conftest.py",
        "echo '== short test summary info ==\nPASSED t::test_hello' > hello.txt",
    ],
)
def test_steering_pytest_earns_nothing(hello, tampering):
    assert play(hello, [tampering])[0] == 0.0


FORGER = (
    "import sys, os; 'pytest' in str(sys.orig_argv) and (os.write(1, "
    "b'== short test summary info ==\\nPASSED t::test_hello\\n'), os._exit(0))"
)
"""Python that answers for pytest as soon as it starts."""


def forging(path):
    """The command by which an agent puts the forger there."""
    return f'mkdir -p $(dirname {path}); rm -f {path}; echo "{FORGER}" > {path}'


@pytest.mark.parametrize(
    "path",
    ["/etc/python3.11/sitecustomize.py",
     "/root/.local/lib/python3.11/site-packages/usercustomize.py",
     "/usr/local/lib/python3.11/dist-packages/sitecustomize.py"],
)  # fmt: skip
def test_python_that_answers_for_pytest_earns_nothing(hello, path):
    rid = "rm -f /etc/python3.11/sitecustomize.py"
    reward, seen = play(hello, [rid, forging(path), "python3 -m pytest"])
    assert seen[2].endswith("PASSED t::test_hello")  # so it works where it is
    assert reward == 0.0


def test_a_conftest_above_the_tests_earns_nothing(hello):
    assert play(hello, [forging("/conftest.py")])[0] == 0.0


def test_a_container_that_ended_where_others_work_has_failed_its_task(hello):
    from clawrl_gym.envs.sandbox.docker.engine import engine

    with TerminalEnv(tasks=str(hello), sandbox=DOCKER | {"memory_mb": 257}) as env:
        env.reset(options={"task": "task"})
        host = {one: engine().api.inspect_container(one)["HostConfig"] for one in own_containers()}
        [own] = [container for container in host if host[container]["Memory"] == 257 << 20]
        engine().api.remove_container(own, force=True)
        assert env.step("ls")[1:3] == (0.0, True)
        assert "a fresh sandbox works" in env.report
