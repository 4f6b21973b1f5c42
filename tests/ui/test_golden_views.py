"""Every view as it is drawn, piece by piece: what people look at changes only on purpose.

`python -m tests.ui.test_golden_views` writes the new files; look at what changed before it is kept.
Panels are kept as their text with its colours, pages as a digest of each of their pieces, pictures
as small grey copies.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from PIL import Image
from rich.console import Console, RenderableType
from rich.default_styles import DEFAULT_STYLES
from rich.style import Style
from rich.theme import Theme

from clawrl_gym.comparison.page import write_page
from clawrl_gym.comparison.picture import write_matrix
from clawrl_gym.comparison.pipeline import show as show_results
from clawrl_gym.comparison.tables import tables_of
from clawrl_gym.config import BenchConfig
from clawrl_gym.core.metrics import heldout_values
from clawrl_gym.core.provenance import Start
from clawrl_gym.core.types import StopReason, ToolCall
from clawrl_gym.doctor import show as show_checks
from clawrl_gym.envs.gui.action import GuiAction, Kind
from clawrl_gym.envs.gui.films.film import Attempt
from clawrl_gym.envs.gui.films.picture import annotated
from clawrl_gym.evaluation.comparison import compare_evaluations
from clawrl_gym.evaluation.figures import read_result
from clawrl_gym.evaluation.page import write_evaluation_page
from clawrl_gym.evaluation.settings import read_settings, write_settings
from clawrl_gym.ui.charts import write_curve_svg, write_families_svg
from clawrl_gym.ui.panel import ViewLayout
from clawrl_gym.ui.report import write_report
from clawrl_gym.ui.serving import SERVING
from clawrl_gym.ui.state import RunState
from clawrl_gym.ui.training import TRAINING
from clawrl_gym.ui.view import LineView
from tests.checks.test_doctor import BAD, GOOD, SPARE
from tests.comparison.test_bench_matrix import BAD as BAD_RECIPE
from tests.comparison.test_bench_matrix import GOOD as GOOD_RECIPE
from tests.comparison.test_bench_results import START, recipe
from tests.evaluation.test_evaluations import episode_of, evaluation, solving
from tests.gui.test_gui_film import filmed
from tests.gui.test_gui_picture import ACTIONS
from tests.support.fake_run import make_run
from tests.support.fake_serving import make_serving
from tests.support.gui_pictures import VIEW, VIEWPORT, page_jpeg
from tests.ui.test_serving_view import turn, verdict
from tests.ui.test_ui import STEP, drive

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden"
PANELS, PAGES, PICTURES, EVALUATIONS = (
    GOLDEN / f"{name}.json" for name in ("panels", "pages", "pictures", "evaluations")
)
_SMALL, _LARGER = (40, 30), (120, 90)
_MOST_APART = 4
"""Greys of 255: other builds of the libraries that draw round differently."""
_PIECE = re.compile(r"(?=<figure|<section|<details|<table|<svg|<article)")
_SPINNER, _MOMENT = re.compile(r"[⠁-⠿]"), re.compile(r"(?<![\d.:])(?:0\.\d\d|[12]) s\b")
"""What goes on while a panel is drawn."""
_MADE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)")
"""When a page was written."""
_COMMAND = re.compile(r'<div class="command">.*?</div>', re.DOTALL)
"""As this process was called."""
_TAG = re.compile(r"<[^>]*>|\s+")


DrawnPages = Callable[[Path], dict[str, dict[str, str]]]
_RESULTS = [recipe("first", 0.5, 0.75), recipe("second", 0.75, 1.0)]


def panels() -> dict[str, list[str]]:
    """The panels of a terminal, by name: their lines, with colours."""
    drawn: dict[str, list[str]] = {}
    for width in (60, 100):
        for height in (24, 40):
            panel = TRAINING.panel(_training(), width, height)
            drawn[f"training {width} {height}"] = _drawn(panel, width)
        drawn[f"serving {width}"] = _drawn(SERVING.panel(_serving(), width), width)
    for height in (31, 32):
        drawn[f"training 30 {height}"] = _drawn(TRAINING.panel(_training(), 30, height), 30)
    for name, state in _moments().items():
        layout = SERVING if name.startswith("serving") else TRAINING
        drawn[name] = _drawn(layout.panel(state, 80, 40), 80)
    drawn["lines of training"] = _lines(TRAINING, _MIXED)
    drawn["lines of serving"] = _lines(SERVING, {"teacher/gap_mean": 0.5, "learner/step_s": 2.5})
    console = _console(80)
    show_checks([GOOD, SPARE, BAD], console)
    drawn["doctor"] = console.export_text(styles=True).splitlines()
    failures = {"third seed 0": "exit code 1: <b>no</b>"}
    failed = replace(recipe("third"), planned=1, failures=failures)
    console = _console(120)
    show_results([*_RESULTS, failed], BenchConfig(experiment=("first",)), console)
    drawn["results"] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return drawn


def pages(folder: Path) -> dict[str, dict[str, str]]:
    """The pages and pictures of runs below `folder`, by name: a digest of every piece."""
    run = make_run(folder / "train", steps=12, stop_at=10, distilled=True)
    config = BenchConfig(experiment=("first", "second"))
    write_page(folder / "bench.html", config, _RESULTS, tables_of(_RESULTS, 0.8), START)
    write_curve_svg(run, folder / "curve.svg")
    paths = {
        "training": write_report(run),
        "serving": write_report(make_serving(folder / "serve", "--?0-+?+0+++")),
        "serving, begun": write_report(make_serving(folder / "begun", "+")),
        "training, bare": write_report(_bare(folder / "bare", steps=3, stop_at=3, heldout=False)),
        "training, begun": write_report(_bare(folder / "first", steps=40, stop_at=1)),
        "training, not begun": write_report(_bare(folder / "none", steps=40, stop_at=0)),
        "bench": folder / "bench.html",
        "curve": folder / "curve.svg",
    }
    return {name: _pieces(path.read_text("utf-8"), folder) for name, path in paths.items()}


def _bare(folder: Path, **run: int | bool) -> Path:
    """A run whose conversations are not there."""
    return make_run(folder, store=False, **run)  # type: ignore[arg-type]


def evaluations(folder: Path) -> dict[str, dict[str, str]]:
    """The pages of evaluations below `folder`, and what of recipes is drawn beside them."""
    sampled = [solving(*range(k, 10)) for k in (9, 5, 3)] + [[episode_of(9, "?", "9")]]
    odd = replace(
        episode_of(3, "more", "3"), duration_s=75.0, reward=0.25, scores={"tests": 0.5, "x": 2.0}
    )
    late = replace(episode_of(4, "?"), stop_reason=StopReason.DEADLINE, error="no end")
    lost = [episode_of(10 + n, "?", stop=StopReason.POLICY_ERROR) for n in (1, 2)]
    folders = [
        evaluation(folder / "first", [*solving(0, 1, 2, of=3), odd, late, *lost], sampled),
        evaluation(folder / "second, whose name is much too long", solving(3, 4), sampled[:2]),
        evaluation(folder / "third", solving(1, 3, of=5)),
    ]
    for number, one in enumerate(folders):
        start: Start = {
            "command": f"evaluate {number}", "commit": "abc", "machine": {"cpu": "Test CPU"},
        }  # fmt: skip
        write_settings(one, replace(read_settings(one), starts=(start,) * (1 + number)))
        write_evaluation_page(read_result(one))
    comparison = compare_evaluations(folders)
    write_matrix(folder / "matrix.svg", [GOOD_RECIPE, BAD_RECIPE])
    run = make_run(folder / "train", steps=12, stop_at=10, store=False)
    make_run(folder / "beside", steps=12, stop_at=7, store=False)
    paths = {
        "comparison": comparison.folder / "comparison.html",
        "comparison, drawn": comparison.folder / "comparison.svg",
        "matrix": folder / "matrix.svg",
        "families": write_families_svg(run, folder / "families.svg", [folder / "beside"]),
    }
    for number, one in enumerate(folders):
        paths[f"evaluation {number}"] = one / "evaluation.html"
    for task in sorted((folders[0] / "transcripts").iterdir()):
        paths[f"task {task.stem.rpartition('-')[0]}"] = task
    return {
        name: _pieces(_COMMAND.sub("COMMAND", path.read_text("utf-8")), folder)
        for name, path in paths.items()
    }


def pictures() -> dict[str, str]:
    """Pages with each action drawn on them, and a film: grey pixels of a small copy, as hex."""
    drawn = {
        kind: annotated(
            page_jpeg(), [Attempt(_action(kind)), Attempt(_action(kind), "no")], VIEW, VIEWPORT
        )
        for kind in get_args(Kind)
    }
    for direction in ("up", "down", "left"):
        scrolled = [Attempt(GuiAction("scroll", x=200, y=150, direction=direction))]
        drawn[f"scroll {direction}"] = annotated(page_jpeg(), scrolled, VIEW, VIEWPORT)
    film = filmed(2, last=Attempt(GuiAction("type", id=1, text="a long text " * 20)))
    film.graded(1.0, "Test report: passed")
    return {name: _small(jpeg) for name, jpeg in drawn.items()} | {
        "film": _small(film.strip(), _LARGER)
    }


def _action(kind: Kind) -> GuiAction:
    return ACTIONS.get(kind) or GuiAction(kind, id=2)


def _small(jpeg: bytes, size: tuple[int, int] = _SMALL) -> str:
    picture = Image.open(io.BytesIO(jpeg)).convert("L")
    return picture.resize(size, Image.Resampling.BOX).tobytes().hex()


def _training() -> RunState:
    state = RunState("runs/x", 10)
    state.begin("vLLM", "ready")
    state.take_step(0, heldout_values(41, 120))
    for step in range(1, 8):
        state.take_step(step, {**STEP, "train/reward": step / 8})
    state.take_step(7, heldout_values(100, 120))
    state.take({"verdicts/positive": 12, "verdicts/abstained": 3, "judge/hinted": 0.25})
    state.take({"train/success/grep": 1.0, "train/success/sort": 0.0, "teacher/gap_mean": 0.5})
    state.reading = (7, [("grep", -2.0), (" -r", 0.5)])
    return state


def _serving() -> RunState:
    state = RunState("runs/serve")
    for index in range(3):
        state.take_turn(turn(index))
    state.take_turn(turn(0, session="s2", kind="side", rule="heartbeat"))
    for turn_id, value in ((1, 1), (2, -1), (3, None)):
        state.take_verdict(replace(verdict(value, turn_id), detail={"hints": ["Look."]}))
    state.take_step(2, {"batch/samples": 8, "learner/loss": 0.25, "swap/pause_s": 8.5})
    return state


def _moments() -> dict[str, RunState]:
    """States of runs beside the usual ones: at their beginning, in trouble, at their end."""
    starting = RunState("runs/x", 10)
    starting.begin("vLLM", "loading weights")
    starting.begin("Ray", "starting")
    starting.begin("Ray", "ready")
    first = RunState("runs/x", 10)
    first.begin("training", "10 updates")
    first.take_step(0, {**heldout_values(41, 120, 3), "heldout/pass@4": 0.75})
    first.take_step(1, {**STEP, "train/reward": -0.25, "time/left_s": 0.0})
    mixed, stopped, done = _training(), _training(), _training()
    mixed.take(_MIXED)
    mixed.take({"learner/loss": float("nan"), "memory/rss_gb": 12.25, "time/left_s": 0.0})
    for state, step in ((stopped, 7), (done, 10)):
        state.take_step(step, {"train/reward": 0.5})
        state.end_phases()
        state.closed = True
    healthy = RunState("runs/x", 4)
    healthy.begin("training", "4 updates")
    for step, reward in enumerate((-0.5, 0.25, 2.0), 1):
        healthy.take_step(step, {"train/reward": reward, "rollout/in_flight": 3.0})
    healthy.begin("training", "ready")
    quiet, learning, ended = RunState("runs/serve"), _serving(), _serving()
    learning.begin("learning", "idle with 3 samples")
    learning.take({"ready/flush_s": 1e9, "judge/hinted": 0.5, "judge/agreement": 0.25})
    learning.take_turn(replace(turn(4), reply={"role": "assistant", "content": None}))
    ended.closed = True
    return {
        "training, starting": starting, "training, the first": first, "training, mixed": mixed,
        "training, healthy": healthy, "training, stopped": stopped, "training, done": done,
        "training, nothing": RunState("x", 3),
        "serving, quiet": quiet, "serving, learning": learning, "serving, ended": ended,
    }  # fmt: skip


_MIXED = {
    "env/gui/train/success": 0.5, "env/gui/heldout/success": 0.75, "env/swe/train/success": 0.25,
    "errors/env_error": 0.0, "errors/policy_error": 3.0, "judge/abstained": 0.125,
    "heldout/success": 0.5, "heldout/n": 40.0, "heldout/lost": 2.0, "heldout/low": 0.35,
    "heldout/high": 0.65, "heldout/samples": 4.0, "heldout/pass@1": 0.4, "heldout/pass@4": 0.8,
    "heldout/tests": 0.5, "policy/version": 3.0, "heldout/last_version": 5.0, "time/left_s": 134.0,
}  # fmt: skip


def _lines(layout: ViewLayout, values: Mapping[str, float]) -> list[str]:
    """What a log has of a run."""
    out = io.StringIO()
    view = LineView(out, layout, title="runs/x\nTITLE", total_steps=10)
    drive(view, 2)
    view.phase("training")
    view.message("two\nlines")
    view.step(3, values)
    view.step(4, {"batch/samples": 8, "learner/loss": 0.5, "errors/policy_error": 4})
    view.step(5, {"policy/version": 5.0})
    for kind in ("main", "side"):
        view.turn(turn(1, kind=kind, rule="title", versions_T=[-1, 3, 4]))
    view.turn(replace(turn(2), reply={"role": "assistant", "tool_calls": _CALLS}))
    for value in (1, 0, -1, None):
        view.verdict(verdict(value, 1))
    view.close()
    return _MOMENT.sub("0.00 s", out.getvalue()).splitlines()


_CALLS: list[ToolCall] = [
    {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
]


def _console(width: int) -> Console:
    # A style of rich's keeps the colours of the first console that drew it, whoever's that was.
    for kept in (Style.parse, Style._add, Style.normalize):
        kept.cache_clear()
    theme = Theme({name: Style.parse(str(style)) for name, style in DEFAULT_STYLES.items()})
    return Console(
        width=width,
        file=io.StringIO(),
        record=True,
        color_system="256",
        force_terminal=True,
        theme=theme,
    )


def _drawn(panel: RenderableType, width: int) -> list[str]:
    console = _console(width)
    console.print(panel)
    text = console.export_text(styles=True)
    return _SPINNER.sub("⠿", _MOMENT.sub("0.00 s", text)).splitlines()


def _pieces(page: str, folder: Path) -> dict[str, str]:
    """By number and first words; what says the configuration or the present time is left out."""
    page = _MADE.sub("NOW", page.replace(str(folder), "FOLDER"))
    pieces: dict[str, str] = {}
    for number, piece in enumerate(_PIECE.split(page)):
        words = _TAG.sub(" ", piece).split()
        if not any(words in piece for words in ("onfiguration", "config.yaml", "run.dir")):
            digest = hashlib.sha256(piece.encode()).hexdigest()[:16]
            pieces[f"{number} {' '.join(words)[:40]}"] = digest
    return pieces


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day as the files have them."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_panels_are_drawn_as_they_were() -> None:
    fewer_colours = Console(file=io.StringIO(), color_system="standard", force_terminal=True)
    fewer_colours.print("as other tests do before", style="grey42")
    golden = json.loads(PANELS.read_text("utf-8"))
    now = panels()
    assert now.keys() == golden.keys()
    for name, lines in now.items():
        assert lines == golden[name], f"the panel {name} is drawn otherwise"


def test_pictures_are_drawn_as_they_were() -> None:
    golden = json.loads(PICTURES.read_text("utf-8"))
    now = pictures()
    assert now.keys() == golden.keys()
    for name, small in now.items():
        pairs = zip(bytes.fromhex(small), bytes.fromhex(golden[name]), strict=True)
        assert max(abs(one - other) for one, other in pairs) <= _MOST_APART, name


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(("drawn", "kept"), [(pages, PAGES), (evaluations, EVALUATIONS)])
def test_pages_are_drawn_as_they_were(drawn: DrawnPages, kept: Path, tmp_path: Path) -> None:
    golden = json.loads(kept.read_text("utf-8"))
    now = drawn(tmp_path)
    assert now.keys() == golden.keys()
    for name, pieces in golden.items():
        changed = dict(now[name].items() - pieces.items())
        assert not changed, f"of the page {name} these pieces are drawn otherwise"
        assert now[name] == pieces


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    PANELS.write_text(json.dumps(panels(), indent=1) + "\n", "utf-8")
    PICTURES.write_text(json.dumps(pictures(), indent=1) + "\n", "utf-8")
    for drawn, kept in ((pages, PAGES), (evaluations, EVALUATIONS)):
        with tempfile.TemporaryDirectory() as folder:
            kept.write_text(json.dumps(drawn(Path(folder)), indent=1) + "\n", "utf-8")
    sys.stdout.write("look at the difference: git diff tests/fixtures/golden\n")
