"""A checkpoint that holds an adapter alone is a model wherever its base is at hand, and says so
where it is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.weights.files import weight_files
from clawrl_gym.inference.weights.whole_model import holds_adapter, is_made, whole_model
from clawrl_gym.run.export import export_run
from clawrl_gym.run_folder.kept_model import keep_model
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3
from tests.support.tiny_vision import make_vision_model


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def trained(model: Path | str, **adapter: object) -> Learner:
    """A learner whose adapter is not zero any more."""
    config = LearnerConfig(lr=1e-2, adapter=AdapterConfig.model_validate({"rank": 4} | adapter))
    trainer = TrainerConfig(steps=10, token_ratio_min=0, sequence_ratio_min=0)
    learner = Learner(trainer, config, str(model), 0, "cpu")
    for version in range(2):
        learner.step(make_samples([5, 30, 17]), version)
    return learner


def make_run(folder: Path, learner: Learner, model: str) -> Path:
    """A run's folder with one checkpoint; returns the checkpoint."""
    checkpoint = folder / "checkpoints" / "000002"
    checkpoint.parent.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        yaml.safe_dump(
            {"command": "train", "env": {"type": "terminal"}, "policy": {"model": model}}
        )
    )
    learner.save_checkpoint(str(checkpoint))
    return checkpoint


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for file, path in weight_files(folder).items()
        if file.endswith(".safetensors")
        for name, tensor in load_file(path).items()
    }


def test_a_run_with_an_adapter_is_a_model_and_its_checkpoints_are_small(tmp_path: Path) -> None:
    learner = trained(shipped_dir())
    checkpoint = make_run(tmp_path / "a", learner, "tiny")
    assert holds_adapter(checkpoint)
    files = {str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()}
    assert files == {
        "adapter/adapter_config.json", "adapter/adapter_model.safetensors", "base.json",
        "learner/state.pt",
    }  # fmt: skip
    whole = resolve_model(str(tmp_path / "a"))
    assert is_made(whole)
    assert not holds_adapter(whole)
    assert (whole / "tokenizer.json").is_file()
    own, saved = learner.model.state(), weights_in(whole)
    assert own.keys() == saved.keys()
    for name, tensor in own.items():
        torch.testing.assert_close(saved[name], tensor, rtol=0, atol=1e-6)
    assert resolve_model(str(checkpoint)) == whole


@pytest.mark.parametrize("kind", ["idefics3", "qwen3_vl"])
def test_a_model_that_sees_is_whole_again(tmp_path: Path, kind: str) -> None:
    model = make_vision_model(tmp_path / "model", kind)
    learner = trained(model)
    checkpoint = make_run(tmp_path / "a", learner, str(model))
    own, saved = learner.model.state(), weights_in(whole_model(checkpoint, Path))
    assert own.keys() == saved.keys() == weights_in(model).keys()
    for name, tensor in own.items():
        torch.testing.assert_close(saved[name], tensor, rtol=0, atol=1e-6)


