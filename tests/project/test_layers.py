"""The layers of the house, held by import-linter (`make check`), and that it would notice."""

import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = Path(sys.executable).with_name("lint-imports")
LINKED_ROOMS = ("agents", "envs", "trainers")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINT), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_layers_are_kept() -> None:
    report = lint(ROOT)
    assert report.returncode == 0, report.stdout


def test_rooms_behind_symlinks_are_looked_at() -> None:
    modules = grimp.build_graph("clawrl_gym", cache_dir=None).modules
    for room in LINKED_ROOMS:
        files = [path for path in (ROOT / room).rglob("*.py") if path.name != "__init__.py"]
        names = {path.relative_to(ROOT).with_suffix("").as_posix() for path in files}
        names = {f"clawrl_gym.{name.replace('/', '.')}" for name in names}
        in_packages = {name for name in names if name.rpartition(".")[0] in modules}
        assert in_packages
        assert in_packages <= modules


@pytest.fixture
def empty_house(tmp_path: Path) -> Path:
    """Our rooms and contracts without our code."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "clawrl_gym"
    package.mkdir()
    (package / "__init__.py").touch()
    for child in grimp.build_graph("clawrl_gym", cache_dir=None).find_children("clawrl_gym"):
        room = child.removeprefix("clawrl_gym.")
        folder = (tmp_path if room in LINKED_ROOMS else package) / room
        folder.mkdir()
        (folder / "__init__.py").touch()
        if room in LINKED_ROOMS:
            (package / room).symlink_to(f"../{room}")
    for kind in grimp.build_graph("clawrl_gym", cache_dir=None).find_children("clawrl_gym.envs"):
        (tmp_path / "envs" / kind.rpartition(".")[2]).mkdir()
        (tmp_path / "envs" / kind.rpartition(".")[2] / "__init__.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("file", "code"),
    [
        pytest.param("clawrl_gym/core/types.py", "import clawrl_gym.store", id="an arrow up"),
        pytest.param("envs/kind.py", "import clawrl_gym.rollout", id="up, from behind a link"),
        pytest.param("clawrl_gym/ui/page.py", "import clawrl_gym.gateway", id="a sibling"),
        pytest.param(
            "envs/kind.py", "def late():\n    import torch", id="torch, inside a function"
        ),
        pytest.param("trainers/mine.py", "import clawrl_gym.envs", id="trainers and environments"),
        pytest.param("envs/swe/a.py", "import clawrl_gym.envs.showcase", id="the showcase"),
        pytest.param("clawrl_gym/run/train.py", "import tools.tiny_policy", id="tools"),
        pytest.param("clawrl_gym/attic.py", "", id="a room without a place"),
        pytest.param("clawrl_gym/store/a.py", "import clawrl_gym.store.b", id="a circle"),
    ],
)
def test_what_breaks_the_layers_is_noticed(empty_house: Path, file: str, code: str) -> None:
    (empty_house / "clawrl_gym/store/b.py").write_text("import clawrl_gym.store.a\n")
    (empty_house / "clawrl_gym/store/a.py").touch()
    assert lint(empty_house).returncode == 0
    (empty_house / file).write_text(code + "\n")
    report = lint(empty_house)
    assert report.returncode == 1
    assert "BROKEN" in report.stdout or "not in the layers" in report.stdout, report.stdout


def test_the_process_that_drives_a_run_imports_no_torch() -> None:
    code = (
        "import sys, clawrl_gym.run.train, clawrl_gym.run.serve\n"
        "print({'torch', 'transformers', 'vllm', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "set()\n", done.stderr


def test_repositories_of_ones_own_load_no_shipped_task() -> None:
    code = (
        "import sys\n"
        "from clawrl_gym.envs.swe.config import SweEnvConfig\n"
        "from clawrl_gym.envs.swe.source import runners_of_families\n"
        "showcase = lambda: any('showcase' in name for name in sys.modules)\n"
        "print(runners_of_families(SweEnvConfig.of({'instances': 'rows.jsonl'})), showcase())\n"
        "print(len(runners_of_families(SweEnvConfig())) > 0, showcase())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "{} False\nTrue True\n", done.stderr
