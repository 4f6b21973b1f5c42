"""Own groups without touching conf/, and `--multirun`: a run for each combination of values."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from clawrl_gym import serve, train
from clawrl_gym.cluster.extra_evaluations import extra_evaluations
from clawrl_gym.config import RunConfig, ServeConfig
from clawrl_gym.config.compose import compose, groups_of, split_search_path
from clawrl_gym.core.errors import ConfigError, ConfigErrors
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.run.sweep import RunOutcome, check_sweep, plan_sweep, run_sweep, table
from tests.support.waiting import until

FAKE = (sys.executable, str(Path(__file__).with_name("fake_sweep_run.py")))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with groups of one's own."""
    folder = tmp_path / "own conf"
    (folder / "experiment").mkdir(parents=True)
    (folder / "env").mkdir()
    (folder / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [override /judge: rule]\ntrainer: {steps: 7}\n"
    )
    (folder / "env" / "short.yaml").write_text("type: terminal\nmax_turns: 3\n")
    return folder


@pytest.mark.parametrize("form", ["--config-dir {}", "--config-dir={}", "-cd {}", "path"])
def test_groups_of_ones_own_stand_beside_ours(own: Path, form: str) -> None:
    places = (
        [f"hydra.searchpath=['file://{own}']"]
        if form == "path"
        else [part.format(own) for part in form.split(" ", 1)]
    )
    config = compose("train", [*places, "experiment=mine", "env=short"], RunConfig)
    assert (config.trainer.steps, config.judge.type, config.env.max_turns) == (7, "rule", 3)
    assert config.searchpath == (f"file://{own}",)
    assert compose("serve", [*places, "judge=none"], ServeConfig).searchpath == config.searchpath
    assert "short" in groups_of("train", config.searchpath)["env"]


def test_what_is_measured_too_is_found_there(own: Path) -> None:
    config = compose("train", ["--config-dir", str(own), "eval.also=[short]"], RunConfig)
    (other,) = extra_evaluations(config)
    assert (other.name, other.config.max_turns) == ("short", 3)


def test_a_resumed_run_takes_its_folders_along(own: Path, tmp_path: Path) -> None:
    config = compose("train", ["--config-dir", str(own), "experiment=mine"], RunConfig)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    resumed = load_config([f"resume={run}"])
    assert (resumed.trainer.steps, resumed.searchpath) == (7, config.searchpath)
    assert load_config([f"resume={run}", "--config-dir", str(own)]).searchpath == config.searchpath


def test_a_folder_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match=r"--config-dir '/nowhere', expected a folder"):
        split_search_path(["--config-dir", "/nowhere"])
    with pytest.raises(ConfigError, match="--config-dir without a folder"):
        split_search_path(["seed=1", "--config-dir"])


def test_several_values_without_multirun_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"several values of 'seed'.*--multirun.*bench"):
        compose("train", ["seed=1,2"], RunConfig)


def test_a_sweep_is_every_combination_in_order(tmp_path: Path) -> None:
    runs = plan_sweep(["seed=1,2", "learner.lr=1e-3,1e-4", f"run.root={tmp_path}", "run.name=s"])
    assert [run.name for run in runs] == [
        "seed=1,learner.lr=0.001", "seed=1,learner.lr=0.0001",
        "seed=2,learner.lr=0.001", "seed=2,learner.lr=0.0001",
    ]  # fmt: skip
    assert runs[0].folder == tmp_path / "s" / "seed=1,learner.lr=0.001"
    config = compose("train", list(runs[3].arguments), RunConfig)
    assert (config.seed, config.learner.lr, config.run.dir) == (2, 1e-4, str(runs[3].folder))


