"""A run that began with another run's checkpoint outlives that checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.run_folder.kept_model import keep_model, model_of


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(shipped_dir(), tmp_path / "first" / "checkpoints" / "000010"))
    (folder / "learner").mkdir()
    return folder


@pytest.fixture
def second(tmp_path: Path) -> Path:
    folder = tmp_path / "second"
    folder.mkdir()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_checkpoint_that_is_deleted_stays_where_it_is_needed(
    checkpoint: Path, second: Path
) -> None:
    assert model_of(second, str(checkpoint)) == checkpoint
    before = contents(checkpoint)
    del before["recipe.json"]
    kept = keep_model(second, checkpoint)
    shutil.rmtree(checkpoint)
    assert contents(kept) == before
    assert model_of(second, str(checkpoint)) == kept
    assert keep_model(second, kept) == kept, "again, when the run is resumed"
    assert [path.name for path in second.iterdir()] == [kept.name]


def test_keeping_takes_no_room_where_files_can_be_linked(checkpoint: Path, second: Path) -> None:
    weights = keep_model(second, checkpoint) / "model.safetensors"
    assert weights.samefile(checkpoint / "model.safetensors")


def test_where_files_cannot_be_linked_they_are_copied(
    checkpoint: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(self: Path, target: Path) -> None:
        raise OSError("another file system")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    weights = keep_model(second, checkpoint) / "model.safetensors"
    assert not weights.samefile(checkpoint / "model.safetensors")
    assert weights.stat().st_size == (checkpoint / "model.safetensors").stat().st_size


def test_other_models_stay_where_they_are(second: Path, checkpoint: Path) -> None:
    assert keep_model(second, shipped_dir()) == shipped_dir()
    assert not list(second.iterdir())
    keep_model(second, checkpoint)
    assert model_of(second, "tiny") == shipped_dir(), "whatever was kept before"


def test_a_checkpoint_that_nobody_kept_is_told(second: Path, checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint 000011, expected one of 000010"):
        model_of(second, str(checkpoint.with_name("000011")))
