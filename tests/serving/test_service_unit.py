"""The systemd unit starts the command that printed it, and systemd can read it."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.serving.service_unit import service_unit

ROOT = Path(__file__).parents[2]


def unit_of(*overrides: str, environment: dict[str, str] | None = None) -> str:
    config = load_config([*overrides], "serve")
    return service_unit(config, ["print_unit=true", *overrides], environment or {})


def parsed(text: str) -> ConfigParser:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    return unit


def verified(folder: Path, text: str) -> None:
    """By systemd itself where it is installed."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        return
    path = folder / "clawrl-gym.service"
    path.write_text(text)
    ended = subprocess.run(
        [tool, "verify", "--man=no", "--user", str(path)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(folder)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = ended.stdout + ended.stderr
    assert (ended.returncode, "clawrl-gym.service" in said) == (0, False), said


def test_the_unit_serves_this_installation_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = unit_of("run.dir=runs/mine", "policy=tiny", "gateway.port=7001")
    service = parsed(text)["Service"]
    assert service["WorkingDirectory"] == str(tmp_path)
    assert service["ExecStart"] == (
        f"{sys.executable} -m clawrl_gym.serve policy=tiny gateway.port=7001 ui=line "
        f"run.dir={tmp_path}/runs/mine"
    )
    assert f"User={getpass.getuser()}" in text
    assert not (tmp_path / "runs").exists()
    verified(tmp_path, text)


def test_the_unit_gives_up_on_a_refused_configuration_and_ends_in_order(tmp_path: Path) -> None:
    unit = parsed(unit_of(f"run.dir={tmp_path}"))
    service = unit["Service"]
    assert set(unit) == {"DEFAULT", "Unit", "Service", "Install"}
    assert service["RestartPreventExitStatus"] == "2"
    assert service["SuccessExitStatus"].split() == ["130", "143"]
    assert service["KillMode"] == "mixed", "its children are ended by it"
    assert unit["Install"]["WantedBy"] == "default.target"


def test_odd_paths_and_texts_reach_the_command_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / 'a "b" 50% $HOME'
    odd.mkdir()
    monkeypatch.chdir(odd)
    text = unit_of("run.dir=runs/x y", "judge.languages=[en, de]", "ui=line")
    service = parsed(text)["Service"]
    assert service["WorkingDirectory"] == str(odd).replace("%", "%%")
    run = str(odd / "runs/x y").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    assert service["ExecStart"].endswith(f'"judge.languages=[en, de]" ui=line "run.dir={run}"')
    verified(tmp_path, text)


def test_what_the_shell_had_set_is_taken_along(tmp_path: Path) -> None:
    environment = {"HF_HOME": "/data/h f", "CUDA_VISIBLE_DEVICES": "1", "SHELL": "/bin/sh"}
    text = unit_of(f"run.dir={tmp_path}", environment=environment)
    lines = [line for line in text.splitlines() if line.startswith("Environment=")]
    assert lines == ["Environment=CUDA_VISIBLE_DEVICES=1", 'Environment="HF_HOME=/data/h f"']
    verified(tmp_path, text)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("gateway.key=sk-0123456789abcdefghij", r"got gateway.key=\[hidden\] for a unit"),
        ("judge.api_key=0123456789abcdef", r"got judge.api_key=\[hidden\] for a unit"),
        ("run.name='a\nb'", "expected printable text in one line"),
    ],
)
def test_what_no_unit_may_hold_is_refused(tmp_path: Path, override: str, says: str) -> None:
    config = load_config([f"run.dir={tmp_path}"], "serve")
    with pytest.raises(ConfigError, match=says):
        service_unit(config, [override], {})


def test_the_command_prints_it_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clawrl_gym.serve", "print_unit=true", f"run.dir={tmp_path}/r"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert parsed(ended.stdout)["Service"]["ExecStart"].endswith(f"run.dir={tmp_path}/r")
    assert not (tmp_path / "r").exists()
