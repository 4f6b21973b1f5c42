import os
import shutil
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.folders import task_folder
from clawrl_gym.envs.terminal.folders.dockerfile import build_steps, parse
from clawrl_gym.envs.terminal.folders.folder_tasks import FolderTasks
from clawrl_gym.envs.terminal.folders.harbor import strip_canary
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures
from clawrl_gym.envs.terminal.folders.task_folder import TaskFolder

TOTAL = Path(__file__).parents[1] / "fixtures" / "tasks" / "total"


@pytest.fixture
def folder(tmp_path):
    """A folder with one task, to be spoilt."""
    shutil.copytree(TOTAL, tmp_path / "tasks" / "total")
    return tmp_path / "tasks"


def many(root, names):
    for name in names:
        shutil.copytree(TOTAL, root / name)
    return FolderTasks.open(root, SandboxFeatures())


def load(folder, **files):
    """The task after some of its files were replaced; None removes one."""
    for name, content in files.items():
        path = folder / "total" / NAMES[name]
        path.unlink() if content is None else path.write_text(content)
    return FolderTasks.open(folder, SandboxFeatures()).load("total")


NAMES = {
    "toml": "task.toml",
    "instruction": "instruction.md",
    "dockerfile": "environment/Dockerfile",
    "test": "tests/test.sh",
    "solution": "solution/solve.sh",
}


def test_a_folder_becomes_a_task(folder):
    task = load(folder)
    assert (task.id, task.family, task.split) == ("total", "arithmetic", "train")
    assert task.instruction.startswith("The file prices.csv holds")
    assert task.workdir == "/app"
    assert task.env == {"REPORT": "/app/report", "SHELL_NAME": "bash", "CURRENCY": "EUR"}
    assert task.grader_timeout_s == 20
    assert set(task.grader_files) == {"/tests/test.sh", "/tests/expected.txt"}
    assert set(task.solution_files) == {"/solution/solve.sh"}
    assert task.solution == ("bash /solution/solve.sh",)
    copied = [path for step in task.build for path in step.files]
    assert copied == ["/app/prices.csv", "/app/extra/more.csv"]


def test_what_the_agent_must_not_see_is_no_part_of_the_machine(folder):
    task = load(folder)
    seen = [path for step in task.build for path in step.files] + list(task.files)
    assert not [path for path in seen if path.startswith(("/tests", "/solution"))]


def test_one_task_folder_alone_is_enough():
    source = FolderTasks.open(TOTAL, SandboxFeatures())
    assert source.ids("train") == ["total"]
    assert source.ids("heldout") == []


def test_a_folder_without_a_task_file_is_named(folder):
    with pytest.raises(TaskError, match=rf"{folder / 'total'}.* has neither task\.toml"):
        load(folder, toml=None)


@pytest.mark.parametrize("name", ["instruction", "test"])
def test_a_missing_file_is_named_with_its_folder(folder, name):
    with pytest.raises(TaskError, match=rf"{folder / 'total'}.* has no '{NAMES[name]}'"):
        load(folder, **{name: None})


def test_a_missing_file_is_found_before_a_run_starts(folder):
    (folder / "total" / "tests" / "test.sh").unlink()
    with pytest.raises(TaskError, match=r"has no 'tests/test\.sh'"):
        TerminalEnvConfig.of({"tasks": str(folder)}).task_ids("train")


def test_a_solution_is_optional(folder):
    task = load(folder, solution=None)
    assert task.solution == ()
    assert task.solution_files == {}


def test_an_empty_folder_and_no_folder_are_told_apart(tmp_path):
    with pytest.raises(TaskError, match="without tasks"):
        TerminalEnvConfig.of({"tasks": str(tmp_path)}).task_ids("train")
    with pytest.raises(ConfigError, match="there is no folder"):
        TerminalEnvConfig.of({"tasks": str(tmp_path / "no")}).task_ids("train")


def test_canary_lines_are_taken_off_the_instruction():
    text = "<!-- x CANARY y -->\n# terminal-bench-canary GUID 1\n\nDo it.\n# canary stays\n"
    assert strip_canary(text) == "Do it.\n# canary stays"


def test_named_folders_are_the_splits(tmp_path):
    for split, name in (("train", "a"), ("train", "b"), ("heldout", "a")):
        shutil.copytree(TOTAL, tmp_path / split / name)
    source = FolderTasks.open(tmp_path, SandboxFeatures())
    assert source.ids("train") == ["train/a", "train/b"]
    assert source.ids("heldout") == ["heldout/a"]
    assert source.load("heldout/a").split == "heldout"