def test_copies_of_a_sweeps_checkpoints_are_below_its_name(tmp_path: Path) -> None:
    there = tmp_path / "there"
    arguments = [f"run.root={tmp_path}", "run.name=two", f"learner.remote_checkpoints={there}"]
    runs = plan_sweep(["seed=1,2", *arguments])
    assert [run.config.learner.remote_checkpoints for run in runs] == [f"{there}/two"] * 2
    for run in runs:
        assert compose("train", [*run.arguments], RunConfig) == run.config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=1"], "no key with several values"),
        (["seed=1,2", "run.dir=x"], "run.dir= together with --multirun"),
        (["seed=1,x"], "seed: got 'x'"),
        (["judge=rule,nope"], r"got judge='nope'.*expected one of .*rule"),
        (["seed=1,2", "resume=x"], "resume= together with --multirun"),
        (["--config", "x.yaml", "seed=1,2"], "got --config together with --multirun"),
        (["seed=1,2", "trainer.steps=[1"], r"cannot read 'trainer.steps=\[1'; expected KEY=VALUE"),
    ],
)
def test_a_wrong_sweep_is_told_before_the_first_run(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_sweep(arguments)


async def test_runs_follow_one_another_and_one_that_fails_stops_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["seed=1,2,3", f"run.root={tmp_path}", "run.name=s"]
    assert await run_sweep(arguments, FAKE) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[:3] == [f"run {n} of 3: seed={n} in {tmp_path}/s/seed={n}" for n in (1, 2, 3)]
    assert [line.split()[:2] for line in lines[-3:]] == [
        ["seed=1", "0"], ["seed=2", "3"], ["seed=3", "0"],
    ]  # fmt: skip
    assert lines[-1].endswith("10% -> 75%")
    assert lines[-2].endswith("- -> -")
    assert await run_sweep(arguments, FAKE) == 1
    starts = [(tmp_path / "s" / f"seed={at}" / "starts").read_text() for at in (1, 2)]
    assert starts == ["begun\n", "begun\nbegun\n"], "what ended well is not run again"
    capfd.readouterr()
    assert await run_sweep(["seed=1,3", *arguments[1:]], FAKE) == 0
    done = [tmp_path / "s" / f"seed={at}" / "done" for at in (1, 2, 3)]
    assert [mark.exists() for mark in done] == [True, False, True]
    assert [line.split()[1] for line in capfd.readouterr().out.splitlines()[-2:]] == ["0", "0"]


async def test_a_sweep_that_is_stopped_stops_its_run_in_order_and_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    program = (
        "import pathlib, signal, sys, time; mark = pathlib.Path(sys.argv[1])\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests\n"
        "try: mark.write_text('begun'), time.sleep(600)\n"
        "except KeyboardInterrupt: mark.write_text('stopped in order')"
    )
    arguments = ["seed=1,2", f"run.root={tmp_path}", "run.name=s"]
    sweep = asyncio.create_task(run_sweep(arguments, (sys.executable, "-c", program, str(mark))))
    await until(lambda: sweep.done() or (mark.exists() and mark.read_text()))
    sweep.cancel()
    with pytest.raises(asyncio.CancelledError) as stopped:
        await sweep
    assert mark.read_text() == "stopped in order"
    assert "the same command with run.name=s keeps what is done" in "".join(stopped.value.__notes__)
    assert not (tmp_path / "s").exists()


async def test_all_that_is_wrong_with_any_run_is_told_before_the_first_one(tmp_path: Path) -> None:
    arguments = [
        "seed=1,2", "learner.lr=1e-3", "policy.max_model_len=200000", f"run.root={tmp_path}",
        "run.name=s",
    ]  # fmt: skip
    with pytest.raises(ConfigErrors) as told:
        await run_sweep(arguments, FAKE)
    assert len(told.value.lines) == 2
    for n, line in enumerate(told.value.lines, 1):
        assert line.startswith(f"seed={n}: ")
        assert "policy.max_model_len=200000" in line
    assert not (tmp_path / "s").exists()
    runs = plan_sweep(arguments)
    runs[0].folder.mkdir(parents=True)
    with pytest.raises(ConfigErrors) as rest:
        check_sweep(runs)
    assert [line[:8] for line in rest.value.lines] == ["seed=2: "], "one that began says it itself"


def test_the_command_shows_a_sweep_and_others_refuse_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-m", "seed=1,2", "dry_run=true", f"run.root={tmp_path}", "run.name=s"]
    assert train.main(arguments) == 0
    folder = tmp_path / "s" / "seed="
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}{n}: run.root={tmp_path} run.name=s seed={n} run.dir='{folder}{n}'"
        for n in (1, 2)
    ]
    assert serve.main(["--multirun", "seed=1,2"]) == 2
    assert "expected clawrl_gym.train --multirun" in capsys.readouterr().err


def test_the_table_of_a_sweep_is_as_wide_as_its_longest_run(tmp_path: Path) -> None:
    (run, other) = plan_sweep(["seed=1,22", f"run.root={tmp_path}", "run.name=s"])
    outcomes = [RunOutcome(run, 0, 61.4, 0.104, 0.75), RunOutcome(other, 3, 1234.6, None, None)]
    assert table(outcomes).splitlines() == [
        "run      exit  seconds  held-out",
        "seed=1      0       61  10% -> 75%",
        "seed=22     3     1235  - -> -",
    ]
    one = replace(run, values=("a",))
    assert table([replace(outcomes[0], run=one)]).startswith("run  exit")


def test_what_names_no_file_is_left_out_of_a_runs_folder(tmp_path: Path) -> None:
    (run, other) = plan_sweep(["policy.model=tiny,../x", f"run.root={tmp_path}", "run.name=s"])
    assert run.folder == tmp_path / "s" / "policy.model=tiny"
    assert other.folder == tmp_path / "s" / "policy.model=.._x"
    assert other.config.run.dir == str(other.folder)
    assert other.arguments[-1] == f"run.dir='{other.folder}'"
