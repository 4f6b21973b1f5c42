"""What travels from the agent's machine to the verifier's, and what does not."""

import io
import re
import tarfile
from dataclasses import dataclass

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult, FileData
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.folders.artifacts import Plain, cleaned
from clawrl_gym.envs.terminal.folders.handover import Surroundings, hand_over
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures
from clawrl_gym.envs.terminal.steering import (
    has_settings_of_runners,
    named_places,
    plain_git_config,
    steers,
)
from clawrl_gym.envs.terminal.task import Artifact, Task
from tests.support.terminal_attacks import PREPARED, write_victim
from tests.support.terminal_attacks import play as attack
from tests.support.terminal_fakes import MemorySandbox
from tests.support.terminal_folders import APART, HELLO, REWARD, load, write

SHARED = "[verifier]\nenvironment_mode = 'shared'\n"
TASK = {
    "task.toml": "",
    "instruction.md": "Do it.",
    "environment/Dockerfile": "FROM host\nWORKDIR /app\nCOPY kept .\n",
    "environment/kept": "kept\n",
}


@pytest.mark.parametrize(
    "path",
    ["/app/conftest.py", "/app/pkg/sitecustomize.py", "/app/usercustomize.cpython-311.so",
     "/app/x.pth", "/app/p-1.dist-info/entry_points.txt", "/app/__pycache__/a.cpython-311.pyc",
     "/app/.bashrc", "/app/pytest.ini", "/app/.cargo/config.toml", "/root/.local/bin/cmp",
     "/root/.anything", "/home/x/.profile", "/app/.gitconfig", "/app/sitecustomize/__init__.py"],
)  # fmt: skip
def test_what_runs_by_itself_is_no_data(path):
    assert steers(path, ("/root", "/home/x"))


@pytest.mark.parametrize(
    "path",
    ["/app/main.py", "/app/json.py", "/app/.hidden", "/app/.github/ci.yml", "/app/config.py",
     "/app/customize.py", "/app/.gitignore", "/app/.env", "/root/out.txt", "/app/profile"],
)  # fmt: skip
def test_work_is_data(path):
    assert not steers(path, ("/root",))


def test_settings_are_data_unless_a_part_is_for_a_test_runner():
    assert not has_settings_of_runners("/app/pyproject.toml", b"[project]\nname = 'pytest'\n")
    assert has_settings_of_runners("/app/pyproject.toml", b"[a]\n[tool.pytest.ini_options]\n")
    assert has_settings_of_runners("/app/setup.cfg", b" [tool:pytest]\naddopts = --co\n")
    assert not has_settings_of_runners("/app/other.cfg", b"[tool:pytest]\n")


def test_places_are_named_by_the_task_and_are_neither_the_systems_nor_the_verifiers():
    texts = [
        "Write to /data/out.csv and ~/notes.txt, see https://x.org/a/b. Not in /tmp or /usr/bin/x.",
        "Path('/data') / 'out.csv'; open('/tests/expected'); '/srv/www/index.html', \"$HOME/z\"",
        "cmp a/b/c /proc/self/x /logs/verifier/y; s|/opt/x|/|; /etc/passwd",
    ]
    assert named_places(texts, "/root") == (
        "/data", "/opt/x", "/root/notes.txt", "/root/z", "/srv/www/index.html",
    )  # fmt: skip


def test_a_repositorys_configuration_keeps_what_runs_nothing():
    config = (
        b"[core]\n\tbare = false\n\tfsmonitor = rm\n\tHooksPath = /app/h\n"
        b"[core] sshCommand = evil\n\tfilemode = true \\\n fsmonitor = x\n"
        b'[remote "origin"]\n\turl = https://x\n\tuploadpack = evil\n[include]\n\tpath = x\n'
        b'[filter "a"]\n\tclean = evil\n[user]\n\tname = me\n[alias]\n\tst = !evil\n'
    )
    plain = plain_git_config(config).decode()
    assert "bare = false" in plain
    assert "url = https://x" in plain
    assert "name = me" in plain
    assert plain_git_config(b"[core]\n\tbare = \\\n true\n\tbare = a\n").decode() == (
        "[core]\n\tbare = a\n"
    )
    assert plain_git_config(b"[a] \\\n[core]\n\tbare = a\n[core.x]\n bare = b\n").decode() == (
        "[a]\n[core.x]\n bare = b\n"
    )
    for word in ("fsmonitor", "hookspath", "ssh", "pack", "path", "clean", "evil"):
        assert word not in plain.lower().replace("[filter", ""), word