def test_without_names_about_a_fifth_is_held_out_by_name_alone(tmp_path):
    source = many(tmp_path, [f"task{n:02}" for n in range(40)])
    heldout = source.ids("heldout")
    assert 2 <= len(heldout) <= 16
    assert sorted(heldout + source.ids("train")) == sorted(source.folders)
    shutil.rmtree(tmp_path / source.ids("train")[0])
    assert FolderTasks.open(tmp_path, SandboxFeatures()).ids("heldout") == heldout


@pytest.mark.parametrize("names", ["ab", "cd", "xy", "gh", "pq"])
def test_two_tasks_are_one_of_each_split(tmp_path, names):
    source = many(tmp_path, names)
    assert len(source.ids("train")) == len(source.ids("heldout")) == 1


def test_hidden_folders_are_no_tasks(folder):
    (folder / ".git").mkdir()
    (folder / "__pycache__").mkdir()
    assert FolderTasks.open(folder, SandboxFeatures()).ids("train") == ["total"]


def test_an_unknown_id_is_refused_and_leads_nowhere(folder):
    source = FolderTasks.open(folder, SandboxFeatures())
    with pytest.raises(TaskError, match="expected one of"):
        source.load("../tasks/total")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "'task.toml'"),
        ("x = 99" + "9" * 5000, "'task.toml'"),
        ("environment = 3", r"'task\.toml': environment: .*got 3"),
        ("[[steps]]\nname = '../x'", r"steps\.0\.name: .*got '\.\./x'"),
        ("[[steps]]\nname = 'a'", r"steps in only one of its two places"),
        ("[[steps]]\nname = 'a'\n[[steps]]\nname = 'a'", "steps of the same name"),
        ("[environment]\nos = 'windows'", "environment.os='windows'"),
        ("[environment]\ngpus = 1", "asks for gpus: not supported"),
        ("[environment.tpu]\ntype = 'v4'", "asks for tpu: not supported"),
        ("[environment]\nallowed_hosts = ['x.org']", "an allow-list of hosts"),
        ("[agent]\nnetwork_mode = 'allowlist'", "an allow-list of hosts"),
        ("[[environment.mcp_servers]]\nname = 'x'", "mcp_servers"),
        ("[[verifier.collect]]\ncommand = 'x'\nservice = 'db'", "several services"),
        ("[[verifier.collect]]\ncommand = 'x'\nuser = 'me'", r"other users \['me'\]"),
        ("[verifier]\nenvironment_mode = 'shared'\nenvironment = {}", "together with an env"),
        ("[verifier]\nuser = 'me'", r"verifier\.user='me'"),
        ("[agent]\nuser = 'a b'", r"agent\.user: .*the user 'a b'"),
        ("[agent]\nuser = 'me'", "a user of its own 'me': this task needs sandbox=docker"),
        ("[verifier]\ntimeout_sec = 0", r"verifier\.timeout_sec: .*got 0"),
        ("[verifier]\ntimeout_sec = true", r"verifier\.timeout_sec: .*got True"),
        ("[environment]\nbuild_timeout_sec = 1e300", "build_timeout_sec: .*less than"),
        ("[environment]\nenv = { KEY = '${HOME}' }", "variables of this machine"),
        ("[environment]\nenv = { 'A B' = '1' }", "expected a plain value"),
        ("[environment]\nenv = 3", r"environment\.env: .*got 3"),
        ("artifacts = ['/app/../etc']", r"artifacts\.0: .*expected an absolute path below /"),
        ("artifacts = ['app']", r"artifacts\.0\.source: .*got 'app'"),
        ("artifacts = [{source = '/a', service = 'db'}]", "several services"),
        ("multi_step_reward_strategy = 'max'", "multi_step_reward_strategy"),
        ("[environment]\ndocker_image = 'ubuntu:24.04'", "built on 'ubuntu:24.04'.*sandbox=docker"),
        (
            "[verifier.environment]\ndocker_image = 'ubuntu:24.04'",
            "the verifier runs in the image 'ubuntu:24.04': this task needs sandbox=docker",
        ),
    ],
)
def test_what_a_sandbox_cannot_give_is_refused_by_name(folder, text, message):
    with pytest.raises(TaskError, match=message):
        load(folder, toml=text)


def test_a_base_that_is_not_at_hand_says_what_to_do(folder):
    with pytest.raises(TaskError, match=r"built on 'debian:12'.*set env.sandbox.rootfs"):
        load(folder, dockerfile="FROM debian:12\n")
    source = FolderTasks.open(folder, SandboxFeatures(rootfs=True))
    assert source.load("total").workdir == "/"


def test_a_compose_file_is_refused(folder):
    (folder / "total/environment/docker-compose.yaml").write_text("services: {}")
    with pytest.raises(TaskError, match="docker-compose"):
        load(folder)


