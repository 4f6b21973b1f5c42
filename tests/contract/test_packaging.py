"""What is installed is what the checkout holds: the linked folders, the tiny model, the types."""

import tomllib
import zipfile
from pathlib import Path

import pytest

import clawrl_gym
from tests.support import packages

ROOT = Path(clawrl_gym.__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    out = tmp_path_factory.mktemp("wheel")
    wheel = packages.build("wheel", ROOT, out)
    assert wheel.stat().st_size < 12 << 20  # three shipped policies of 3 MB each are most of it
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize(
    "name",
    [
        "clawrl_gym/py.typed",
        "clawrl_gym/conf/train.yaml",
        "clawrl_gym/conf/env/terminal.yaml",
        "clawrl_gym/envs/terminal/env.py",
        "clawrl_gym/envs/sandbox/bubblewrap.py",
        "clawrl_gym/envs/showcase/swe/corpus/repositories/operator.yaml",
        "clawrl_gym/envs/showcase/gui/apps/templates/mail/list.html.j2",
        "clawrl_gym/envs/showcase/gui/apps/templates/style.css",
        "clawrl_gym/envs/gui/page/snapshot.js",
        "clawrl_gym/envs/gui/browser/context.js",
        "clawrl_gym/envs/gui/watch/page/watch.html",
        "clawrl_gym/docker/base.sh",
        "clawrl_gym/docker/swe.Dockerfile",
        "clawrl_gym/envs/terminal/agent.py",
        "clawrl_gym/trainers/losses/loss.py",
        "clawrl_gym/inference/models/tiny_model/model.safetensors",
        "clawrl_gym/inference/models/tiny_model/tokenizer.json",
        "clawrl_gym/ui/page/report.html.j2",
    ],
)
def test_the_wheel_holds(wheel_names: set[str], name: str) -> None:
    assert name in wheel_names


def test_a_wheel_of_the_source_archive_holds_the_same(
    wheel_names: set[str], tmp_path: Path
) -> None:
    source = packages.unpack(packages.build("sdist", ROOT, tmp_path), tmp_path)
    wheel = packages.build("wheel", source, tmp_path)
    assert set(zipfile.ZipFile(wheel).namelist()) == wheel_names


def test_every_command_is_a_program_too() -> None:
    commands = {
        path.stem
        for path in (ROOT / "clawrl_gym").glob("*.py")
        if "\ndef main(" in path.read_text()
    }
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {
        f"clawrl-{name.replace('_', '-')}": f"clawrl_gym.{name}:main" for name in commands
    }


def test_nothing_is_installed_under_a_bare_name(wheel_names: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"clawrl_gym"}


def test_the_folders_of_the_top_level_are_linked_into_the_package() -> None:
    for name in ("envs", "agents", "trainers", "conf", "docker"):
        link = ROOT / "clawrl_gym" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name
