from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.device import choose_device
from clawrl_gym.inference.models import resolve as models
from clawrl_gym.inference.vllm.build import vllm_build
from clawrl_gym.inference.weights.files import check_whole, weight_files
from tests.support.tiny_models import make_tokenizer, write_safetensors


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"dtype": "bfloat16", "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_tiny_is_the_shipped_model() -> None:
    folder = models.resolve_model("tiny")
    assert (folder / "model.safetensors").is_file()


def test_a_folder_is_itself(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models.resolve_model(str(model)) == model
    monkeypatch.chdir(model.parent)
    assert models.resolve_model("model") == model


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("config.json", r"no config\.json"),
        ("model.safetensors", r"no \*\.safetensors"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_a_folder_without_a_part_says_which(model: Path, missing: str, said: str) -> None:
    (model / missing).unlink()
    with pytest.raises(ConfigError, match=said):
        models.resolve_model(str(model))


def test_a_git_lfs_pointer_is_not_taken_for_weights(model: Path) -> None:
    (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ConfigError, match="Git LFS"):
        models.resolve_model(str(model))


def test_weights_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "w.safetensors", 64)
    check_whole(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cut off: got"):
        check_whole(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="not a safetensors file"):
        check_whole(path)


def test_weights_are_one_file_or_the_shards_of_a_folder(tmp_path: Path) -> None:
    file = write_safetensors(tmp_path / "step7.safetensors")
    assert weight_files(file) == {"model.safetensors": file}
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("model-1.safetensors", "model-2.safetensors"):
        write_safetensors(shards / name)
    (shards / "model.safetensors.index.json").write_text("{}")
    (shards / "config.json").write_text("{}")
    assert set(weight_files(shards)) == {
        "model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json"
    }  # fmt: skip
    with pytest.raises(FileNotFoundError, match=r"no \*\.safetensors"):
        weight_files(tmp_path / "nowhere")


def test_a_path_that_is_no_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no 'nowhere' in the folder"):
        models.resolve_model(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="is not a folder here"):
        models.resolve_model(str(tmp_path / "not" / "there"))
    with pytest.raises(ConfigError, match="is not a folder here"):
        models.resolve_model("tiyn")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match="is a file"):
        models.resolve_model(str(file))


def test_a_hub_id_offline_and_not_in_the_cache_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"'nobody/nothing-9x' .*HF_HUB_OFFLINE is set"):
        models.resolve_model("nobody/nothing-9x")


@pytest.mark.parametrize("name", ["Qwen/Qwen3--0.6B", "Qwen/Qwen3..6B", "Qwen/" + "x" * 120])
@pytest.mark.parametrize("look", [models.find_model, models.resolve_model])
def test_an_id_that_the_hub_cannot_have_is_one_clear_line(name: str, look: Any) -> None:
    with pytest.raises(ConfigError, match=r"no id that the Hugging Face hub could have") as caught:
        look(name)
    assert "\n" not in str(caught.value)


def test_a_config_that_is_not_json_is_named(model: Path) -> None:
    (model / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json is not JSON"):
        models.resolve_model(str(model))


def test_a_context_longer_than_the_models_is_refused_before_anything_starts(model: Path) -> None:
    models.check_context(512, model)
    with pytest.raises(ConfigError, match="max_model_len=513 is longer than the 512 tokens"):
        models.check_context(513, model)
    nested = {"text_config": {"max_position_embeddings": 64}}
    (model / "config.json").write_text(json.dumps(nested))
    assert models.context_length(model) == 64
    (model / "config.json").write_text("{}")
    models.check_context(1_000_000, model)
    assert models.checkpoint_dtype(model) == "auto"


def test_the_device_is_what_vllm_is_built_for() -> None:
    assert choose_device("auto", "cpu", "vLLM", has_gpu=True) == "cpu"
    assert choose_device("auto", "cuda", "vLLM", has_gpu=True) == "cuda"
    assert choose_device("cpu", "cpu", "vLLM", has_gpu=False) == "cpu"


def test_cuda_on_a_cpu_build_or_without_a_device_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\.device=cuda, .*built for cpu"):
        choose_device("cuda", "cpu", "vLLM", has_gpu=True)
    with pytest.raises(ConfigError, match=r"policy\.device=cpu, .*built for cuda"):
        choose_device("cpu", "cuda", "vLLM", has_gpu=True)
    with pytest.raises(ConfigError, match="no CUDA device"):
        choose_device("auto", "cuda", "vLLM", has_gpu=False)


def test_the_installed_vllm_is_found_without_importing_it() -> None:
    assert vllm_build() in ("cpu", "cuda")


def test_the_test_tokenizer_is_one_that_models_accept(model: Path) -> None:
    assert make_tokenizer(model) <= 512
    assert models.resolve_model(str(model)) == model
