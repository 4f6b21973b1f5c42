"""What `learner.remote_checkpoints` copied is a model again on another machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsspec
import pytest

import clawrl_gym as cg
from clawrl_gym.config import RunConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.remote_folder import RemoteFolder
from clawrl_gym.export import main
from clawrl_gym.inference.models.resolve import find_model, is_shipped, resolve_model
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.weights.remote_run import pinned_model
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import keep_model
from clawrl_gym.run_folder.remote_checkpoints import RemoteCheckpoints
from tests.support.remote_files import memory_address

TINY = shipped_dir()


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
async def address(tmp_path: Path) -> str:
    """Address of a run with checkpoints 3 and 10, whose own folder is gone."""
    run = RunFolder(tmp_path / "runs" / "first")
    run.write(RunConfig.of({"policy": {"model": "tiny"}}))
    rows = '{"step": 3, "heldout/success": 0.9, "heldout/n": 8}\n{"step": 10, "heldout/success": 0}'
    (run.path / "metrics.jsonl").write_text(rows + "\n")
    (run.path / "metrics.000001.jsonl").write_text('{"step": 1, "full": 1}\n')
    for version in (3, 10):
        folder = Path(shutil.copytree(TINY, run.checkpoints / f"{version:06d}"))
        (folder / "learner").mkdir()
        (folder / "learner/state.pt").write_bytes(b"optimizer")
        (folder / "generation_config.json").write_text(f'{{"top_k": {version}}}')
    place = RemoteFolder(memory_address()).below("first")
    copies = RemoteCheckpoints(run, place, print)
    copies.start()
    await copies.finish()
    copies.stop()
    shutil.rmtree(run.path)
    return place.address


def test_a_runs_address_is_its_newest_checkpoint_of_now(address: str) -> None:
    newest = Path(pinned_model(address))
    assert newest.parts[-3:] == ("first", "checkpoints", "000010")
    assert not (newest / "learner").exists(), "the learner's own state stays there"
    assert (newest / "generation_config.json").read_text() == '{"top_k": 10}'
    third = Path(pinned_model(f"{address}/checkpoints/000003"))
    assert (third / "generation_config.json").read_text() == '{"top_k": 3}'
    assert pinned_model(str(newest)) == str(newest)
    assert resolve_model(address) == find_model(address) == newest.resolve()
    assert is_shipped(address), "it is the tiny policy, and gets what is tuned for it"


def test_commands_take_an_address_as_their_model(address: str, tmp_path: Path) -> None:
    config = cg.load_config(["env=terminal", f"policy.model={address}"])
    model = Path(config.policy.model)
    assert model.name == "000010"
    kept = keep_model(tmp_path / "second", model)
    shutil.rmtree(tmp_path / "cache")
    assert (kept / "model.safetensors").is_file(), "the run needs neither cache nor address again"


def test_what_was_fetched_is_fetched_again_only_when_it_is_something_else(address: str) -> None:
    folder = Path(pinned_model(address))
    before = (folder / "model.safetensors").stat().st_ino
    assert Path(pinned_model(address)) == folder
    assert (folder / "model.safetensors").stat().st_ino == before
    place = RemoteFolder(address).below("checkpoints")
    manifest = place.manifest("000003")
    assert manifest is not None
    files = {file.name: str(TINY / file.name) for file in manifest.files if "/" not in file.name}
    ours = type(manifest)(tuple(f for f in manifest.files if f.name == "config.json"), files)
    place.put("000010", ours)
    assert [path.name for path in Path(pinned_model(address)).iterdir()] == ["config.json"]


def test_an_export_of_an_address_has_its_card(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([address, str(tmp_path / "out"), "--step", "best"]) == 0
    assert "update 3 of memory://" in capsys.readouterr().out
    card = (tmp_path / "out" / "README.md").read_text()
    assert "run `first`" in card
    assert "90.0%" in card
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert weights == (TINY / "model.safetensors").read_bytes()
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_addresses_that_hold_no_model_are_refused_in_a_line(address: str, tmp_path: Path) -> None:
    for wrong, words in (
        (f"{address}/checkpoints/7", "has no checkpoint 7, expected one of 3, 10"),
        (address.removesuffix("/first"), "holds no whole checkpoint, expected ADDRESS/NAME"),
        ("nowhere://bucket/first", "Protocol not known: nowhere"),
    ):
        with pytest.raises(ConfigError, match=words) as refusal:
            cg.load_config(["env=terminal", f"policy.model={wrong}"])
        assert "\n" not in str(refusal.value)
    with pytest.raises(ConfigError, match="no user's own weights are copied"):
        cg.export_run(address, tmp_path / "out", user="anna")
    files, path = fsspec.url_to_fs(f"{address}/checkpoints/000010/model.safetensors")
    files.pipe_file(path, b"other bytes")
    with pytest.raises(ConfigError, match=r"model\.safetensors is not what was sent"):
        pinned_model(address)
