from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from clawrl_gym.bench import main
from clawrl_gym.comparison.pipeline import run_comparison_async
from clawrl_gym.comparison.plan import plan_runs, quoted
from clawrl_gym.comparison.progress import RunProgress
from clawrl_gym.comparison.record import RunRecord
from clawrl_gym.comparison.runner import Commands
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.recipe.configure import load_config
from tests.support.emulator import Terminal
from tests.support.waiting import until

COMMANDS = Commands(
    (sys.executable, str(Path(__file__).with_name("fake_train.py"))),
    (sys.executable, "-m", "tests.comparison.fake_measure"),
)
BOTH = "experiment=personal_binary,personal_hybrid"
TERMINAL = "experiment=general_terminal_plain"
"""A recipe that is quickly composed: without the rules of a judge."""


class Bench:
    """A bench of fake runs in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder / "bench"
        self._orders = folder / "orders.json"
        self.order({})

    def order(self, orders: dict[str, str]) -> None:
        """What each run shall do from now on."""
        self._orders.write_text(json.dumps(orders))

    async def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code and what the terminal showed."""
        config = load_config([BOTH, "seeds=2", f"dir={self.dir}", *arguments], "bench")
        printed = io.StringIO()
        results = await run_comparison_async(config, COMMANDS, Console(file=printed, width=300))
        return int(any(result.failures for result in results)), printed.getvalue()

    def starts(self, run: str) -> list[str]:
        return (self.dir / run / "starts").read_text().split()

    @property
    def recipes(self) -> dict[str, dict[str, Any]]:
        data = json.loads((self.dir / "bench.json").read_text())
        return {recipe["recipe"]: recipe for recipe in data["recipes"]}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("FAKE_TRAIN", str(tmp_path / "orders.json"))
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, str]:
    """A bench without any trouble, and what the terminal showed."""
    folder = tmp_path_factory.mktemp("whole")
    bench = Bench(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_TRAIN", str(folder / "orders.json"))
        code, printed = asyncio.run(bench.run())
    assert code == 0
    return bench, printed


def test_every_recipe_runs_over_the_same_seeds_and_all_are_compared(
    whole: tuple[Bench, str],
) -> None:
    runs, printed = whole
    assert "personal_hybrid seed 1 done" in printed
    assert "0.10 → 0.91 (0.90 to 0.91)" in printed  # liked replies of hybrid, seeds 0 and 1
    assert "16 updates, 48 problems" in printed
    assert "+0.48 (+0.48, +0.48)" in printed  # hybrid less binary, seed by seed
    assert runs.recipes["personal_hybrid"]["seeds"] == [0, 1]
    for name in ("bench.md", "bench.html"):
        assert "personal_hybrid" in (runs.dir / name).read_text()


def test_what_was_forgotten_elsewhere_shows(whole: tuple[Bench, str]) -> None:
    runs, _ = whole
    measured = runs.recipes["personal_binary"]["heldout"]["terminal_plain success"]
    assert measured == [{"step": 0, "values": [0.5, 0.5]}, {"step": 16, "values": [0.3, 0.3]}]
    assert "0.50 → 0.30, -0.20 (-0.34 to -0.06)" in (runs.dir / "bench.md").read_text()


def test_the_baseline_is_measured_once_for_all_recipes_and_seeds(whole: tuple[Bench, str]) -> None:
    runs, printed = whole
    assert runs.starts("baseline-tiny_skills") == ["begun"]
    assert runs.starts("personal_hybrid/seed1-measured") == ["begun"]
    assert "gained +0.80 (+0.72 to +0.89) on conversation liked" in printed
    assert "lost 0.20 (0.06 to 0.34) on terminal_plain success" in printed
    assert "is not distinguishable from before on conversation correct" in printed
    assert "Budgets are equal: 48 training episodes a run." in printed
    assert (runs.dir / "bench_matrix.svg").read_text().count('class="own"') == 6


async def test_what_is_not_measured_yet_is_measured_later_and_nothing_twice(runs: Bench) -> None:
    runs.order({"measure personal_binary/seed0-measured": "half"})
    one = ("seeds=1", "experiment=personal_binary")
    code, printed = await runs.run(*one, "matrix=conversation,terminal_plain")
    assert code == 1
    assert "personal_binary seed 0, measured: exit code 1: error: EnvError: no browser" in printed
    runs.order({})
    code, _ = await runs.run(*one, "matrix=conversation,terminal_plain,toolcall_plain")  # one more
    assert code == 0
    assert runs.starts("personal_binary/seed0-measured") == ["begun", "begun"]
    assert runs.starts("baseline-tiny_skills") == ["begun", "begun"]
    assert runs.starts("personal_binary/seed0") == ["begun"]
    assert "toolcall_plain success" in runs.recipes["personal_binary"]["heldout"]


async def test_a_baseline_that_fails_leaves_changes_open_and_the_runs_go_on(runs: Bench) -> None:
    runs.order({f"measure {runs.dir.name}/baseline-tiny_skills": "fail"})
    code, printed = await runs.run("seeds=1", "experiment=personal_hybrid")
    assert code == 1
    assert "baseline of tiny_skills: exit code 1" in printed
    assert "Nothing is measured before and after yet." in printed
    assert runs.recipes["personal_hybrid"]["seeds"] == [0]


async def test_finished_runs_are_kept(runs: Bench) -> None:
    await runs.run(TERMINAL)
    code, printed = await runs.run(TERMINAL)
    assert code == 0
    assert "general_terminal_plain seed 0 was done before" in printed
    assert runs.starts("general_terminal_plain/seed0") == ["begun"]


async def test_more_seeds_only_run_what_is_missing(runs: Bench) -> None:
    await runs.run(TERMINAL, "seeds=1")
    await runs.run(TERMINAL, "seeds=2")
    assert runs.starts("general_terminal_plain/seed0") == ["begun"]
    assert runs.starts("general_terminal_plain/seed1") == ["begun"]


async def test_a_failed_run_does_not_end_the_others_and_runs_again(runs: Bench) -> None:
    runs.order({"general_terminal_plain 0": "fail"})
    code, printed = await runs.run(TERMINAL)
    assert code == 1
    assert "exit code 1: error: EnvError: the sandbox is gone" in printed
    assert "general_terminal_plain seed 1 done" in printed
    assert runs.recipes["general_terminal_plain"]["seeds"] == [1]
    assert "the sandbox is gone" in (runs.dir / "bench.html").read_text()
    runs.order({})
    code, _ = await runs.run(TERMINAL)
    assert code == 0
    assert runs.recipes["general_terminal_plain"]["seeds"] == [0, 1]
    assert runs.starts("general_terminal_plain/seed0.failed1") == ["begun"]


async def test_a_run_that_was_killed_goes_on_where_it_stopped(runs: Bench) -> None:
    runs.order({"general_terminal_plain 1": "die"})
    code, printed = await runs.run(TERMINAL)
    assert code == 1
    assert "ended by signal 9" in printed
    code, printed = await runs.run(TERMINAL)
    assert code == 0
    assert "general_terminal_plain seed 1 resumes" in printed
    assert runs.starts("general_terminal_plain/seed1") == ["begun", "resumed"]


async def test_a_stopped_bench_stops_its_run_and_goes_on_later(runs: Bench) -> None:
    runs.order({"general_terminal_plain 0": "wait"})
    going = asyncio.create_task(runs.run(TERMINAL))
    await until((runs.dir / "general_terminal_plain/seed0/waiting").exists)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    record = json.loads((runs.dir / "general_terminal_plain/seed0.json").read_text())
    assert record["exit_code"] is None
    code, _ = await runs.run(TERMINAL)
    assert code == 0
    assert runs.starts("general_terminal_plain/seed0") == ["begun", "resumed"]


async def test_a_run_that_takes_too_long_is_stopped(runs: Bench) -> None:
    runs.order({"general_terminal_plain 0": "wait"})
    code, printed = await runs.run(TERMINAL, "run_timeout_s=2", "seeds=1")
    assert code == 1
    assert "took longer than 2 s" in printed


async def test_an_interrupted_run_of_which_nothing_can_go_on_begins_again(runs: Bench) -> None:
    runs.order({"general_terminal_plain 0": "die"})
    await runs.run(TERMINAL, "seeds=1")
    (runs.dir / "general_terminal_plain/seed0/run.db").unlink()
    runs.order({})
    code, _ = await runs.run(TERMINAL, "seeds=1")
    assert code == 0
    assert runs.starts("general_terminal_plain/seed0") == ["begun"]


async def test_a_run_that_cannot_be_resumed_begins_again_at_once(runs: Bench) -> None:
    runs.order({"general_terminal_plain 0": "die"})
    await runs.run(TERMINAL, "seeds=1")
    (runs.dir / "general_terminal_plain/seed0/config.yaml").write_text("not what it was")
    runs.order({})
    code, _ = await runs.run(TERMINAL, "seeds=1")
    assert code == 0
    assert runs.starts("general_terminal_plain/seed0") == ["begun"]
    assert (runs.dir / "general_terminal_plain/seed0.failed1").exists()


async def test_runs_of_other_settings_are_not_compared(runs: Bench) -> None:
    await runs.run(TERMINAL, "seeds=1")
    with pytest.raises(ConfigError, match="choose another dir=PATH"):
        await runs.run(TERMINAL, "seeds=1", "learner.lr=0.1")


async def test_a_folder_of_somebody_else_is_left_alone(runs: Bench) -> None:
    notes = runs.dir / "general_terminal_plain" / "seed0" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    with pytest.raises(ConfigError, match="not made by a bench"):
        await runs.run(TERMINAL, "seeds=1")
    assert notes.read_text() == "mine"


async def test_a_record_that_cannot_be_read_is_an_error_and_no_new_run(runs: Bench) -> None:
    await runs.run(TERMINAL, "seeds=1")
    (runs.dir / "general_terminal_plain/seed0.json").write_text("{")
    with pytest.raises(ConfigError, match=r"cannot read .*remove it"):
        await runs.run(TERMINAL, "seeds=1")


def test_the_command_line_of_a_run_is_its_own(tmp_path: Path) -> None:
    """Paths with odd characters reach it whole; it leaves the ends to the bench."""
    folder = tmp_path / "a, b='c' [d]"
    config = load_config(
        ["experiment=personal_opd,general_terminal_plain", "seeds=1", f"dir={folder}"], "bench"
    )
    runs = {run.recipe: run for run in plan_runs(config)}
    for name in ("personal_opd", "general_terminal_plain"):
        arguments = [*runs[name].arguments, f"run.dir={quoted(runs[name].folder)}"]
        own = load_config(arguments)
        assert own.run.dir == str(folder / name / "seed0")
        assert not own.eval.ends
    assert quoted(Path("runs/bench-1")) == "runs/bench-1"


def test_recipes_share_a_baseline_where_their_model_is_served_alike(tmp_path: Path) -> None:
    recipes = "experiment=general_terminal,general_gui,general_toolcall"
    config = load_config([recipes, f"dir={tmp_path}"], "bench")
    runs = {run.recipe: run for run in plan_runs(config)}
    places = {name: run.baseline.folder.name for name, run in runs.items()}
    assert places == {
        "general_terminal": "baseline-tiny",
        "general_gui": "baseline-tiny-2",
        "general_toolcall": "baseline-tiny",
    }
    for run in runs.values():
        for column in run.baseline.columns.values():
            assert column.policy == run.config.policy
            assert Path(str(column.run.dir)).parent == run.baseline.folder


def test_seeds_are_paired_and_come_before_recipes() -> None:
    runs = plan_runs(load_config([BOTH, "seeds=2"], "bench"))
    assert [(run.seed, run.recipe) for run in runs] == [
        (0, "personal_binary"),
        (0, "personal_hybrid"),
        (1, "personal_binary"),
        (1, "personal_hybrid"),
    ]
    assert ["seed=1" in run.arguments for run in runs] == [False, False, True, True]


def test_copies_of_checkpoints_are_below_the_bench_and_the_recipe(tmp_path: Path) -> None:
    address = "learner.remote_checkpoints=s3://bucket/runs"
    runs = plan_runs(load_config([BOTH, "seeds=2", f"dir={tmp_path}/both", address], "bench"))
    addresses = {load_config(list(run.arguments)).learner.remote_checkpoints for run in runs}
    below = "s3://bucket/runs/both"
    assert addresses == {f"{below}/personal_binary", f"{below}/personal_hybrid"}
    assert {run.folder.name for run in runs} == {"seed0", "seed1"}


@pytest.mark.parametrize(
    ("algorithm", "recipe"),
    [("binary", "personal_binary"), ("opd", "personal_opd"), ("hybrid", "personal_hybrid")],
)
def test_the_personal_recipes_differ_in_their_algorithm_only(algorithm: str, recipe: str) -> None:
    (first,) = plan_runs(load_config(["experiment=personal_binary", "seeds=1"], "bench"))
    (run,) = plan_runs(load_config([f"experiment={recipe}", "seeds=1"], "bench"))
    assert run.config.trainer.algorithm == algorithm
    followed = {"distillation": run.config.trainer.distillation}
    trainer = first.config.trainer.model_copy(update={"algorithm": algorithm, **followed})
    assert run.config == first.config.model_copy(update={"trainer": trainer})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["experiment=personal_hybird"], "did you mean 'personal_hybrid'"),
        (["experiment=../train"], "expected one of conf/experiment/"),
        (["experiment=[]"], "experiment: got"),
        (["experiment=personal_opd,personal_opd"], "each once"),
        (["seeds=0"], "seeds: got 0"),
        (["seeds=many"], "seeds: got 'many'"),
        (["seed=3"], r"expected seeds=N"),
        (["run.dir=x"], r"expected dir=PATH"),
        (["resume=runs/x"], "the same dir=PATH again"),
        (["matrix=moon"], "got env 'moon'"),
        (["matrix=terminal,terminal"], "got matrix 'terminal' twice"),
        (["environments=terminal"], "expected matrix="),
        (["eval.also=[gui]"], "expected matrix="),
        (["episodes=96", "trainer.steps=3"], "expected one of them"),
        (
            ["eval.tasks=0", "experiment=personal_opd", "matrix=conversation"],
            "expected eval.tasks of at least 1",
        ),
        (["trainer.stepz=3"], "did you mean 'trainer.steps'"),
        (["experiment=general_terminal_plain", "env.persona=teacher"], "does not take this"),
        (["faster"], "expected KEY=VALUE"),
        (["target=2"], "target: got 2"),
    ],
)
def test_what_does_not_fit_is_one_clear_line_before_anything_starts(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "dry_run=true"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(says, error), error


def test_help_lists_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "run_timeout_s" in capsys.readouterr().out


async def test_what_a_run_is_doing_is_said_from_its_first_second(runs: Bench) -> None:
    runs.order({"general_terminal_plain 0": "wait"})
    _, printed = await runs.run(TERMINAL, "run_timeout_s=2", "seeds=1")
    assert "general_terminal_plain seed 0: vLLM: loading weights" in printed


class Clock:
    """A time that is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_without_a_terminal_what_a_run_is_doing_is_said_now_and_then() -> None:
    (run,) = plan_runs(load_config(["experiment=personal_binary", "seeds=1"], "bench"))
    printed, clock = io.StringIO(), Clock()
    progress = RunProgress(Console(file=printed, width=40), 1, clock)
    progress.begins(run, "begins")
    for now_s, line in ((1, ""), (2, "a"), (3, "b"), (30, "b"), (31, "c"), (32, "d"), (52, "e")):
        clock.now_s = now_s
        progress.reached(run, 0, line)
    said = [line.split(": ")[1] for line in printed.getvalue().splitlines() if ": " in line]
    assert said == ["a", "c", "e"]


@pytest.mark.parametrize("columns", [120, 40])
def test_on_a_terminal_bars_and_the_newest_line_stand_below_what_ended(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    (run,) = plan_runs(load_config(["experiment=personal_binary", "seeds=1"], "bench"))
    terminal = Terminal(columns, 12)
    console = Console(file=terminal, width=columns, height=12, force_terminal=True)
    progress = RunProgress(console, 4)
    progress.begins(run, "begins")
    progress.reached(run, 3, "vLLM: loading weights")
    assert progress._screen is not None
    progress._screen._live.refresh()
    assert "begins" in terminal.text
    assert f"3/{run.steps}" in terminal.text
    assert "vLLM: loading weights" in terminal.text
    progress.ended(run, RunRecord((), exit_code=0))
    progress._screen._live.refresh()
    assert "1/4 runs" in terminal.text
    assert f"/{run.steps} updates" not in terminal.text
    progress.close()
    assert "personal_binary seed 0 begins" in terminal.lines[0]


async def test_tables_are_written_plainer_where_arrows_are_unknown(runs: Bench) -> None:
    raw = io.BytesIO()
    printed = io.TextIOWrapper(raw, encoding="ascii")
    config = load_config([BOTH, "seeds=1", f"dir={runs.dir}"], "bench")
    await run_comparison_async(config, COMMANDS, Console(file=printed, width=300))
    printed.flush()
    assert b"0.10 -> 0.90" in raw.getvalue()


def test_columns_are_measured_with_the_prompts_of_the_run() -> None:
    overrides = ["experiment=general_terminal", "matrix=[toolcall]", "policy=smollm2", "seeds=1"]
    (run,) = plan_runs(load_config(overrides, "bench"))
    for measurement in (run.baseline, run.after):
        agents = [column.agent for column in measurement.columns.values()]
        assert len(agents) == 2
        assert {(agent.protocol, agent.show_form) for agent in agents} == {("text", True)}
