"""`--config runs/NAME/config.yaml` is the run as it was; what cannot be brought back is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

import clawrl_gym as cg
from clawrl_gym.core.provenance import describe_start, git_commit, package_versions
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.run.sweep import plan_sweep
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import keep_model

COMMAND = [
    "env=toolcall",
    "judge=feedback",
    "seed=7",
    "trainer.steps=3",
    "gateway.key=sk-mine-mine",
]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that was started with COMMAND."""
    folder = RunFolder(tmp_path / "runs" / "first")
    folder.make(cg.load_config([*COMMAND, f"run.dir={folder.path}"]))
    (folder.path / "run.json").write_text(json.dumps({"starts": [describe_start()]}))
    return folder


def config_of(run: RunFolder, *overrides: str) -> cg.RunConfig:
    return cg.load_config(["--config", str(run.config_file), *overrides])


def test_it_is_the_run_as_it_was_in_a_folder_of_its_own(
    run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    assert config_of(run) == cg.load_config(COMMAND)
    assert cg.load_config([f"--config={run.config_file}"]) == cg.load_config(COMMAND)
    assert cg.load_config(["--config", str(run.path)]) == cg.load_config(COMMAND)
    assert not caplog.records, "nothing is different here"


def test_keys_after_it_and_before_it_win(run: RunFolder) -> None:
    overrides = [
        "seed=8", "learner.betas=[0.5,0.6]", "run.name=again", "~judge.type", "++eval.tasks=4",
    ]  # fmt: skip
    expected = cg.load_config(
        [*COMMAND, "judge.type=none", "seed=8", "learner.betas=[0.5,0.6]", "eval.tasks=4",
         "run.name=again"]
    )  # fmt: skip
    config = config_of(run, *overrides)
    assert config.judge.type == cg.RunConfig().judge.type
    same_judge = config.model_copy(update={"judge": expected.judge})
    assert same_judge == expected
    assert cg.load_config(["seed=8", "--config", str(run.config_file)]).seed == 8


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.stepps=3", r"did you mean 'trainer\.steps'"),
        ("trainer.steps=many", r"trainer\.steps"),
        ("env=gui", "got env= together with --config"),
        ("experiment=personal_opd", "got experiment= together with --config"),
        ("tuned=tiny_gui", "got tuned= together with --config"),
        ("seed=1,2", "several values of 'seed'"),
        ("seed", "expected KEY=VALUE"),
        ("trainer.steps=[3", "cannot read 'trainer.steps=.3'"),
        ("--config", "expected one file"),
        ("resume=runs/first", "got '--config' together with resume="),
    ],
)
def test_what_does_not_fit_is_told(run: RunFolder, override: str, message: str) -> None:
    if override.startswith("resume="):
        override = f"resume={run.path}"
    with pytest.raises(cg.ConfigError, match=message):
        config_of(run, override)


