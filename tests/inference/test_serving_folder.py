from __future__ import annotations

from pathlib import Path

import pytest

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.inference.weights.serving_folder import ServingFolder
from tests.support.tiny_models import write_safetensors


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"another format")
    write_safetensors(folder / "model.safetensors", 9)
    return folder


@pytest.fixture
def folder(tmp_path: Path, model: Path) -> ServingFolder:
    folder = ServingFolder(tmp_path / "serving")
    folder.create(model)
    return folder


def test_a_new_folder_serves_the_models_own_files(folder: ServingFolder, model: Path) -> None:
    assert folder.version == 0
    names = {path.name for path in folder.current.iterdir()}
    assert names == {"config.json", "model.safetensors"}
    served = folder.current / "model.safetensors"
    assert served.read_bytes() == (model / "model.safetensors").read_bytes()


def test_a_folder_can_begin_with_other_weights(tmp_path: Path, model: Path) -> None:
    weights = write_safetensors(tmp_path / "w.safetensors", 9, fill=1)
    folder = ServingFolder(tmp_path / "serving")
    folder.create(model, version=7, weights=weights)
    assert folder.version == 7
    assert (folder.current / "model.safetensors").read_bytes() == weights.read_bytes()


def test_staged_weights_are_served_only_after_the_switch(
    folder: ServingFolder, tmp_path: Path
) -> None:
    weights = write_safetensors(tmp_path / "w.safetensors", 9, fill=1)
    before = (folder.current / "model.safetensors").read_bytes()
    folder.stage(1, weights)
    assert folder.version == 0
    assert (folder.current / "model.safetensors").read_bytes() == before
    folder.switch(1)
    assert folder.version == 1
    assert (folder.current / "model.safetensors").read_bytes() == weights.read_bytes()
    assert (folder.current / "config.json").read_text() == "{}"


def test_weights_that_are_overwritten_later_stay_as_they_were(
    folder: ServingFolder, tmp_path: Path
) -> None:
    weights = write_safetensors(tmp_path / "w.safetensors", 9, fill=1)
    copy = weights.read_bytes()
    folder.stage(1, weights)
    folder.switch(1)
    weights.write_bytes(b"of the next version")
    assert (folder.current / "model.safetensors").read_bytes() == copy


def test_the_current_version_is_never_discarded(folder: ServingFolder, tmp_path: Path) -> None:
    folder.stage(1, write_safetensors(tmp_path / "w.safetensors", 9))
    folder.switch(1)
    folder.discard(1)
    assert (folder.current / "model.safetensors").exists()
    folder.discard(0)
    folder.switch(1)
    assert not (folder.current.parent / "v0").exists()


def test_weights_that_are_missing_or_cut_off_are_refused_and_change_nothing(
    folder: ServingFolder, tmp_path: Path
) -> None:
    with pytest.raises(PolicyError, match=r"version 1 .*no \*\.safetensors"):
        folder.stage(1, tmp_path / "nowhere")
    broken = write_safetensors(tmp_path / "w.safetensors", 9)
    broken.write_bytes(broken.read_bytes()[:-5])
    with pytest.raises(PolicyError, match=r"version 1 .*cut off"):
        folder.stage(1, broken)
    assert folder.version == 0