def archive(*members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        for name, target in members:
            info = tarfile.TarInfo(name)
            if isinstance(target, bytes):
                info.size = len(target)
                opened.addfile(info, io.BytesIO(target))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, target
                opened.addfile(info)
    return made.getvalue()


def links_of(*members):
    plain = cleaned(archive(("app/a", b"1"), *members), Plain(("/app",), links=True), 1 << 20)
    with tarfile.open(fileobj=io.BytesIO(plain or b"")) as opened:
        return [member.name for member in opened if member.issym()]


@pytest.mark.parametrize(
    "targets",
    [{"l": "/tests/expected"}, {"l": "../tests/expected"}, {"l": "/proc/self/root/tests/x"},
     {"s": "/usr", "l": "s/../tests/x"}, {"l": "/usr/lib/../../tests"}, {"s": "..", "l": "s/tests"},
     {"s": "/", "l": "s/tests/x"}, {"a1": "b1", "b1": "a1"}, {"l": "/var/run/../tests/x"},
     {"l": "/dev/stdin"}, {"l": "/logs/verifier"}, {"l": "d/../../tests"}],
)  # fmt: skip
def test_links_that_could_lead_to_a_verifiers_files_do_not_travel(targets):
    left = links_of(*((f"app/{name}", target) for name, target in targets.items()))
    assert not {"app/l", "app/a1", "app/b1"} & set(left)


def test_links_within_the_work_and_to_what_both_have_travel():
    assert links_of(("app/x", "a"), ("app/d/y", "../a"), ("app/z", "/usr/bin/python3")) == [
        "app/x", "app/d/y", "app/z",
    ]  # fmt: skip


def test_nothing_is_written_through_a_link():
    plain = cleaned(
        archive(("app/d", "/usr/bin"), ("app/d/cmp", b"x"), ("app/d/e", "/x")),
        Plain(("/app",), links=True), 1 << 20,
    )  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(plain or b"")) as opened:
        assert [(member.name, member.isreg()) for member in opened] == [("app/d/cmp", True)]


def play(root, commands, test, toml="", files=TASK, **options):
    """Reward and report after these commands."""
    write(root / "task", files, **{"task.toml": toml, "tests/test.sh": f"{test}\n{REWARD}"})
    with TerminalEnv(tasks=str(root), max_turns=20, **options) as env:
        _, info = env.reset(options={"task": "task"})
        for command in commands:
            env.step(command)
        reward = env.finish()
        return reward, env.report, info["scores"]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("command", "test"),
    [
        ("echo 1 > out; chmod 640 out", '[ "$(stat -c %a out)" = 640 ]'),
        ("mkdir -p a/b; echo 1 > a/b/c", "grep -q 1 a/b/c"),
        ("echo 'echo hi' > run; chmod +x run", '[ "$(./run)" = hi ]'),
        ("ln -s kept link", '[ "$(readlink link)" = kept ] && cat link'),
        ("echo 1 > a; ln a b", "cmp a b"),
        ("echo x > kept", "grep -qx x kept"),
        ("echo x > 'a b'; touch $'n\\nl'", "grep -q x 'a b'"),
        ("git init -q . && git config user.name n && git config user.email e && git add kept && "
         "git commit -qm first", '[ "$(git log --format=%s)" = first ]'),
        ("touch -d 2020-01-01 kept", '[ "$(date -r kept +%Y)" = 2020 ]'),
        ("mkdir -p /data; echo 1 > /data/out", "grep -q 1 /data/out"),
        ("echo 1 > /tmp/made", "grep -q 1 /tmp/made"),
        ("rm kept", "[ ! -e kept ]"),
        ("rm kept; mkdir kept", "[ -d kept ]"),
        ("echo 'x = 1' > mine.py", "python3 -c 'import mine; assert mine.x == 1'"),
        ("mkdir pkg; echo 'x = 1' > pkg/types.py; : > pkg/__init__.py",
         "python3 -m pkg.types && python3 -c 'from pkg.types import x'"),
        ("echo 'def f(): return 3' > queue.py", "python3 -c \"import runpy; assert "
         "runpy.run_path('queue.py')['f']() == 3\""),
    ],
)  # fmt: skip
def test_what_an_honest_agent_left_is_found_by_the_verifier(tmp_path, command, test):
    assert play(tmp_path, [], test)[0] == 0.0
    reward, report, scores = play(tmp_path, [command], test)
    assert (reward, report) == (1.0, "Test report: passed")
    assert scores == {"trusted": 1.0}