def test_no_run_and_another_commands_run_are_told(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(cg.ConfigError, match="there is no file"):
        cg.load_config(["--config", str(tmp_path / "nowhere.yaml")])
    with pytest.raises(cg.ConfigError, match=r"there is no file .*config\.yaml, expected"):
        cg.load_config(["--config", str(tmp_path)])
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(cg.ConfigError, match="holds no configuration"):
        cg.load_config(["--config", str(tmp_path / "list.yaml")])
    (tmp_path / "other.yaml").write_text("a: 1\n")
    with pytest.raises(cg.ConfigError, match="is not a run's configuration"):
        cg.load_config(["--config", str(tmp_path / "other.yaml")])
    with pytest.raises(cg.ConfigError, match=r"is of clawrl_gym\.train, expected .*serve"):
        cg.load_config(["--config", str(run.config_file)], "serve")
    with pytest.raises(cg.ConfigError, match="the bench repeats by its dir="):
        cg.load_config(["--config", str(run.config_file)], "bench")
    with pytest.raises(cg.ConfigError, match="together with --multirun"):
        plan_sweep(["--config", str(run.config_file), "seed=1,2"])


def test_evaluate_measures_as_the_run_did(run: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    config = cg.load_config(["--config", str(run.config_file), "eval.tasks=5"], "evaluate")
    trained = cg.load_config(COMMAND)
    assert (config.env, config.policy, config.seed) == (trained.env, trained.policy, 7)
    assert (config.eval.tasks, config.split, config.run.dir) == (5, "heldout", None)
    assert not caplog.records, "keys that a training run has not are not missed"


def test_serving_is_repeated_in_a_folder_that_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "serve")
    folder.write(cg.load_config([f"run.dir={folder.path}", "live.batch_turns=3"], "serve"))
    config = cg.load_config(["--config", str(folder.path), "run.dir=elsewhere"], "serve")
    assert (config.live.batch_turns, config.run.dir) == (3, "elsewhere")
    assert cg.load_config(["--config", str(folder.path)], "serve").run.dir is None


def test_serving_that_is_resumed_keeps_its_configuration(tmp_path: Path) -> None:
    """What an interrupted `serve` says to type works, whatever it was started with."""
    folder = RunFolder(tmp_path / "serve")
    folder.write(
        cg.load_config(
            [f"run.dir={folder.path}", "policy.model=tiny_skills", "judge=none", "gateway.port=18"],
            "serve",
        )
    )
    resumed = cg.load_config([f"resume={folder.path}"], "serve")
    assert (resumed.run.dir, resumed.resume) == (str(folder.path), str(folder.path))
    assert (resumed.policy.model, resumed.judge.type, resumed.gateway.port) == (
        "tiny_skills", "none", 18,
    )  # fmt: skip
    changed = cg.load_config([f"resume={folder.path}", "gateway.port=19"], "serve")
    assert changed.gateway.port == 19
    with pytest.raises(cg.ConfigError, match="got judge= together with resume="):
        cg.load_config([f"resume={folder.path}", "judge=rule"], "serve")
    nowhere = cg.load_config([f"resume={tmp_path / 'nowhere'}"], "serve")
    assert nowhere.run.dir == str(tmp_path / "nowhere"), "its preflight says that none is there"


def test_a_hidden_key_must_be_given_again(run: RunFolder) -> None:
    text = run.config_file.read_text().replace("sk-mine-mine", "hidden")
    run.config_file.write_text(text)
    with pytest.raises(cg.ConfigError, match=r"gateway\.key is hidden in .*gateway\.key=KEY"):
        config_of(run)
    assert config_of(run, "gateway.key=sk-other-other").gateway.key == "sk-other-other"


def test_what_is_not_as_it_was_is_told(run: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    start = describe_start()
    start["versions"] = {**package_versions(), "torch": "1.0", "tensorflow": "2.0"}
    start["commit"] = "0123456789ab"
    (run.path / "run.json").write_text(json.dumps({"starts": [start]}))
    values = yaml.safe_load(run.config_file.read_text())
    del values["learner"]["lr"], values["eval"]
    values["env"]["tasks"] = "my/own/tasks.json"
    run.config_file.write_text(yaml.safe_dump(values))
    config_of(run)
    notes = "\n".join(record.getMessage() for record in caplog.records)
    assert "it ran with torch 1.0, here is" in notes
    assert "it ran with tensorflow 2.0, here is (none)" in notes
    here = git_commit()  # None outside of a checkout
    assert (f"commit 0123456789ab, here is {here}" in notes) == (here is not None)
    assert "it does not say learner.lr, eval.tasks" in notes
    assert "env.tasks=my/own/tasks.json is looked for in this directory" in notes
    assert len(caplog.records) == (4 if here is None else 5)
    caplog.clear()
    (run.path / "run.json").unlink()
    config_of(run)
    assert "there is no run.json beside it" in caplog.records[0].getMessage()


def test_a_run_that_began_with_a_checkpoint_that_is_gone_is_repeated_with_its_copy(
    run: RunFolder, tmp_path: Path
) -> None:
    checkpoint = make_checkpoint(tmp_path / "other", 10)
    values = yaml.safe_load(run.config_file.read_text())
    values["policy"]["model"] = str(checkpoint)
    run.config_file.write_text(yaml.safe_dump(values))
    kept = keep_model(run.path, checkpoint)
    assert config_of(run).policy.model == str(checkpoint)
    shutil.rmtree(checkpoint)
    assert config_of(run).policy.model == str(kept)
    assert cg.load_config(["--config", str(run.path)]).policy.model == str(kept)
    assert config_of(run, "policy.model=tiny").policy.model == "tiny"


def make_checkpoint(run: Path, version: int) -> Path:
    return Path(shutil.copytree(shipped_dir(), run / "checkpoints" / f"{version:06d}"))


@pytest.mark.parametrize("command", ["train", "serve", "evaluate"])
def test_a_run_as_the_model_is_its_newest_checkpoint_of_now(tmp_path: Path, command: str) -> None:
    first = tmp_path / "first"
    ten = make_checkpoint(first, 10)
    place = f"run.dir={tmp_path / 'new'}"
    config = cg.load_config([f"policy.model={first}", place], command)  # type: ignore[call-overload]
    assert config.policy.model == str(ten)
    if command == "train":
        teacher = cg.load_config(["trainer=opd", f"trainer.distillation.teacher={first}"])
        assert teacher.trainer.distillation.teacher == str(ten)
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(cg.ConfigError, match=r"the run .*empty has no checkpoint"):
        cg.load_config([f"policy.model={tmp_path / 'empty'}", place], command)  # type: ignore[call-overload]


def test_serving_that_began_with_a_run_goes_on_though_that_run_went_on(tmp_path: Path) -> None:
    first, place = tmp_path / "first", tmp_path / "serve"
    ten = make_checkpoint(first, 10)
    arguments = [f"policy.model={first}", f"run.dir={place}"]
    RunFolder(place).write(cg.load_config(arguments, "serve"))
    twenty = make_checkpoint(first, 20)
    assert cg.load_config(arguments, "serve").policy.model == str(ten)
    assert cg.load_config(["policy.model=tiny", f"run.dir={place}"], "serve").policy.model == "tiny"
    elsewhere = cg.load_config([arguments[0], f"run.dir={tmp_path / 'b'}"], "serve")
    assert elsewhere.policy.model == str(twenty)