def test_shards_and_the_element_type_of_the_models_files_stay(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    one = write_tiny_qwen3(tmp_path / "one")
    net = AutoModelForCausalLM.from_pretrained(one, dtype=torch.bfloat16)
    net.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    learner = trained(tmp_path / "model")
    whole = whole_model(make_run(tmp_path / "a", learner, "nowhere"), Path)
    assert len(weight_files(whole)) == len(weight_files(tmp_path / "model")) > 2
    saved = weights_in(whole)
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    for name, tensor in learner.model.state().items():
        assert torch.equal(saved[name], tensor.bfloat16()), name


def test_a_base_that_was_changed_or_is_gone_is_refused(tmp_path: Path) -> None:
    model = Path(write_tiny_qwen3(tmp_path / "model"))
    learner = trained(model)
    checkpoint = make_run(tmp_path / "a", learner, str(model))
    write_tiny_qwen3(model, seed=1)
    with pytest.raises(ConfigError, match=r"an adapter of another model than .*model: expected"):
        whole_model(checkpoint, Path)
    with pytest.raises(TrainerError, match=r"got the adapter of another model .*changed or replac"):
        trained(model).load_checkpoint(str(checkpoint))
    shutil.rmtree(model)
    with pytest.raises(ConfigError, match=r"holds an adapter, and the model .* is not here: put"):
        whole_model(checkpoint, resolve_model)
    write_tiny_qwen3(model)
    weights = checkpoint / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ConfigError, match=r"cannot be added to .* is cut off"):
        whole_model(checkpoint, resolve_model)
    shutil.rmtree(checkpoint / "adapter")
    with pytest.raises(ConfigError, match="has no adapter that can be read"):
        whole_model(checkpoint, resolve_model)
    (checkpoint / "base.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"base.json cannot be read"):
        whole_model(checkpoint, resolve_model)


def test_a_run_that_began_with_an_adapter_keeps_its_base_and_can_be_moved(tmp_path: Path) -> None:
    first = trained(shipped_dir())
    checkpoint = make_run(tmp_path / "a", first, "tiny")
    (tmp_path / "b").mkdir()
    kept = keep_model(tmp_path / "b", resolve_model(str(checkpoint)))
    assert kept == tmp_path / "b" / "model"
    stamp = (kept / "model.safetensors").stat().st_mtime_ns
    second = trained(kept)
    make_run(tmp_path / "b", second, str(checkpoint))
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "b").rename(tmp_path / "c")
    whole = resolve_model(str(tmp_path / "c"))
    for name, tensor in second.model.state().items():
        torch.testing.assert_close(weights_in(whole)[name], tensor, rtol=0, atol=1e-6)
    assert (tmp_path / "c" / "model" / "model.safetensors").stat().st_mtime_ns == stamp


def test_another_adapter_of_the_same_base_is_another_model(tmp_path: Path) -> None:
    learner = trained(shipped_dir())
    first = make_run(tmp_path / "a", learner, "tiny")
    second = tmp_path / "b" / "checkpoints" / "000002"
    shutil.copytree(first, second)
    assert whole_model(second, lambda _: shipped_dir()) == whole_model(
        first, lambda _: shipped_dir()
    )
    learner.step(make_samples([9, 4]), 2)
    learner.save_checkpoint(str(tmp_path / "c"))
    other = whole_model(tmp_path / "c", lambda _: shipped_dir())
    assert other != whole_model(first, lambda _: shipped_dir())
    old, new = weights_in(whole_model(first, lambda _: shipped_dir())), weights_in(other)
    assert any(not torch.equal(old[name], new[name]) for name in new)


def test_the_model_of_a_resumed_run_is_not_made_again(tmp_path: Path) -> None:
    checkpoint = make_run(tmp_path / "a", trained(shipped_dir()), "tiny")
    (tmp_path / "b").mkdir()
    kept = keep_model(tmp_path / "b", resolve_model(str(checkpoint)))
    place = (kept / "config.json").stat().st_ino
    assert keep_model(tmp_path / "b", resolve_model(str(checkpoint))) == kept
    assert (kept / "config.json").stat().st_ino == place


def test_weights_that_the_base_has_not_are_told(tmp_path: Path) -> None:
    model = write_tiny_qwen3(tmp_path / "model")
    checkpoint = make_run(tmp_path / "a", trained(model), model)
    base = json.loads((checkpoint / "base.json").read_text())
    base["names"] = {"model.layers.0.self_attn.q_proj.weight": "elsewhere.weight"}
    (checkpoint / "base.json").write_text(json.dumps(base))
    with pytest.raises(ConfigError, match=r"cannot be added to .*: it has no elsewhere.weight"):
        whole_model(checkpoint, Path)
    assert not list((tmp_path / "cache").rglob("*.partial"))


def test_it_is_exported_whole(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    learner = trained(shipped_dir())
    make_run(tmp_path / "a", learner, "tiny")
    exported = export_run(tmp_path / "a", tmp_path / "out", dtype="bfloat16")
    net = AutoModelForCausalLM.from_pretrained(exported.folder, dtype="auto")
    assert net.dtype == torch.bfloat16
    own = learner.model.state()
    for name, tensor in weights_in(exported.folder).items():
        torch.testing.assert_close(tensor, own[name].bfloat16(), rtol=0, atol=0.01)
