"""A checkpoint is a model's folder that transformers loads as it is; older ones still resume."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.weights.checkpoints import last_checkpoint, list_checkpoints, pinned
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.checkpoint import LearnerState, write_state
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3
from tests.support.tiny_vision import make_vision_model


def trained(model_dir: Path | str) -> Learner:
    """A learner after one update on what it would hardly have sampled."""
    bounds = {"token_ratio_min": 0, "sequence_ratio_min": 0, "sequence_ratio_max": None}
    trainer = TrainerConfig.model_validate({"steps": 10, "max_tokens_per_pack": 128} | bounds)
    learner = Learner(trainer, LearnerConfig(lr=1e-2), str(model_dir), 0, "cpu")
    learner.step(make_samples([5, 30, 17]), 0)
    return learner


def logits_of(net: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = net(ids[None]).logits[0]
    return logits


def test_transformers_loads_it_with_the_learners_logits(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    learner = trained(shipped_dir())
    folder = tmp_path / "000001"
    learner.save_checkpoint(str(folder))
    net = AutoModelForCausalLM.from_pretrained(folder)
    (sample,) = make_samples([40])
    (pack,) = make_packs([sample], 10_000)
    with torch.no_grad():
        own = learner.model.score(pack).logprobs_M
    ids = torch.from_numpy(pack.ids_T)
    logprobs = logits_of(net, ids).log_softmax(-1)
    theirs = logprobs[pack.predictors_M, pack.targets_M]
    torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-4)
    first = AutoModelForCausalLM.from_pretrained(shipped_dir())
    assert not torch.allclose(logits_of(first, ids), logits_of(net, ids), atol=1e-2)
    assert net.get_output_embeddings().weight is net.get_input_embeddings().weight

    tokenizer, shipped = (AutoTokenizer.from_pretrained(d) for d in (folder, shipped_dir()))
    chat = [{"role": "user", "content": "Copy a.txt to b.txt."}]
    texts = [t.apply_chat_template(chat, tokenize=False) for t in (tokenizer, shipped)]
    assert texts[0] == texts[1]
    assert GenerationConfig.from_pretrained(folder).eos_token_id == tokenizer.eos_token_id


def test_its_folder_holds_the_models_files_and_the_learners_own_apart(tmp_path: Path) -> None:
    folder = tmp_path / "000001"
    trained(shipped_dir()).save_checkpoint(str(folder))
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    of_the_model = {path.name for path in shipped_dir().iterdir()} - {"recipe.json"}
    assert names == of_the_model | {"learner/state.pt"}
    assert resolve_model(str(folder)) == folder


def test_a_run_that_begins_with_a_checkpoint_begins_with_its_very_weights(tmp_path: Path) -> None:
    first = trained(shipped_dir())
    first.save_checkpoint(str(tmp_path / "000001"))
    second = PackedModel(str(tmp_path / "000001"), "cpu")
    for name, tensor in first.model.state().items():
        assert torch.equal(second.state()[name], tensor), name


def test_weights_of_another_element_type_are_served_in_it_and_learned_in_float32(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM

    model = Path(write_tiny_qwen3(tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    learner = trained(model)
    learner.save_checkpoint(str(tmp_path / "000001"))
    saved = load_file(tmp_path / "000001" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    net = AutoModelForCausalLM.from_pretrained(tmp_path / "000001", dtype="auto")
    assert net.dtype == torch.bfloat16
    again = PackedModel(str(tmp_path / "000001"), "cpu")
    assert again.saved_dtype == torch.bfloat16
    for name, tensor in learner.model.state().items():
        assert torch.equal(again.state()[name], tensor), name


@pytest.mark.parametrize("kind", ["idefics3", "qwen3_vl"])
def test_a_model_that_sees_keeps_its_processor(tmp_path: Path, kind: str) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageTextToText

    model = make_vision_model(tmp_path / "model", kind)
    learner = trained(model)
    learner.save_checkpoint(str(tmp_path / "000001"))
    net = AutoModelForImageTextToText.from_pretrained(tmp_path / "000001")
    for name, tensor in learner.model.net.state_dict().items():
        assert torch.equal(net.state_dict()[name], tensor), name
    own = AutoImageProcessor.from_pretrained(tmp_path / "000001")
    assert own.to_dict() == AutoImageProcessor.from_pretrained(model).to_dict()
    files = load_file(model / "model.safetensors").keys()
    assert load_file(tmp_path / "000001" / "model.safetensors").keys() == files


def test_experts_are_saved_by_the_names_of_the_models_own_files(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=16,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        num_experts=4, num_experts_per_tok=2, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    learner = trained(tmp_path / "model")
    learner.save_checkpoint(str(tmp_path / "000001"))
    names = load_file(tmp_path / "model" / "model.safetensors").keys()
    assert load_file(tmp_path / "000001" / "model.safetensors").keys() == names
    again = Learner(TrainerConfig(), LearnerConfig(), str(tmp_path / "model"), 0, "cpu")
    again.load_checkpoint(str(tmp_path / "000001"))
    for name, tensor in learner.model.net.state_dict().items():
        assert torch.equal(again.model.net.state_dict()[name], tensor), name


def test_weights_alone_are_gone_on_from_with_an_optimizer_that_begins_anew(tmp_path: Path) -> None:
    learner = trained(shipped_dir())
    learner.save_checkpoint(str(tmp_path / "000001"))
    learner.step(make_samples([5, 30]), 1)
    shutil.rmtree(tmp_path / "000001" / "learner")
    learner.load_checkpoint(str(tmp_path / "000001"))
    assert not learner.optimizer.state
    saved = load_file(tmp_path / "000001" / "model.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in learner.model.state().items())


def make_old(folder: Path, learner: Learner) -> None:
    """A checkpoint as the first version wrote it: weights and state, no model's configuration."""
    learner.save_checkpoint(str(folder))
    (folder / "learner" / "state.pt").rename(folder / "learner.pt")
    for path in folder.iterdir():
        if path.name not in ("learner.pt", "model.safetensors"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_checkpoint_of_the_first_version_resumes_and_is_no_model(tmp_path: Path) -> None:
    model = write_tiny_qwen3(tmp_path / "model")
    learner = trained(model)
    old = tmp_path / "runs" / "a" / "checkpoints" / "000001"
    make_old(old, learner)
    again = Learner(TrainerConfig(), LearnerConfig(), model, 0, "cpu")
    again.load_checkpoint(str(old))
    assert again.updates == 1
    with pytest.raises(ConfigError, match=r"older version.*clawrl_gym\.export .*a OUT --step 1"):
        resolve_model(str(old))


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    trained(write_tiny_qwen3(tmp_path / "one")).save_checkpoint(str(tmp_path / "000001"))
    other = write_tiny_qwen3(tmp_path / "other", vocab=80)
    with pytest.raises(TrainerError, match="reading the checkpoint"):
        Learner(TrainerConfig(), LearnerConfig(), other, 0, "cpu").load_checkpoint(
            str(tmp_path / "000001")
        )
    save_file({"strange": torch.zeros(2)}, tmp_path / "000001" / "model.safetensors")
    with pytest.raises(TrainerError, match="weights of another model"):
        trained(tmp_path / "one").load_checkpoint(str(tmp_path / "000001"))


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one_and_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = trained(write_tiny_qwen3(tmp_path / "model"))
    learner.save_checkpoint(str(tmp_path / "all" / "000001"))

    def full(state: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(TrainerError, match="No space left on device"):
        learner.save_checkpoint(str(tmp_path / "all" / "000001"))
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["000001"]
    learner.load_checkpoint(str(tmp_path / "all" / "000001"))


def make_run(folder: Path, *versions: int) -> Path:
    for version in versions:
        shutil.copytree(shipped_dir(), folder / "checkpoints" / f"{version:06d}")
    return folder


def test_a_state_for_which_there_is_no_room_says_so() -> None:
    state: LearnerState = {
        "optimizer": {"moment": torch.zeros(10_000)},
        "updates": 1, "skipped": 0, "rng": torch.get_rng_state(),
    }  # fmt: skip
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_state(state, Path("/dev/full"))


def test_a_runs_folder_is_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", 8, 50, 1_000_000)
    for unfinished in (".000051.partial", ".000052.old", "notes"):
        shutil.copytree(shipped_dir(), run / "checkpoints" / unfinished)
    assert list(list_checkpoints(run / "checkpoints")) == [8, 50, 1_000_000]
    assert last_checkpoint(run) == run / "checkpoints" / "1000000"
    assert pinned(str(run)) == str(run / "checkpoints" / "1000000")
    assert pinned("tiny") == "tiny"
    assert pinned(str(shipped_dir())) == str(shipped_dir())
    assert resolve_model(str(run)) == run / "checkpoints" / "1000000"


def test_a_checkpoint_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "runs" / "first", 8, 50)
    with pytest.raises(ConfigError, match=r"no checkpoint 000051, expected one of 000008, 000050"):
        resolve_model(str(run / "checkpoints" / "000051"))
    (tmp_path / "runs" / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"the run .*empty has no checkpoint"):
        resolve_model(str(tmp_path / "runs" / "empty"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"no 'frist' in the folder runs .did you mean runs/first"
    ):
        resolve_model("runs/frist")