@pytest.mark.root  # else /usr is read-only there
@pytest.mark.sandbox
def test_a_module_that_the_image_has_in_two_places_is_the_one_that_was_worked_on(tmp_path):
    dockerfile = (
        "FROM host\nWORKDIR /app\nCOPY tool.py .\nRUN cp tool.py "
        "/usr/local/lib/python3.11/dist-packages/ && mkdir -p /usr/lib/python3.11\n"
    )
    changes = {
        "environment/Dockerfile": dockerfile,
        "environment/tool.py": "x = 0\n",
        "environment/kept": None,
    }
    write(tmp_path / "task", TASK, **changes)
    test = "python3 -c 'import tool; assert tool.x == 1'"
    assert play(tmp_path, ["echo 'x = 1' > tool.py"], test, files={**TASK, **changes})[0] == 1.0
    assert play(tmp_path, [], test, files={**TASK, **changes})[0] == 0.0


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("/opt/venv/bin/check", "/opt/venv/bin/check"),
        ("/opt/conda/etc/conda.sh", ". /opt/conda/etc/conda.sh"),
        ("/app/.venv/bin/check", "./.venv/bin/check"),
        ("/app/node_modules/.bin/check", "./node_modules/.bin/check"),
    ],
)
def test_programs_of_the_image_that_a_test_names_stay_the_images(tmp_path, program, test):
    folder, root = program.rpartition("/")[0], "/".join(program.split("/")[:3])
    dockerfile = (
        f"FROM host\nWORKDIR /app\nRUN mkdir -p {folder} {root}/bin && touch {root}/pyvenv.cfg && "
        f"printf '[ -e /app/solved ]' > {program} && chmod +x {program}\n"
    )
    files = {**TASK, "environment/Dockerfile": dockerfile, "environment/kept": None}
    forged = f"echo true > {program}"
    assert play(tmp_path, [forged], test, files=files)[0] == 0.0
    assert play(tmp_path, [forged, "touch /app/solved"], test, files=files)[0] == 1.0


@pytest.mark.sandbox
def test_with_shared_files_all_but_the_systems_travel_and_the_grade_is_not_trusted(tmp_path):
    commands = ["mkdir /elsewhere; echo 1 > /elsewhere/x; echo 1 > ~/plain; echo 1 > ~/.bashrc"]
    test = "cd /else*; grep -q 1 x && grep -q 1 ~/plai* && [ ! -e ~/.bashr* ]"
    assert play(tmp_path, commands, test, SHARED)[::2] == (1.0, {"trusted": 0.0})
    assert play(tmp_path, commands, test)[0] == 0.0
    assert play(tmp_path, commands, test, SHARED, verifier="separate")[0] == 0.0


@pytest.mark.sandbox
def test_in_place_the_verifier_finds_what_was_installed(tmp_path):
    installing = "cd /usr/local/bin; printf '#!/bin/sh\\necho hi\\n' > tool; chmod +x tool"
    assert play(tmp_path, [installing], "tool", verifier="in_place")[::2] == (
        1.0, {"trusted": 0.0},
    )  # fmt: skip
    assert play(tmp_path, [installing], "tool")[0] == 0.0


@pytest.mark.sandbox
def test_work_that_is_too_large_to_travel_is_told(tmp_path):
    reward, report, _ = play(tmp_path, ["head -c 30000000 /dev/zero > big"], "test -s big")
    assert reward == 0.0
    assert "/app could not be handed over: it is gone, unreadable or larger than 21 MiB" in report


