"""`export`: a checkpoint of a run as a model's folder with its card, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import clawrl_gym as cg
from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.export import main
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.run import export
from clawrl_gym.store.users import Users
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples
from tests.support.fake_run import make_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the tiny policy with checkpoints after updates 10, 19 and 20."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "first", steps=20, store=False)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["gateway"]["key"] = "sk-private-private"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    learner = Learner(
        TrainerConfig(max_tokens_per_pack=128), LearnerConfig(), str(shipped_dir()), 0, "cpu"
    )
    learner.step(make_samples([5, 30, 17]), 0)
    for version in (10, 19, 20):
        learner.save_checkpoint(str(folder / "checkpoints" / f"{version:06d}"))
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs" / "first"))


def test_an_export_is_the_model_its_card_and_nothing_else(run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    exported = cg.export_run(run, tmp_path / "out" / "model")
    assert (exported.step, exported.dtype) == (20, "float32")
    names = {path.name for path in exported.folder.iterdir()}
    assert names == {path.name for path in shipped_dir().iterdir()} - {"recipe.json"} | {
        "README.md"
    }
    assert [path.name for path in exported.folder.parent.iterdir()] == ["model"]
    net = AutoModelForCausalLM.from_pretrained(exported.folder)
    saved = load_file(run / "checkpoints" / "000020" / "model.safetensors")
    for name, tensor in saved.items():
        assert torch.equal(net.state_dict()[name], tensor), name
    AutoTokenizer.from_pretrained(exported.folder)
    assert resolve_model(str(exported.folder)) == exported.folder


def test_another_element_type_is_in_the_weights_and_in_the_configuration(
    run: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    config_file = run / "checkpoints" / "000020" / "config.json"
    config = json.loads(config_file.read_text())
    part = {"text_config": {"torch_dtype": "float32", "words": "Größe"}}
    config_file.write_text(json.dumps(config | part))
    out = cg.export_run(run, tmp_path / "out", dtype="bfloat16").folder
    weights = load_file(out / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    saved = load_file(run / "checkpoints" / "000020" / "model.safetensors")
    assert all(torch.equal(saved[name].bfloat16(), tensor) for name, tensor in weights.items())
    written = json.loads((out / "config.json").read_text())
    assert written["dtype"] == "bfloat16"
    assert written["text_config"] == {"dtype": "bfloat16", "words": "Größe"}
    (out / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    assert AutoModelForCausalLM.from_pretrained(out, dtype="auto").dtype == torch.bfloat16


def test_the_card_tells_what_was_measured_with_counts(run: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = next(r for r in rows if r["step"] == 20 and "heldout/success" in r)
    card = (cg.export_run(run, tmp_path / "out").folder / "README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert front == {
        "library_name": "transformers", "tags": ["clawrl-gym", "reinforcement-learning"]
    }  # fmt: skip
    after = f"{last['heldout/success']:.1%} of {last['heldout/n']:.0f}"
    assert f"Before training 34.2% of 120, at these weights {after}." in card
    assert "| 0 (before training) | 34.2% | 26.3% to 43.0% | 120 |" in card
    assert "chosen because they did best look better than they are" in card
    assert "the run `first` of clawrl_gym" in card
    for fact in (
        "| environment | terminal |",
        "| base model | tiny |",
        "torch 2.13.0",
        "| seed | 7 |",
    ):
        assert fact in card
    assert "from transformers import AutoModelForCausalLM, AutoTokenizer" in card
    assert "sk-private" not in card
    assert str(tmp_path) not in card
    assert not re.search(r"\n{3,}|\{\{|None", card)


def test_weights_that_were_not_measured_are_not_called_so(run: Path, tmp_path: Path) -> None:
    card = (cg.export_run(run, tmp_path / "out", step=19).folder / "README.md").read_text()
    assert "These weights themselves (update 19) were not measured." in card
    assert "at these weights" not in card
    assert "\n| 20 " not in card, "what came later says nothing of these"


def test_the_best_is_the_one_that_was_best_on_held_out_tasks(run: Path, tmp_path: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        for step, success in ((10, 0.99), (20, 0.98)):
            row = {"step": step, "heldout/success": success, "heldout/n": 100}
            file.write(json.dumps(row) + "\n")
    assert cg.export_run(run, tmp_path / "out", step="best").step == 10
    (run / "metrics.jsonl").unlink()
    with pytest.raises(cg.ConfigError, match=r"no checkpoint of .* was measured on held-out"):
        cg.export_run(run, tmp_path / "other", step="best")
    card = (cg.export_run(run, tmp_path / "other").folder / "README.md").read_text()
    assert "Nothing was measured" in card


def test_a_run_that_went_on_from_another_names_both_and_the_base(run: Path, tmp_path: Path) -> None:
    second = run.parent / "second"
    shutil.copytree(run, second)
    config = yaml.safe_load((second / "config.yaml").read_text())
    config["policy"]["model"] = str(run / "checkpoints" / "000020")
    (second / "config.yaml").write_text(yaml.safe_dump(config))
    card = (cg.export_run(second, tmp_path / "out").folder / "README.md").read_text()
    assert "That run went on from another: first (update 20)." in card
    assert "| base model | tiny |" in card
    shutil.rmtree(run)
    cg.export_run(second, tmp_path / "out", force=True)
    assert "| base model | unknown |" in (tmp_path / "out" / "README.md").read_text()


def test_a_checkpoint_of_the_first_version_becomes_a_whole_folder(
    run: Path, tmp_path: Path
) -> None:
    folder = run / "checkpoints" / "000020"
    (folder / "learner" / "state.pt").rename(folder / "learner.pt")
    for path in folder.iterdir():
        if path.name not in ("learner.pt", "model.safetensors"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    out = cg.export_run(run, tmp_path / "out").folder
    assert resolve_model(str(out)) == out
    assert not (out / "learner.pt").exists()


def test_a_run_that_is_none_and_an_update_that_has_no_checkpoint_are_told(
    run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(cg.ConfigError, match=r"holds no run .no config\.yaml.; expected"):
        cg.export_run(tmp_path, out)
    with pytest.raises(
        cg.ConfigError, match=r"expected its run and the update: .*first .*--step 20"
    ):
        cg.export_run(run / "checkpoints" / "000020", out)
    for wrong in (0, 21, "first", None):
        with pytest.raises(cg.ConfigError, match=r"of .*first: 10, 19, 20, or last or best"):
            cg.export_run(run, out, step=wrong)  # type: ignore[arg-type]
    (run / "checkpoints" / "000020" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(cg.ConfigError, match=r"has no weights to export.*cut off"):
        cg.export_run(run, out)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(cg.ConfigError, match="has no checkpoint in"):
        cg.export_run(run, out)
    assert not out.exists()


def test_only_an_earlier_export_is_replaced(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    cg.export_run(run, out, step=10)  # an empty folder will do
    with pytest.raises(cg.ConfigError, match=r"is not empty.*--force"):
        cg.export_run(run, out)
    assert cg.export_run(run, out, force=True).step == 20
    (out / "notes").mkdir()
    with pytest.raises(cg.ConfigError, match="something else than an earlier export"):
        cg.export_run(run, out, force=True)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(cg.ConfigError, match="something else than an earlier export"):
        cg.export_run(run, mine, force=True)
    assert (mine / "thesis.txt").read_text() == "years of work"
    with pytest.raises(cg.ConfigError, match="which is a file"):
        cg.export_run(run, mine / "thesis.txt", force=True)


def test_the_run_itself_is_no_place_for_an_export(run: Path) -> None:
    for place in (run, run / "checkpoints" / "000020", run / "checkpoints" / "new"):
        with pytest.raises(cg.ConfigError, match="belongs to the run"):
            cg.export_run(run, place, force=True)
    assert resolve_model(str(run)).name == "000020"


def test_a_full_disk_and_a_failure_leave_nothing_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(export, "_MARGIN_BYTES", 1 << 60)
    with pytest.raises(cg.ConfigError, match=r"got \d+ MB free at .* expected \d+ MB"):
        cg.export_run(run, out)
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    with pytest.raises(cg.ConfigError, match=r"cannot write .*file/out"):
        cg.export_run(run, tmp_path / "file" / "out")
    assert not out.exists()
    assert not list(tmp_path.rglob("*.partial"))


def test_ctrl_c_leaves_the_place_as_it_was(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    out = cg.export_run(run, tmp_path / "out", step=10).folder
    monkeypatch.setattr(shutil, "copyfile", interrupted)
    assert main([str(run), str(out), "--force"]) == 130
    assert capsys.readouterr().err == f"stopped: {out} is unchanged\n"
    assert "after update 10" in (out / "README.md").read_text()
    assert not list(tmp_path.rglob(".*.partial"))


def test_the_command_says_what_it_wrote_and_one_line_of_what_it_cannot(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([str(run), str(out), "--step", "best", "--dtype", "float16"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{out}: update 20 of {run}, float16;")
    assert f"policy.model={out}" in output
    assert main([str(run), str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit):
        main([str(run), str(out), "--step", "frist"])
    assert "expected an update, best or last" in capsys.readouterr().err


@pytest.fixture
def adapted(run: Path) -> tuple[Path, Learner]:
    """The run, with the checkpoint of an adapter after update 30, and its learner."""
    config = LearnerConfig.model_validate({"lr": 1e-2, "adapter": {"rank": 4}})
    trainer = TrainerConfig(token_ratio_min=0, sequence_ratio_min=0)
    learner = Learner(trainer, config, str(shipped_dir()), 0, "cpu")
    for version in range(2):
        learner.step(make_samples([5, 30, 17]), version)
    learner.save_checkpoint(str(run / "checkpoints" / "000030"))
    return run, learner


def test_an_adapter_and_the_merged_model_answer_as_the_learner_does(
    adapted: tuple[Path, Learner], tmp_path: Path
) -> None:
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    run, learner = adapted
    assert main([str(run), str(tmp_path / "adapter"), "--form", "adapter"]) == 0
    assert main([str(run), str(tmp_path / "merged")]) == 0
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "README.md"}
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert "library_name: peft" in card
    assert "--enable-lora" in card
    with torch.no_grad():
        samples = make_samples([40])
        ids = torch.tensor([samples[0].ids_T])
        adapter = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
        base = AutoModelForCausalLM.from_pretrained(shipped_dir()).eval()
        logprobs = [net(ids).logits.log_softmax(-1)[0] for net in (adapter, merged, base)]
        (own,) = learner.review(samples).logprobs
    torch.testing.assert_close(logprobs[0], logprobs[1], rtol=0, atol=1e-4)
    assert not torch.allclose(logprobs[1], logprobs[2], atol=1e-2)
    where = [at for at, sampled in enumerate(samples[0].mask_T) if sampled]
    theirs = [float(logprobs[1][at - 1, ids[0, at]]) for at in where]
    assert own == pytest.approx(theirs, abs=1e-4)


def test_a_users_own_weights_are_exported_and_their_card_tells_nothing_of_the_runs(
    adapted: tuple[Path, Learner], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = adapted
    for name in ("anna", "ben"):
        Users(run).add(name)
    shutil.copytree(run / "checkpoints" / "000030", run / "users/anna/checkpoints/000007")
    for form in ("adapter", "merged"):
        out = tmp_path / form
        assert main([str(run), str(out), "--form", form, "--user", "anna"]) == 0
        assert f"{out}: update 7 of anna's in {run}" in capsys.readouterr().out
        card = (out / "README.md").read_text()
        assert "after update 7 of one user's own weights in the run `first`" in card
        assert "Nothing was measured" in card
        assert "anna" not in card
    own = load_file(run / "users/anna/checkpoints/000007/adapter/adapter_model.safetensors")
    written = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(tensor, written[name]) for name, tensor in own.items())
    assert cg.export_run(run, tmp_path / "own", user="").step == 30
    with pytest.raises(cg.ConfigError, match=r"checkpoints of anna in .*: 7, or last"):
        cg.export_run(run, tmp_path / "out", step=30, user="anna")
    with pytest.raises(cg.ConfigError, match=r"of anna in .* was measured .* or one of 7"):
        cg.export_run(run, tmp_path / "out", step="best", user="anna")
    with pytest.raises(cg.ConfigError, match=r"ben in .* has no checkpoint .* share one set of"):
        cg.export_run(run, tmp_path / "out", user="ben")
    with pytest.raises(cg.ConfigError, match=r"no user 'zoe' in .* there are: anna, ben"):
        cg.export_run(run, tmp_path / "out", user="zoe")
    with pytest.raises(cg.ConfigError, match="belongs to the run"):
        cg.export_run(run, run / "users" / "anna" / "model", user="anna")
    assert not (tmp_path / "out").exists()


def test_all_weights_are_no_adapter(run: Path, tmp_path: Path) -> None:
    with pytest.raises(cg.ConfigError, match=r"holds all weights, expected .*learner=lora"):
        cg.export_run(run, tmp_path / "out", form="adapter")
    assert not (tmp_path / "out").exists()
