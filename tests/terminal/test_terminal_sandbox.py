"""The terminal environment over real sandboxes: oracles, doing nothing, tampering."""

from pathlib import Path

import pytest

from clawrl_gym.core.errors import NoVerdict, TaskError
from clawrl_gym.envs.showcase.terminal.families import FAMILIES
from clawrl_gym.envs.showcase.terminal.generated import task_ids
from clawrl_gym.envs.terminal.env import TerminalEnv

pytestmark = pytest.mark.sandbox

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tasks"


@pytest.fixture
def env():
    env = TerminalEnv(max_turns=5)
    yield env
    env.close()


@pytest.fixture
def user_env():
    env = TerminalEnv(tasks=str(FIXTURES))
    yield env
    env.close()


def play(env, task_id, commands):
    """Reward and transcript of an episode; it must have ended with the last command."""
    env.reset(options={"task": task_id})
    transcript = []
    for command in commands or env.solve():
        observation, reward, terminated, _, _ = env.step(command)
        transcript += [command, observation]
    assert terminated
    return reward, transcript


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_solves_and_doing_nothing_does_not(env, family, split, tasks_a_family):
    for task_id in task_ids(split, [family])[:tasks_a_family]:
        assert play(env, task_id, None)[0] == 1.0, task_id
        assert play(env, task_id, ["submit"])[0] == 0.0, task_id


@pytest.mark.parametrize("family", FAMILIES)
def test_looking_around_solves_nothing(env, family):
    turns = FAMILIES[family].turns
    assert play(env, f"{family}-train-000002", ["ls -la; env; cat *"] * turns)[0] == 0.0


def test_the_second_turn_needs_what_the_first_one_shows(env):
    env.reset(options={"task": "note-train-000003"})
    look, _ = env.solve()
    shown, acted = env.step(look)[0], env.solve()[1]
    assert acted.split()[-1] in shown


def test_the_shell_keeps_its_directory_between_turns(env):
    env.reset(options={"task": "trail-train-000000"})
    env.step("mkdir deep; cd deep; X=kept")
    assert env.step("pwd; echo $X")[0] == "/root/deep\nkept"


@pytest.mark.parametrize(
    "tampering",
    [
        "for f in test stat cat cp sh; do echo 'exit 0' > /usr/bin/$f; done",
        "cp /usr/bin/true /tmp/t; for f in test stat cat; do cp /tmp/t /usr/bin/$f; done",
        "printf 'exit 0\\n' | tee ~/.bashrc ~/.bash_profile ~/.profile /etc/profile",
        "echo /tmp/evil.so > /etc/ld.so.preload",
        "trap 'exit 0' EXIT; test() { return 0; }; export -f test",
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    ],
)
@pytest.mark.parametrize("task_id", ["copy-train-000000", "script-train-000000"])
def test_tampering_with_the_machine_earns_nothing(task_id, tampering):
    with TerminalEnv(max_turns=5) as env:
        assert play(env, task_id, [tampering])[0] == 0.0


def test_a_script_that_prints_something_else_earns_nothing(env):
    script = "printf 'echo nothing\\n' > {a} && chmod +x {a}"
    env.reset(options={"task": "script-train-000000"})
    name = env.solve()[0].split()[-1]
    assert play(env, "script-train-000000", [script.format(a=name)])[0] == 0.0


def test_a_script_that_never_ends_earns_nothing():
    with TerminalEnv(grader_timeout_s=0.5) as env:
        env.reset(options={"task": "script-train-000000"})
        name = env.solve()[0].split()[-1]
        assert env.step(f"echo sleep 60 > {name}; chmod +x {name}")[1:3] == (0.0, True)


