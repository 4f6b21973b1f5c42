"""Settings follow the size of the model that is named; a mixture of two sizes is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import clawrl_gym as cg
from clawrl_gym.config import CommandConfig
from clawrl_gym.config.compose import conf_dir, groups_of
from clawrl_gym.inference.models.shape import HUB_MODELS, shape_of_hub_model
from clawrl_gym.recipe.model_size import settings_note, size_of
from clawrl_gym.run.sweep import plan_sweep
from tests.preflight.test_golden_plans import composed

SIZES = {"0_1b": 0.135e9, "0_6b": 0.596e9, "2b": 1.7e9, "4b": 4.02e9, "8b": 8.19e9}
PRESETS = [name for name in groups_of("train")["policy"] if name not in ("tiny", "own")]


def make_model(folder: Path, parameters: float) -> Path:
    """A folder whose files say that it has so many; they hold nothing."""
    folder.mkdir()
    form = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(form))
    (folder / "tokenizer.json").write_text("{}")
    count = int(parameters)
    entry = {"dtype": "BF16", "shape": [count], "data_offsets": [0, 2 * count]}
    header = json.dumps({"w": entry}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2 * count)  # takes no room: a hole
    return folder


def told(*arguments: str, parameters: float) -> str | None:
    return settings_note(cg.load_config(list(arguments)), int(parameters))


@pytest.mark.parametrize("size", SIZES)
def test_a_folder_has_the_settings_of_its_size(size: str, tmp_path: Path) -> None:
    model = f"policy.model={make_model(tmp_path / 'model', SIZES[size])}"
    whole, lora = cg.load_config([model]), cg.load_config([model, "learner=lora"])
    assert whole.policy.size == lora.policy.size == size
    assert 1e-6 <= whole.learner.lr <= 1e-5
    assert lora.learner.lr == pytest.approx(10 * whole.learner.lr)
    assert lora.learner.adapter is not None
    assert lora.learner.adapter.alpha == 32
    assert whole.learner.schedule == "constant"
    assert whole.learner.threads == whole.policy.threads == "auto"
    in_turns = cg.load_config([model, "rollout=sync"])
    assert in_turns.learner.threads == in_turns.policy.threads == "all"
    assert cg.load_config([model], "evaluate").policy.threads == "all"
    assert cg.load_config([model, "rollout=sync", "policy.threads=3"]).policy.threads == 3
    assert told(model, "learner=lora", parameters=SIZES[size]) == (
        f"settings: conf/size/{size}.yaml and conf/tuned/{size}_lora.yaml, for a model of "
        f"{SIZES[size] / 1e9:.2g}B parameters"
    )


@pytest.mark.parametrize("command", ["train", "serve", "evaluate"])
def test_every_command_takes_the_settings_of_the_model(command: str, tmp_path: Path) -> None:
    """Nothing that suits the shipped policy in one environment is among them."""
    model = f"policy.model={make_model(tmp_path / 'model', SIZES['0_6b'])}"
    start = [] if command == "train" else [command]
    config = composed([*start, model])
    assert config.policy.size == "0_6b"
    assert config.policy.dtype == "bfloat16"
    if command != "evaluate":
        own = composed([*start, "policy=qwen3_0_6b"])
        assert isinstance(config, CommandConfig)
        assert isinstance(own, CommandConfig)
        assert config.learner == own.learner


def test_runs_of_a_sweep_and_environments_of_a_mixture_have_them_too(tmp_path: Path) -> None:
    model = f"policy.model={make_model(tmp_path / 'model', SIZES['0_1b'])}"
    (run, _) = plan_sweep([model, "seed=1,2", f"run.root={tmp_path}", "run.name=s"])
    mixed = cg.load_config([model, "env=[terminal_plain,toolcall_plain]"])
    for config in (run.config, mixed):
        assert (config.policy.size, config.learner.lr) == ("0_1b", 1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_takes_the_size_of_its_model(name: str) -> None:
    config = cg.load_config([f"policy={name}"])
    shape = shape_of_hub_model(config.policy.model)
    assert shape is not None
    assert config.policy.size == size_of(shape.parameters)


def test_a_shipped_model_keeps_its_own_and_nothing_is_said() -> None:
    for arguments in ([], ["policy.model=tiny_skills", "env=terminal"], ["learner=lora"]):
        config = cg.load_config(arguments)
        assert config.policy.size == "tiny"
        assert settings_note(config, 818_368) is None
    assert config.learner.adapter is not None
    assert config.learner.adapter.alpha == 256


def test_the_shipped_policys_settings_for_another_model_are_a_choice_that_is_reported(
    tmp_path: Path,
) -> None:
    model = f"policy.model={make_model(tmp_path / 'model', SIZES['4b'])}"
    config = cg.load_config(["policy=tiny", model])
    assert (config.policy.size, config.learner.lr) == ("tiny", 3e-4)
    note = settings_note(config, int(SIZES["4b"]))
    assert note is not None
    assert "conf/size/tiny.yaml, made for shipped models, and policy.model has 4B" in note
    assert "size=4b has those that suit it (so does leaving policy=tiny out)" in note


def test_a_presets_settings_for_a_model_of_another_size_are_reported(tmp_path: Path) -> None:
    model = f"policy.model={make_model(tmp_path / 'model', SIZES['0_1b'])}"
    note = told("policy=qwen3_4b", model, parameters=SIZES["0_1b"])
    assert note is not None
    assert "made for models of 4B parameters, and policy.model has 0.14B" in note


def test_a_size_may_be_chosen_and_keys_win_over_it(tmp_path: Path) -> None:
    model = f"policy.model={make_model(tmp_path / 'model', SIZES['0_1b'])}"
    chosen = cg.load_config([model, "size=4b"])
    assert (chosen.policy.size, chosen.learner.lr) == ("4b", 1e-6)
    assert cg.load_config([model, "learner.lr=3e-5"]).learner.lr == 3e-5


def test_a_policy_of_ones_own_has_the_settings_of_its_models_size_below_its_own(
    tmp_path: Path,
) -> None:
    model = make_model(tmp_path / "model", SIZES["2b"])
    (tmp_path / "policy").mkdir()
    (tmp_path / "experiment").mkdir()
    (tmp_path / "policy" / "mine.yaml").write_text(
        f"# @package _global_\npolicy: {{model: {model}}}\nlearner: {{lr: 7e-6}}\n"
    )
    (tmp_path / "experiment" / "recipe.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /policy: mine\n"
    )
    for choice in ("policy=mine", "experiment=recipe"):
        config = cg.load_config(["--config-dir", str(tmp_path), choice])
        assert (config.policy.size, config.learner.lr) == ("2b", 7e-6)


def test_a_model_that_nobody_can_look_at_yet_has_settings_of_a_real_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert cg.load_config(["policy.model=some/model"]).policy.size == "0_6b"


def test_a_larger_model_than_any_that_is_known_is_reported(tmp_path: Path) -> None:
    model = f"policy.model={make_model(tmp_path / 'model', 32e9)}"
    note = told(model, parameters=32e9)
    assert note == (
        "settings: conf/size/8b.yaml, for a model of 32B parameters, which is more than they were "
        "made for"
    )


def test_each_size_says_its_name_and_what_an_adapter_takes() -> None:
    names = [name for name in groups_of("train")["size"] if name != "tiny"]
    assert sorted(SIZES) == names
    for name in names:
        values = yaml.safe_load((conf_dir() / "size" / f"{name}.yaml").read_text())
        assert values["policy"]["size"] == name
        assert (conf_dir() / "tuned" / f"{name}_lora.yaml").exists()
    known = json.loads(HUB_MODELS.read_text())
    assert len(known) == len(PRESETS)


def test_no_hole_of_a_test_takes_room(tmp_path: Path) -> None:
    file = make_model(tmp_path / "model", SIZES["8b"]) / "model.safetensors"
    assert file.stat().st_blocks * 512 < 2**20
