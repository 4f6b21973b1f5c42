"""Tasks in several steps: told, submitted and graded one after the other."""

import pytest

from clawrl_gym.core.errors import AgentFault, EnvError, NoVerdict, TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult, FileData
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.folders.machines import Machines
from clawrl_gym.envs.terminal.folders.trial import Trial
from clawrl_gym.envs.terminal.task import SUBMIT, Health, Task
from tests.support.terminal_fakes import MemoryOpener
from tests.support.terminal_folders import STEPS, load, write


def part(name, grader, **changes):
    return Task(id=name, family="f", split="train", instruction=name, grader=grader, **changes)


def trial(*steps, opener=None, **changes):
    """A task whose graders are commands of the fake sandbox: "good" and "bad"."""
    script = {
        "cd /root 2> /dev/null || cd /\ngood": lambda _: ExecResult("", 0),
        "cd /root 2> /dev/null || cd /\nbad": lambda _: ExecResult("it is bad", 1),
    }
    opener = opener or MemoryOpener(script=script)
    opener.script = script
    task = Task(id="t", family="f", split="train", instruction="", steps=steps, **changes)
    return Trial(task, Machines(Sandboxes.of({}, opener)), 5.0)


def played(*graders, **changes):
    steps = [part(f"{number}", grader) for number, grader in enumerate(graders)]
    running = trial(*steps, **changes)
    while running.submit() is not None:
        pass
    return running


def test_the_reward_is_the_mean_of_the_steps():
    assert played("good", "bad", "good", "good").reward == 0.75
    assert played("good", "good", "good").reward == 1.0


def test_or_the_grade_of_the_last():
    assert played("bad", "good", step_reward="final").reward == 1.0
    assert played("good", "bad", step_reward="final").reward == 0.0


@pytest.mark.parametrize(("how", "reward"), [("mean", 1 / 3), ("final", 0.0)])
def test_what_was_never_reached_counts_nothing(how, reward):
    running = trial(
        part("0", "good"), part("1", "bad", min_reward=0.5), part("2", "good"), step_reward=how
    )
    assert running.submit() == "1"
    assert running.submit() is None
    assert running.ended
    assert running.reward == pytest.approx(reward)
    assert running.report == "Test report: failed\nit is bad"


def test_an_episode_that_runs_out_of_turns_has_no_next_step():
    running = trial(part("0", "good"), part("1", "good"))
    assert running.submit(last=True) is None
    assert running.reward == 0.5


def test_the_report_is_that_of_the_first_step_that_was_not_solved():
    assert played("good", "good").report == "Test report: passed"
    assert played("bad", "good").report == "Test report: failed\nit is bad"


def test_a_step_that_cannot_begin_ends_the_machine():
    opener = MemoryOpener()
    script = {"broken": lambda _: ExecResult("no", 1)}
    running = trial(part("0", "good"), part("1", "good", setup="broken"), opener=opener)
    opener.opened[0].script.update(script)
    with pytest.raises(AgentFault, match=r"cannot begin.*'broken' ended with exit code 1"):
        running.submit()
    assert running.ended
    with pytest.raises(EnvError, match="has been graded"):
        running.exec("ls", 1.0)


def test_before_anything_is_graded_the_reward_is_nothing():
    assert trial(part("0", "good")).reward == 0.0
    assert trial(grader="good").reward == 0.0
    assert trial(grader="good").report == ""


def test_each_step_waits_until_its_machine_is_well():
    well = Health("ready", interval_s=0.001)
    running = trial(part("0", "good"), part("1", "good", health=well))
    assert running.submit() == "1"
    assert "( ready\n)" in running.sandbox.ran


def test_the_oracle_finds_the_files_of_each_solution_as_its_step_begins():
    steps = [
        part(name, "good", solution=("a",), solution_files={f"{name}.sh": FileData(b"a")})
        for name in ("0", "1")
    ]
    running = trial(*steps)
    assert running.oracle() == ("a", SUBMIT, "a")
    assert "/0.sh" in running.sandbox.files
    assert "/1.sh" not in running.sandbox.files
    running.submit()
    assert "/1.sh" in running.sandbox.files


def test_every_step_needs_a_solution_for_the_oracle():
    running = trial(part("0", "good", solution=("a",)), part("1", "good"))
    with pytest.raises(TaskError, match="task '1' has no solution"):
        running.oracle()


def test_a_folder_with_steps_becomes_a_task(tmp_path):
    toml = (
        "multi_step_reward_strategy = 'final'\n[verifier]\ntimeout_sec = 9\nenv = { A = '1' }\n"
        "[[steps]]\nname = 'one'\nmin_reward = { reward = 0.5 }\n"
        "[[steps]]\nname = 'two'\nverifier = { timeout_sec = 3, env = { B = '2' } }\n"
    )
    task = load(tmp_path, STEPS, **{"task.toml": toml})
    one, two = task.steps
    assert (task.instruction, task.step_reward) == ("Write 1 to a.", "final")
    assert (one.id, one.min_reward, one.grader_timeout_s) == ("task#one", 0.5, 9)
    assert (two.id, two.min_reward, two.grader_timeout_s) == ("task#two", None, 3)
    assert "A=1; B=2" in two.grader.replace("export ", "")
    assert [list(step.files) for step in two.build] == [["seed.txt", "setup.sh"]]