@pytest.mark.parametrize(
    "odd",
    ["", " \n", "a\x00b", "\ud800", "'", "cat <<EOF", "exit 3", "kill -9 $$", "x" * 100_000, "日本",
     "exec 1>&- 2>&-", "printf '\\xff\\x00\\x1b[31m'", "trap '' EXIT; set -e; false"],
)  # fmt: skip
def test_no_text_is_an_illegal_action(env, odd):
    env.reset(options={"task": "trail-train-000000"})
    observation, reward, terminated, truncated, _ = env.step(odd)
    assert observation in env.observation_space
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert env.step("echo still here")[0].endswith("still here")


def test_a_folder_where_the_file_should_be_earns_nothing(env):
    env.reset(options={"task": "append-train-000000"})
    name = env.solve()[0].split()[-1]
    assert play(env, "append-train-000000", [f"rm {name}; mkdir {name}"])[0] == 0.0


def test_a_link_to_the_hosts_files_is_read_inside_the_sandbox(env, tmp_path):
    env.reset(options={"task": "upper-train-000000"})
    target = env.solve()[0].split()[-1]
    secret = tmp_path / "secret"
    secret.write_text("hello")
    assert play(env, "upper-train-000000", [f"ln -s {secret} {target}"])[0] == 0.0


def test_a_user_folder_is_built_solved_and_graded(user_env):
    assert user_env.task_ids("train") == ["total"]
    observation, info = user_env.reset(options={"task": "total"})
    assert observation.startswith("The file prices.csv holds")
    assert info["family"] == "arithmetic"
    listed = user_env.step(
        "pwd; ls; cat prices.csv; echo $CURRENCY $SHELL_NAME; ls -A /tests /solution"
    )
    assert listed[0].splitlines()[:6] == [
        "/app", "prices.csv", "report", "apple,3", "pear,4", "plum,35",
    ]  # fmt: skip
    assert "EUR bash" in listed[0]
    assert "expected.txt" not in listed[0]
    assert "solve.sh" not in listed[0]
    for command in user_env.solve():
        user_env.step(command)
    assert user_env.step("submit")[:3] == ("(submitted)", 1.0, True)


def test_a_user_folder_without_a_solution_earns_nothing(user_env):
    assert play(user_env, "total", ["submit"])[0] == 0.0
    assert play(user_env, "total", ["echo 41 EUR > total.txt", "submit"])[0] == 0.0


def test_a_reward_that_the_agent_wrote_is_removed_before_grading(user_env):
    forged = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.json"
    daemon = "(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) & disown"
    assert play(user_env, "total", [forged, daemon, "submit"])[0] == 0.0


def copied_task(folder, **changes):
    """The fixture's task with files changed, as a folder of one task."""
    import shutil

    shutil.copytree(FIXTURES / "total", folder / "total")
    for name, content in changes.items():
        path = {"dockerfile": "environment/Dockerfile", "test": "tests/test.sh"}[name]
        (folder / "total" / path).write_text(content)
    return TerminalEnv(tasks=str(folder))


def test_a_build_step_that_fails_is_an_error_of_the_task(tmp_path):
    text = "FROM host\nRUN echo no route to the mirror; exit 7\n"
    with (
        copied_task(tmp_path, dockerfile=text) as env,
        pytest.raises(TaskError, match=r"exit code 7: 'no route to the mirror'.*no network"),
    ):
        env.reset(options={"task": "total"})


@pytest.mark.parametrize(
    "test",
    ["echo oops; exit 1\n"]
    + [f"echo '{w}' > /logs/verifier/reward.txt\n" for w in ("nan", "inf", "yes", "", '{"a": 1}')]
    + ["mkdir /logs/verifier/reward.txt\n", "mkfifo /logs/verifier/reward.txt\n",
       "head -c 5000000 /dev/zero > /logs/verifier/reward.txt\n",
       "ln -s reward.txt /logs/verifier/reward.txt\n",
       "printf '\\377' > /logs/verifier/reward.txt\n"],
)  # fmt: skip
def test_a_reward_that_can_never_be_read_is_an_error_of_the_task(tmp_path, test):
    with copied_task(tmp_path, test=test) as env:
        env.reset(options={"task": "total"})
        with pytest.raises(NoVerdict, match="the verifier ended with"):
            env.step("submit")


