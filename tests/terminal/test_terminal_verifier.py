"""Graders on a machine of their own: what they get of the agent's, and what they do not."""

import io
import tarfile

import pytest

from clawrl_gym.core.errors import EnvError, SandboxError, TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.folders import artifacts
from clawrl_gym.envs.terminal.folders.artifacts import collect_artifacts, pack_artifact, unpack
from clawrl_gym.envs.terminal.folders.grading import grade
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures
from clawrl_gym.envs.terminal.task import Artifact
from tests.support.terminal_fakes import MemorySandbox
from tests.support.terminal_folders import APART, REWARD, STEPS, load, write


def member(name, data=None, **fields):
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    info.size = len(data or b"")
    return info, data


def packed(*members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data or b""))
    return made.getvalue()


class Packing(MemorySandbox):
    """Answers every tar command with the same archive."""

    archive = b""

    def exec(self, command, timeout_s):
        words = command.split()
        if words[0] == "tar" and "-cf" in words:
            self.files[words[words.index("-cf") + 1]] = self.archive
        return super().exec(command, timeout_s)


def taken(archive, artifact=None):
    sandbox = Packing()
    sandbox.archive = archive
    return pack_artifact(sandbox, artifact or Artifact("/app/out"), 1 << 20)


def names(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return [info.name for info in opened]


def test_files_and_folders_are_handed_over():
    archive = taken(
        packed(
            member("app/out", type=tarfile.DIRTYPE),
            member("app/out/a", b"data", mode=0o4755),
        )
    )
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        folder, file = opened
        assert (folder.name, folder.isdir()) == ("app/out", True)
        assert (file.name, file.mode) == ("app/out/a", 0o755)
        content = opened.extractfile(file)
        assert content is not None
        assert content.read() == b"data"


@pytest.mark.parametrize(
    "odd",
    [
        member("app/out/x", type=tarfile.SYMTYPE, linkname="/check/expected"),
        member("app/out/x", type=tarfile.LNKTYPE, linkname="check/expected"),
        member("app/out/x", type=tarfile.FIFOTYPE),
        member("app/out/x", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("app/out/../../tests/test.sh", b"exit 0"),
        member("../etc/passwd", b"x"),
        member("/tests/test.sh", b"exit 0"),
        member("app/outside", b"x"),
    ],
)
def test_links_devices_and_other_places_are_left_out(odd):
    assert names(taken(packed(member("app/out/a", b"1"), odd))) == ["app/out/a"]
    assert taken(packed(odd)) is None


@pytest.mark.parametrize(
    "junk", [b"", b"junk" * 500, packed(member("app/out", b"x" * 600))[:700], b"\0" * 1024]
)
def test_an_archive_that_is_none_is_nothing(junk):
    assert taken(junk) is None


def test_too_many_files_are_nothing(monkeypatch):
    monkeypatch.setattr(artifacts, "MAX_FILES", 50)
    many = [member(f"app/out/{number}", b"") for number in range(artifacts.MAX_FILES)]
    assert len(names(taken(packed(*many)))) == artifacts.MAX_FILES
    assert taken(packed(*many, member("app/out/one more", b""))) is None


def test_a_file_that_is_too_large_is_nothing_but_a_dead_sandbox_is_an_error():
    class TooLarge(Packing):
        def read(self, path, max_bytes):
            raise SandboxError("too large")

    sandbox = TooLarge()
    assert pack_artifact(sandbox, Artifact("/a"), 99) is None
    sandbox.dead = True
    with pytest.raises(SandboxError, match="has ended"):
        pack_artifact(sandbox, Artifact("/a"), 99)


def test_artifacts_fit_together_or_are_left_out():
    sandbox = Packing()
    sandbox.archive = packed(member("a", b"x" * 5000))
    all_of_it = collect_artifacts(sandbox, [Artifact("/a")] * 3, 1 << 20)
    assert len(all_of_it) == 3
    assert len(collect_artifacts(sandbox, [Artifact("/a")] * 3, 2 * len(all_of_it[0]))) == 2
    assert collect_artifacts(sandbox, [Artifact("/a")] * 3, 100) == []


def test_an_archive_that_cannot_be_unpacked_is_told_and_no_error():
    class Full(MemorySandbox):
        def exec(self, command, timeout_s):
            return ExecResult("tar: no space left", 2)

    assert "handed over: 'tar: no space left'" in unpack(Full(), b"x")


def test_a_folder_with_its_own_verifier_becomes_a_task(tmp_path):
    toml = (
        "artifacts = ['/app/out', {source = '/app/log/', exclude = ['*.tmp']}]\n"
        "[verifier]\nenvironment_mode = 'separate'\n"
        "[[verifier.collect]]\ncommand = 'date > /logs/artifacts/when'\ntimeout_sec = 5\n"
    )
    task = load(tmp_path, APART, **{"task.toml": toml})
    assert task.verifier.workdir == "/check"
    assert [artifact.source for artifact in task.artifacts] == [
        "/logs/artifacts", "/app/out", "/app/log/",
    ]  # fmt: skip
    assert task.artifacts[2].exclude == ("*.tmp",)
    assert [(hook.command, hook.timeout_s) for hook in task.collect] == [
        ("date > /logs/artifacts/when", 5)
    ]


def test_which_machine_the_verifier_has(tmp_path):
    docker = SandboxFeatures(images=True, users=True)

    def verifier(name, bases=docker, **changes):
        return load(tmp_path / name, APART, bases, **changes).verifier

    separate = "[verifier]\nenvironment_mode = 'separate'\n"
    assert verifier("a", **{"task.toml": ""}).image is None
    in_place = SandboxFeatures(verifier="in_place")
    assert verifier("aa", in_place, **{"task.toml": ""}) is None
    own = verifier("b", **{"task.toml": f"{separate}[verifier.environment]\ndocker_image='v'\n"})
    assert own.image.name == "v"
    built = verifier("c", **{"tests/Dockerfile": "FROM x\n"})
    assert built.image.context == str(tmp_path / "c" / "task" / "tests")
    copy = {"tests/Dockerfile": None, "environment/Dockerfile": "FROM x\n"}
    assert verifier("d", **copy).image.context == str(tmp_path / "d" / "task" / "environment")
    user = verifier("e", **{"task.toml": f"{separate}user = 'judge'\n"})
    assert user.user == "judge"


def test_a_step_has_the_last_word_on_its_verifier(tmp_path):
    toml = (
        "[verifier]\nenvironment_mode = 'separate'\n"
        "[[steps]]\nname = 'one'\nverifier = { environment_mode = 'shared' }\n"
        "[[steps]]\nname = 'two'\n"
    )
    changes = {"task.toml": toml, "steps/two/tests/Dockerfile": "FROM host\nWORKDIR /two\n"}
    one, two = load(tmp_path, STEPS, **changes).steps
    assert (one.takes, one.trusted) == ("all", False)
    assert (two.takes, two.trusted) == ("artifacts", True)
    assert two.verifier.workdir == "/two"


def test_a_grader_without_its_machine_is_an_error(tmp_path):
    with pytest.raises(EnvError, match="needs a machine for its grader"):
        grade(load(tmp_path, APART), MemorySandbox(), 5.0)


def play(root, commands, **changes):
    """The reward of an episode."""
    write(root / "task", APART, **changes)
    with TerminalEnv(tasks=str(root)) as env:
        env.reset(options={"task": "task"})
        for command in [*(env.solve() if commands is None else commands), "submit"]:
            reward = env.step(command)[1]
    return reward


@pytest.mark.sandbox
def test_the_verifier_sees_what_was_declared(tmp_path):
    assert play(tmp_path, None) == 1.0
    assert play(tmp_path, []) == 0.0
    assert play(tmp_path, ["echo 43 > out"]) == 0.0


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "tampering",
    [
        "ln -s /check/expected out",
        "mkdir out; ln -s /check/expected out/expected",
        "mkfifo out",
        "echo 42 > other",
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
        "echo 42 > out; mount() { :; }; rm /usr/bin/tar; rm out",
        "head -c 40000000 /dev/zero > out",
        "head -c 15000000 /dev/zero | tee out > /logs/artifacts/more",
        "mkdir out; cd out; for n in {1..20000}; do : > $n; done",
    ],
)
def test_what_was_not_handed_over_earns_nothing(tmp_path, tampering):
    assert play(tmp_path, [tampering]) == 0.0


@pytest.mark.sandbox
def test_what_is_collected_reaches_the_verifier(tmp_path):
    toml = (
        "[verifier]\nenvironment_mode = 'separate'\n"
        "[[verifier.collect]]\ncommand = 'false; cat answer > /logs/artifacts/out'\n"
        "[[verifier.collect]]\ncommand = 'no-such-command'\n"
    )
    test = f'cmp /check/expected /logs/artifacts/out && [ "$(pwd)" = /check ]\n{REWARD}'
    changes = {"task.toml": toml, "tests/test.sh": test}
    assert play(tmp_path, ["echo 42 > answer"], **changes) == 1.0
    assert play(tmp_path, [], **changes) == 0.0


@pytest.mark.sandbox
def test_a_verifier_whose_machine_does_not_come_up_is_an_error(tmp_path):
    with pytest.raises(TaskError, match=r"the verifier of task 'task': .*exit code 9"):
        play(tmp_path, [], **{"tests/Dockerfile": "FROM host\nRUN exit 9\n"})
