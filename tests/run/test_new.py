"""`python -m clawrl_gym.new`: what it writes works as written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawrl_gym import new

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", new.SKELETONS)
def test_what_is_written_passes_its_own_test_and_is_found_by_its_name(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = tmp_path / "not" / "yet"
    assert new.main([kind, f"my-{kind}", "--folder", str(parent)]) == 0
    folder = parent / f"my_{kind}"
    setting = new.SKELETONS[kind].setting
    assert f"clawrl_gym.train {setting}=my_{kind} " in capsys.readouterr().out
    assert f"clawrl_gym.train {setting}=my_{kind} " in (folder / "README.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    info = folder / f"my_{kind}-0.1.0.dist-info"  # as an installation would leave it
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: my_{kind}\nVersion: 0.1.0\n")
    text = (folder / "pyproject.toml").read_text()
    _, _, points = text.partition('[project.entry-points."')
    group, _, rest = points.partition('"]\n')
    entry = rest.splitlines()[0].replace('"', "")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    overrides = [f"{setting}=my_{kind}", new.SKELETONS[kind].option]
    code = f"import clawrl_gym as cg; cg.load_config({overrides!r})"
    subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json", "is a module here already"),
        ("class", "no word of Python"),
        ("rule", "one of ours: judge.type=rule"),
        ("none", "one of ours"),
        ("My Judge", "expected small letters"),
        ("twice", "is there already"),
    ],
)
def test_a_name_that_cannot_be_is_one_line(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twice").mkdir()
    assert new.main(["judge", name, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "name"), [("judge", "my_judge"), ("judge", "my")])
def test_a_class_is_not_called_by_its_kind_twice(kind: str, name: str, tmp_path: Path) -> None:
    assert new.main([kind, name, "--folder", str(tmp_path)]) == 0
    assert "class MyJudge:" in (tmp_path / name / name / "__init__.py").read_text()