def test_the_json_reward_wins_and_may_be_a_fraction(tmp_path):
    test = (
        "cd /logs/verifier; echo 0 > reward.txt\n"
        """echo '{"reward": 0.25, "style": 1}' > reward.json\n"""
    )
    with copied_task(tmp_path, test=test) as env:
        env.reset(options={"task": "total"})
        assert env.step("submit")[1] == 0.25


SUBMITS = [
    "submit", "  submit  ", "submit\n", "ls\nsubmit", "ls && submit", "ls; submit", "ls ;submit",
    "ls&&submit", "submit # done", "ls\nsubmit  # all done", "submit;", "ls; submit;",
    "ls &&\nsubmit", "ls && \\\nsubmit", "ls\n\n\nsubmit\n\n", "ls\n# it's done\nsubmit",
    "ls\r\nsubmit\r\n", "cat <<EOF > f\nhi\nEOF\nsubmit", "cat <<'E' > f\nit's\nE\nsubmit",
    "cat <<EOF > f && submit\nhi\nEOF", "echo \"it's\" && submit", "echo it\\'s; submit",
    "if true; then\nsubmit\nfi", "[ -f none ] || submit", "false || submit", "false; submit",
    "(cd /tmp && submit)", "{ submit; }", "submit && echo done", "submit\necho done",
    "submit; exit", "true & submit", "sleep 0 &\nsubmit", "ls # x\nsubmit && true", "! submit",
    "submit 2>/dev/null", "submit > log", "for x in a; do submit; done", "x=$(submit)",
    "echo a\\\\\nsubmit", "set -e; submit", "set -C; set -u; submit", "cd /; rm -rf /tmp; submit",
    "echo done | submit", "no_such_command\nsubmit",
]  # fmt: skip
SUBMITS_NOT = [
    "echo submit", "echo 'a; submit", "echo 'a\nsubmit'", "echo 'a\nsubmit", "echo 'x; submit'",
    "grep submit /dev/null", "cat <<EOF\nsubmit\nEOF", "cat <<EOF\nls; submit\nEOF",
    "cat > run.sh <<'E'\nls && submit\nE", "cat <<EOF\nsubmit", "cat <<EOF && ls\nx; submit",
    'echo "x && submit"', "ls \\\nsubmit", "# submit", "ls # submit", "ls # then; submit",
    "ls # a && submit", "echo a \\; submit", "echo ${x:-a; submit", "echo ${x:-a\nsubmit",
    "for x in a; do echo $x; done # ; submit", "alias x='ls; submit'", "false && submit",
    "python3 - <<PY\nsubmit\nPY", "cat <<A <<B\nsubmit\nA\nsubmit\nB", "cat <<< submit",
    "x=submit", "type submit", "true || submit", "if false; then submit; fi", "ls; submit-now",
    "[[ a == b; submit", "case x in a) ls;; submit) ls;; esac", "echo submit && ls", "(ls; submit",
]  # fmt: skip


def a_submission_of(env, action):
    """Whether an action ends an episode that goes on otherwise."""
    env.reset(options={"task": "trail-train-000000"})
    return env.step(action)[2]


@pytest.mark.parametrize("action", SUBMITS)
def test_an_action_that_runs_submit_ends_the_episode(env, action):
    assert a_submission_of(env, action)


@pytest.mark.parametrize("action", SUBMITS_NOT)
def test_an_action_that_only_says_submit_does_not(env, action):
    assert not a_submission_of(env, action)


def test_an_action_with_submit_in_it_leaves_nothing_behind(env):
    env.reset(options={"task": "trail-train-000000"})
    env.step("echo submit; x=1")
    shown = env.step("compgen -v sub; compgen -A function; ls -A /tmp; echo $x")[0]
    assert shown == "1"