def test_a_step_adds_to_the_tests_of_the_whole(tmp_path):
    changes = {"tests/common.py": "1", "tests/test.sh": "whole", "steps/one/tests/test.sh": None}
    one, two = load(tmp_path, STEPS, **changes).steps
    assert set(one.grader_files) == set(two.grader_files) == {"/tests/common.py", "/tests/test.sh"}
    assert one.grader_files["/tests/test.sh"].data == b"whole"
    assert two.grader_files["/tests/test.sh"].data != b"whole"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.toml": "[[steps]]\nname = 'one'\n[[steps]]\nname = 'three'"}, "steps/three"),
        ({"task.toml": "", "instruction.md": "x"}, "steps in only one of its two places"),
        ({"steps/two/tests/test.sh": None}, r"has no 'steps/two/tests/test\.sh'"),
        ({"steps/two/instruction.md": None}, "steps/two/instruction.md"),
        ({"steps/two/trajectory.json": "[]"}, r"begins with a conversation"),
        ({"task.toml": "[[steps]]\nname = 'one'\nmin_reward = {style = 1}"}, "other keys than"),
        ({"task.toml": "[[steps]]\nname = 'one'\nagent = {user = 'me'}"}, r"users \['me'\]"),
    ],
)
def test_wrong_steps_are_refused_by_name(tmp_path, changes, message):
    with pytest.raises(TaskError, match=message):
        load(tmp_path, STEPS, **changes)


@pytest.fixture
def env(tmp_path):
    write(tmp_path / "task", STEPS)
    env = TerminalEnv(tasks=str(tmp_path), max_turns=10)
    yield env
    env.close()


@pytest.mark.sandbox
def test_a_submitted_step_is_followed_by_the_next(env):
    budget = "You have 10 replies. Run submit when you are done."
    assert env.reset(options={"task": "task"})[0] == f"Write 1 to a.\n\n{budget}"
    env.step("echo 1 > a")
    told, reward, terminated, truncated, info = env.step("submit")
    assert (told, reward, terminated, truncated, info["report"]) == (
        "Append seed.txt to a.", 0.0, False, False, ""
    )  # fmt: skip
    seen = env.step("pwd; ls -A; ls -A /tests /solution /logs/verifier")[0]
    assert seen.startswith("/app\na\nready\nseed.txt\nsetup.sh")
    assert "test.sh" not in seen
    assert "reward" not in seen
    env.step("cat seed.txt >> a")
    assert env.step("submit")[:3] == ("(submitted)", 1.0, True)


@pytest.mark.sandbox
def test_the_oracle_goes_through_all_steps(env):
    env.reset(options={"task": "task"})
    for command in env.solve():
        _, reward, terminated, _, _ = env.step(command)
    assert not terminated
    assert (reward, env.finish()) == (0.0, 1.0)


@pytest.mark.sandbox
def test_a_daemon_of_one_step_does_not_live_into_the_next(env):
    env.reset(options={"task": "task"})
    env.step("echo 1 > a; (while :; do echo 1 > /tmp/alive; sleep 0.01; done) & disown")
    env.step("submit")
    env.step("rm -f /tmp/alive; sleep 0.1")
    assert env.step("ls -A /tmp")[0] == "(no output)"


@pytest.mark.sandbox
def test_a_setup_that_fails_is_an_error_of_the_task(tmp_path):
    write(tmp_path / "task", STEPS, **{"steps/two/workdir/setup.sh": "echo no; exit 4"})
    with TerminalEnv(tasks=str(tmp_path)) as env:
        env.reset(options={"task": "task"})
        with pytest.raises(NoVerdict, match=r"'bash setup.sh' ended with exit code 4: 'no'"):
            env.step("submit")
        with pytest.raises(EnvError, match="outside an episode"):
            env.step("ls")


@pytest.mark.sandbox
def test_the_verifier_of_a_step_that_never_leaves_a_reward_is_an_error_of_the_task(tmp_path):
    write(tmp_path / "task", STEPS, **{"steps/one/tests/test.sh": "true"})
    with TerminalEnv(tasks=str(tmp_path)) as env:
        env.reset(options={"task": "task"})
        with pytest.raises(NoVerdict, match="ended with 0; it left none"):
            env.step("submit")


@pytest.mark.sandbox
def test_a_partial_reward_of_a_step_counts_in_the_mean(tmp_path):
    half = "echo 0.5 > /logs/verifier/reward.txt"
    write(tmp_path / "task", STEPS, **{"steps/one/tests/test.sh": half})
    with TerminalEnv(tasks=str(tmp_path)) as env:
        env.reset(options={"task": "task"})
        env.step("submit")
        assert env.step("submit")[1] == 0.25