@pytest.mark.parametrize("files", [APART, HELLO])
def test_grades_are_trusted_where_the_verifier_has_a_machine_of_its_own(tmp_path, files):
    assert load(tmp_path, files).trusted
    assert load(tmp_path, files, SandboxFeatures(verifier="in_place")).trusted in (
        files is APART, False,
    )  # fmt: skip


def test_tasks_that_are_not_trusted_can_be_left_out(tmp_path):
    write(tmp_path / "a", HELLO)
    write(tmp_path / "b", TASK, **{"task.toml": SHARED, "tests/test.sh": "true"})
    options = {"tasks": str(tmp_path)}
    assert TerminalEnvConfig.of(options).left_out() == (
        "1 of 2 tasks used have grades that are not trusted, as an agent may have prepared them "
        "(b)",
    )
    lines = TerminalEnvConfig.of({**options, "only_trusted": True}).left_out()
    assert lines[0] == "1 task used, 1 left out:"
    assert "env.verifier=separate" in lines[1]
    with pytest.raises(TaskError, match="no task of"):
        TerminalEnvConfig.of({**options, "only_trusted": True, "verifier": "in_place"}).task_ids(
            "train"
        )


QUICK = (
    "path: /usr/local/bin", "shell: ~/.bashrc", "loader: ld.so.preload", "python: sitecustomize",
    "python: json in the work folder", "python: optional imports", "python: .pth",
    "git: worktree and commondir", "reward: folder without permission", "answer: a pipe",
    "answer: a link through /usr", "work folder: a link", "machine: everything gone",
)  # fmt: skip


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "kind", ["harbor shared", pytest.param("terminal-bench", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("name", QUICK)
def test_attacks_earn_nothing_and_end_in_no_error(tmp_path, kind, name):
    write_victim(tmp_path, kind)
    options = {"tasks": str(tmp_path / kind), "sandbox": {"pids": 256}}
    attempt = attack(options, kind, "task", name, PREPARED[name])
    assert attempt.reward == 0.0, attempt.outcome


ASKED = 'printf "%s\\n%s" "$HOME" "$PATH"'


def handed_over(path, task, **left):
    """What is handed over between two machines in memory, the verifier's with this PATH."""
    said = ExecResult(path, 0)
    agent, verifier = MemorySandbox(dict(left)), MemorySandbox(script={ASKED: lambda _: said})
    return hand_over(task, agent, verifier, "/app", 1 << 20), agent, verifier


def a_task(**changes):
    return Task(**{"id": "t", "family": "f", "split": "train", "instruction": "do", **changes})


@pytest.mark.parametrize(
    ("said", "home", "path"),
    [
        ("/home/x\n/usr/bin:/bin", "/home/x", ("/usr/bin", "/bin")),
        ("/home/x\n/usr/bin\nmore", "/home/x", ("/usr/bin",)),
        ("~\n:/bin", "/root", ("", "/bin")),
        ("/x", "/x", ("",)),
        ("", "/root", ("",)),
    ],
)
def test_what_a_machine_s_shell_finds_is_asked_of_it(said, home, path):
    found = Surroundings.of(MemorySandbox(script={ASKED: lambda _: ExecResult(said, 0)}))
    assert (found.home, found.path) == (home, path)


def test_root_s_home_is_a_home_once():
    assert Surroundings("/home/x", ()).homes == ("/home/x", "/root")
    assert Surroundings("/root", ()).homes == ("/root",)


@pytest.mark.parametrize(
    ("path", "export"),
    [
        ("/usr/bin:/bin", None),
        ("/usr/bin:/application", None),
        ("/app:/usr/bin::/bin:.", "/usr/bin:/bin:/app:."),
        ("/usr/bin:/out put", "'/usr/bin:/out put'"),
    ],
)
def test_programs_where_the_agent_worked_are_found_last(path, export):
    task = a_task(artifacts=(Artifact("/app"), Artifact("/out put")))
    found, agent, verifier = handed_over(f"/root\n{path}", task)
    first, *more = found.exports.split("; ")
    match = re.fullmatch(
        r"export PYTHONPATH=(/\.verifier-[0-9a-f]{16})\$\{PYTHONPATH:\+:\$PYTHONPATH\}", first
    )
    assert match is not None
    assert more == ([] if export is None else [f"export PATH={export}"])
    assert found.notes == ()
    source = verifier.files[f"{match[1]}/sitecustomize.py"].decode()
    assert "PLACES = ('/app', '/out put')\n" in source
    assert agent.files == {}
    assert len([one for one in agent.ran if "tar -C / " in one]) == 2


def test_a_work_folder_that_cannot_be_packed_is_told_and_emptied():
    found, _, verifier = handed_over("/root\n/usr/bin:/app/bin", a_task(takes="work"))
    assert found.notes == (
        "/app could not be handed over: it is gone, unreadable or larger than 1 MiB "
        "(a third of env.sandbox.disk_mb)",
    )
    (emptied,) = [one for one in verifier.ran if "rm -rf" in one]
    assert emptied == (
        "if [ -d /app ]; then find /app -mindepth 1 -maxdepth 1 ! -path /app/bin -exec rm -rf -- "
        "{} +; else rm -f -- /app; fi"
    )


def test_what_lies_beside_the_work_and_cannot_be_packed_is_told():
    found, agent, _ = handed_over("/root\n/usr/bin", a_task(takes="all"))
    assert found.notes[-1] == ("nothing beside the work folder was handed over: more than 1 MiB")
    (command,) = [one for one in agent.ran if one.startswith("( cd /;")]
    assert ' -- "$@" 2> /dev/null )' in command


@dataclass
class Bare(MemorySandbox):
    """A machine on which there is nothing but what is said."""

    there: tuple[str, ...] = ()

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        done = super().exec(command, timeout_s)
        if command.startswith("[ -e "):
            return ExecResult("", 0 if command.split()[2] in self.there else 1)
        return done


@pytest.mark.parametrize(
    ("there", "looked_at"),
    [
        ((), True),
        (("/data/out/bin",), False),
        (("/data/out/pyvenv.cfg",), False),
        (("/data/conda-meta",), False),
        (("/data/out",), True),
        (("/bin", "/app/bin"), True),
    ],
)
def test_a_place_that_a_test_names_travels_unless_the_image_has_programs_there(there, looked_at):
    task = a_task(
        takes="work", grader_files={"/tests/t": FileData(b"cmp /data/out /app/in /tmp/x")}
    )
    agent, verifier = Bare(), Bare(there=there)
    found = hand_over(task, agent, verifier, "/app", 1 << 20)
    packed = [command.partition(" -- ")[2].split()[0] for command in agent.ran if " -- " in command]
    assert packed == (["app", "data/out", "tmp/x"] if looked_at else ["app", "tmp/x"])
    source = next(data for path, data in verifier.files.items() if path.endswith("customize.py"))
    places = ", ".join(f"'/{place}'" for place in packed)
    assert f"PLACES = ({places})\n".encode() in source
    assert len(found.notes) == 1


def test_a_place_below_a_folder_of_programs_is_the_images_when_it_is_there():
    task = a_task(takes="work", instruction="Write /srv/etc/x and /srv/y.")
    for there, taken in (((), ["srv/etc/x", "srv/y"]), (("/srv/etc/x",), ["srv/y"])):
        agent = Bare()
        hand_over(task, agent, Bare(there=there), "/app", 1 << 20)
        packed = [one.partition(" -- ")[2].split()[0] for one in agent.ran if " -- " in one]
        assert packed == ["app", *taken]


def test_a_place_that_is_there_and_cannot_be_packed_is_told():
    agent, verifier = Bare(there=("/data/out",)), Verifying()
    found = hand_over(
        a_task(takes="work", instruction="See /data/out."), agent, verifier, "/app", 1 << 20
    )
    assert found.notes[1:] == ("/data/out could not be handed over: it is unreadable or too large",)


class Verifying(Bare):
    """A machine of which everything can be packed: one empty folder."""

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        done = super().exec(command, timeout_s)
        if command.startswith("tar -C / --exclude="):
            self.files[command.split(" -cf ")[1].split()[0]] = archive(("data/out", b"1"))
        return done