def test_files_for_an_environment_without_a_dockerfile_are_not_lost_silently(folder):
    with pytest.raises(TaskError, match="'environment' but no"):
        load(folder, dockerfile=None)
    shutil.rmtree(folder / "total" / "environment")
    task = load(folder)
    assert task.workdir == "/root"
    assert [step.files for step in task.build] == [{}]


def test_a_link_out_of_the_task_is_refused(folder):
    link = folder / "total" / "tests" / "expected.txt"
    link.unlink()
    link.symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="leads outside, to '/etc/passwd'"):
        load(folder)


def test_a_copy_cannot_reach_out_of_the_environment(folder):
    for source in ("../tests/test.sh", "/../instruction.md"):
        with pytest.raises(TaskError, match="leads outside"):
            load(folder, dockerfile=f"FROM host\nCOPY {source} /app/\n")


def test_a_copy_of_nothing_is_refused(folder):
    with pytest.raises(TaskError, match="no usable 'absent'"):
        load(folder, dockerfile="FROM host\nCOPY absent /app/\n")
    with pytest.raises(TaskError, match=r"nothing matches '\*\.zip'"):
        load(folder, dockerfile="FROM host\nCOPY *.zip /app/\n")


def test_a_link_that_goes_in_circles_ends(folder):
    (folder / "total" / "tests" / "loop").symlink_to(".")
    with pytest.raises(TaskError, match=r"deep|no usable"):
        load(folder)


def test_a_fifo_is_refused_without_waiting(folder):
    os.mkfifo(folder / "total" / "tests" / "pipe")
    with pytest.raises(TaskError, match="no regular file"):
        load(folder)


def test_a_file_that_is_too_large_is_refused_unread(folder):
    with (folder / "total" / "tests" / "huge").open("wb") as huge:
        huge.truncate(task_folder.MAX_TOTAL_BYTES + 1)
    with pytest.raises(TaskError, match="holds too much at 'tests/huge'"):
        load(folder)


def test_a_folder_may_hold_64_mebibytes_and_ten_thousand_files(tmp_path):
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 10)
    full = TaskFolder(tmp_path, bytes_read=(64 << 20) - (1 << 10), files_read=9_999)
    assert len(full.file("large").data) == 1 << 10
    for read in ({"bytes_read": (64 << 20) - 1023}, {"files_read": 10_000}):
        with pytest.raises(TaskError, match="at most 64 MiB and 10000 files"):
            TaskFolder(tmp_path, **read).file("large")


def test_folders_lie_at_most_33_deep(tmp_path):
    deep = tmp_path.joinpath(*["d"] * 33)
    deep.mkdir(parents=True)
    (deep / "f").write_text("f")
    assert list(TaskFolder(tmp_path).tree("d")) == ["d/" * 32 + "f"]
    (deep / "d").mkdir()
    with pytest.raises(TaskError, match="is more than 32 deep"):
        TaskFolder(tmp_path).tree("d")


def test_an_instruction_that_is_no_text_is_refused(folder):
    (folder / "total" / "instruction.md").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match=r"'instruction\.md' is not UTF-8"):
        load(folder)


def copied(root, copy):
    """Where a COPY puts the files of `root/environment`."""
    image = parse(f"FROM host\nWORKDIR /app\n{copy}", "D")
    steps = build_steps(image, TaskFolder(root), "environment", 1.0)
    return sorted(path for step in steps for path in step.files)


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        ("COPY a.txt b.txt", ["/app/b.txt"]),
        ("COPY a.txt /tmp", ["/tmp/a.txt"]),
        ("COPY a.txt /app", ["/app/a.txt"]),
        ("COPY a.txt /new", ["/new"]),
        ("COPY a.txt /new/", ["/new/a.txt"]),
        ("COPY *.txt data/", ["/app/data/a.txt", "/app/data/c.txt"]),
        ("COPY deep /d", ["/d/in/x.sh"]),
        ("COPY deep/ .", ["/app/in/x.sh"]),
        ("COPY . /all", ["/all/a.txt", "/all/c.txt", "/all/deep/in/x.sh"]),
        ("COPY a.txt /k/\nCOPY c.txt /k", ["/k/a.txt", "/k/c.txt"]),
    ],
)
def test_copy_puts_files_where_docker_would(tmp_path, copy, expected):
    (tmp_path / "environment/deep/in").mkdir(parents=True)
    for name in ("a.txt", "c.txt", "deep/in/x.sh"):
        (tmp_path / "environment" / name).write_text(name)
    assert copied(tmp_path, copy) == expected


def test_executable_files_stay_executable(tmp_path):
    script = tmp_path / "x.sh"
    script.write_text("exit 0")
    assert TaskFolder(tmp_path).file("x.sh").mode == 0o644
    script.chmod(0o711)
    assert TaskFolder(tmp_path).file("x.sh").mode == 0o755
