from __future__ import annotations

import contextlib
import io
import re
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.metrics import heldout_values
from clawrl_gym.ui.sparkline import columns, spark
from clawrl_gym.ui.state import RunState
from clawrl_gym.ui.text import (
    duration,
    interval,
    measured_versions,
    number,
    one_line,
    pass_rates,
    scores,
    share,
)
from clawrl_gym.ui.training import TRAINING
from clawrl_gym.ui.view import LineView, LiveView, RunView, make_view

STEP = {
    "train/reward": 0.625, "train/success": 0.5, "learner/loss": 0.0123, "learner/grad_norm": 0.8,
    "policy/version": 7, "rollout/tokens_per_s": 3120.4, "rollout/episodes_per_s": 9.13,
    "rollout/in_flight": 64, "learner/tokens_per_s": 4210.0, "staleness/mean": 0.82,
    "staleness/max": 2, "logprob_gap/mean": 0.0031, "logprob_gap/max": 0.11, "groups/ready": 3,
    "groups/zero_variance": 4, "groups/dropped_stale": 0, "merge/share": 0.98,
    "swap/pause_s": 0.08, "memory/rss_gb": 4.23, "errors/env_error": 2, "time/left_s": 134.0,
}  # fmt: skip


def drive(view: RunView, steps: int = 7, values: Mapping[str, float] = STEP) -> None:
    """A short run, as training tells it."""
    view.phase("vLLM", "loading weights")
    view.phase("Ray", "starting")
    view.phase("vLLM", "ready")
    view.phase("Ray", "ready")
    view.step(0, heldout_values(41, 120))
    for step in range(1, steps + 1):
        view.update({"rollout/in_flight": 64})
        view.step(step, {**values, "policy/version": step})
    view.step(steps, {**heldout_values(100, 120), "policy/version": steps})


def text_of(state: RunState, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(TRAINING.panel(state, width))
    return console.export_text()


def state_of(steps: int = 7, total: int = 10) -> RunState:
    state = RunState("runs/x", total)
    state.begin("vLLM", "ready")
    state.take_step(0, heldout_values(41, 120))
    for step in range(1, steps + 1):
        state.take_step(step, STEP)
    state.take_step(steps, heldout_values(100, 120))
    return state


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_panel_fits_its_width_and_says_everything(width: int) -> None:
    text = text_of(state_of(), width)
    assert max(len(line) for line in text.splitlines()) <= width
    for words in ("train reward", "train success", "held-out", "34 %", "83 %", "3,120", "4,210"):
        assert words in text
    for words in ("env_error 2", "7/10 updates", "left", "0.003", "log-prob gap", "groups ready 3"):
        assert words in text
    assert any(block in text for block in "▁▂▃▄▅▆▇█")


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_panel_cuts_no_number_off(width: int) -> None:
    text = text_of(state_of(), width)
    assert max(len(line) for line in text.splitlines()) <= width
    words = " ".join(re.sub(r"[│▁▂▃▄▅▆▇█]", " ", text).split())
    for number_in_words in (
        "train reward 0.625", "train success 50 %", "held-out 83 %", "version 7",
        "tokens/s 3,120", "last swap 0.08 s", "in flight 64", "groups ready 3", "loss 0.012",
        "env_error 2", "7/10 updates, 1 s ago", "2:14 left",
    ):  # fmt: skip
        assert number_in_words in words


def test_the_panel_fits_a_terminal_of_24_rows() -> None:
    assert len(text_of(state_of(), 80).splitlines()) <= 23


@pytest.mark.parametrize("width", [60, 80, 120])
def test_judge_and_teacher_have_their_lines_where_there_are_some(width: int) -> None:
    state = state_of()
    assert "verdicts" not in text_of(state, width)
    state.take({"verdicts/positive": 1234, "verdicts/abstained": 7, "judge/hinted": 0.34})
    state.take({"teacher/gap_mean": -0.25, "objective/distillation_sampled": 0.5})
    text = text_of(state, width)
    assert "verdicts good 1,234 neutral 0 bad 0 abstained 7" in text
    assert "teacher gap -0.250" in text
    assert max(len(line) for line in text.splitlines()) <= width
    assert len(text.splitlines()) <= 23


def test_a_tall_terminal_shows_the_pieces_that_were_taught_on_one_line() -> None:
    state = state_of()
    state.reading = (7, [("grep\n[red]", -2.0), ("\x1b[31m" + "x" * 300, 0.5)])
    for height, count in ((24, 0), (40, 1)):
        out = io.StringIO()
        Console(width=80, file=out, color_system=None).print(TRAINING.panel(state, 80, height))
        lines = [line for line in out.getvalue().splitlines() if "update 7 taught" in line]
        assert len(lines) == count
        assert "\x1b" not in out.getvalue()
        assert not lines or ("grep [red]" in lines[0] and len(lines[0]) == 80)


def test_lines_tell_what_judge_and_teacher_did_and_no_word_that_was_taught() -> None:
    out = io.StringIO()
    view = LineView(out, TRAINING, total_steps=3, title="runs/x")
    view.step(1, {"train/reward": 0.5, "judge/hinted": 0.25, "judge/mean": -0.5,
                  "judge/abstained": 0.1, "teacher/gap_mean": -0.2})  # fmt: skip
    view.distilled((1, [("secret", 1.0)]))
    text = out.getvalue()
    assert "verdict -0.500  abstained 10 %  hints 25 %  teacher gap -0.200" in text
    assert "secret" not in text


def test_a_tall_terminal_also_shows_the_families() -> None:
    state = state_of()
    state.take({"train/success/grep": 1.0, "train/success/sort": 0.0})
    out = io.StringIO()
    for height in (24, 40):
        Console(width=80, file=out, color_system=None).print(TRAINING.panel(state, 80, height))
    assert out.getvalue().count("grep\u00a0█  sort\u00a0▁") == 1


def test_start_up_shows_phases_that_overlap() -> None:
    state = RunState("runs/x", 10)
    state.begin("vLLM", "loading weights")
    state.begin("Ray", "starting")
    state.begin("Ray", "ready, 1 worker")
    text = text_of(state, 80)
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] vLLM .* s  loading weights", text)
    assert re.search(r"✓ Ray .* s  ready, 1 worker", text)


def test_a_title_with_markup_is_shown_as_it_is() -> None:
    assert "[red]runs/x[/red]" in text_of(RunState("[red]runs/x[/red]", 10), 80)


def test_a_run_that_stopped_early_says_so_and_a_whole_one_does_not() -> None:
    stopped, whole = state_of(steps=7, total=10), state_of(steps=10, total=10)
    stopped.closed = whole.closed = True
    assert "stopped after 7 of 10 updates" in text_of(stopped, 80)
    assert "done in" in text_of(whole, 80)
    assert "left" not in text_of(whole, 80)


def test_values_that_are_not_finite_do_not_disturb_the_panel() -> None:
    state = RunState("runs/x", 10)
    state.take_step(1, {"train/reward": float("nan"), "time/left_s": float("nan"), "x": 1.0})
    assert state.left_s() is None
    assert state.curves == {}
    text_of(state, 80)


def test_the_time_left_counts_down_between_steps() -> None:
    state = RunState("runs/x", 10)
    state.take_step(1, {"time/left_s": 100.0})
    state.left_reported_s -= 30.0
    assert state.left_s() == pytest.approx(70.0, abs=1.0)


def test_time_that_is_up_is_no_number_any_more() -> None:
    state = RunState("runs/x", 10)
    state.take_step(3, {"time/left_s": 10.0, "learner/loss": 0.1})
    assert "3/10 updates, 1 s ago" in text_of(state, 80)
    assert "10 s left" in text_of(state, 80)
    state.left_reported_s -= 30.0
    assert state.left_s() is None
    assert "· late" in text_of(state, 80)
    assert "left" not in text_of(state, 80)
    state.take_step(4, {"time/left_s": 60.0})
    assert "1:00 left" in text_of(state, 80)
    state.take_step(10, {"time/left_s": 0.0})
    assert not {"left", "late"} & set(text_of(state, 80).split())


def test_a_gauge_without_a_value_is_unknown() -> None:
    state = RunState("runs/x", 10)
    state.take({"ready/flush_s": 0.14})
    state.take({"ready/flush_s": float("nan")})
    assert "ready/flush_s" not in state.gauges


def test_the_newest_update_ages_and_an_evaluation_is_none() -> None:
    state = state_of(steps=7, total=10)
    assert state.last_update_s is not None
    state.last_update_s -= 42.0
    state.take_step(7, heldout_values(100, 120))
    assert "7/10 updates, 42 s ago" in text_of(state, 80)


def test_numbers_of_a_run_that_is_stuck_say_how_old_they_are() -> None:
    state = state_of()
    assert "numbers of" not in text_of(state, 80)
    assert state.gauges_s is not None
    state.gauges_s -= 65.0
    assert "numbers of 1:05 ago" in text_of(state, 80)
    state.closed = True
    assert "numbers of" not in text_of(state, 80)


def test_the_line_view_writes_plain_honest_lines() -> None:
    out = io.StringIO()
    view = LineView(out, TRAINING, total_steps=7, title="runs/x")
    drive(view)
    view.close()
    view.close()
    text = out.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", text)
    lines = text.splitlines()
    assert "vLLM: loading weights" in lines
    assert re.search(r"^vLLM: ready \(\d+\.\d+ s\)$", text, re.MULTILINE)
    assert "held-out after 0 updates: 34 % (26 to 43 %, n = 120)" in lines
    assert sum(line.startswith("step ") for line in lines) == 7
    assert lines[-1].startswith("held-out after 7 updates: 83 %")
    first = next(line for line in lines if line.startswith("step 1/7"))
    for words in ("reward 0.625", "success 50 %", "loss 0.012", "tokens/s 3,120", "left 2:14"):
        assert words in first


def test_the_line_view_tells_errors_once_and_again_when_they_grow() -> None:
    out = io.StringIO()
    view = LineView(out, TRAINING, total_steps=3, title="runs/x")
    for step, errors in ((1, 2), (2, 2), (3, 5)):
        view.step(step, {"train/reward": 0.0, "errors/env_error": errors})
    lines = [line for line in out.getvalue().splitlines() if line.startswith("errors")]
    assert lines == ["errors so far: env_error 2", "errors so far: env_error 5"]


def test_foreign_text_cannot_send_control_characters() -> None:
    out = io.StringIO()
    view = LineView(out, TRAINING, total_steps=1, title="t\x1b[2Jx")
    view.message("a\x1b]0;title\x07b\r\nc\x9b31md")
    view.phase("vLLM", "50%\rdone\x00")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", out.getvalue())
    assert "a b c" in out.getvalue()


def test_a_narrow_encoding_replaces_instead_of_failing() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    LineView(out, TRAINING, total_steps=1, title="run ünï → x")
    assert raw.getvalue() == b"run ?n? -> x\n"


def test_a_reader_that_went_away_does_not_end_the_run() -> None:
    with open("/dev/full", "w", encoding="utf-8") as out:  # noqa: PTH123
        view = LineView(out, TRAINING, total_steps=1, title="x")
        view.message("y" * 10_000)
        with contextlib.suppress(OSError):
            out.close()


def test_the_live_view_takes_calls_from_many_threads_and_leaves_its_last_state() -> None:
    out = io.StringIO()
    view = LiveView(
        Console(file=out, width=80, force_terminal=True), TRAINING, total_steps=7, title="x"
    )
    threads = [threading.Thread(target=drive, args=(view,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view.message("report: [bold]runs/x/report.html")
    view.close()
    view.close()
    text = out.getvalue()
    assert "report: [bold]runs/x/report.html" in text
    assert "done in" in text


def test_without_a_terminal_the_view_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = make_view("auto", TRAINING, total_steps=1, title="runs/x")
    assert isinstance(view, LineView)
    assert capsys.readouterr().out == "runs/x\n"


def test_an_unknown_view_is_refused() -> None:
    with pytest.raises(ConfigError, match="got ui='fancy'"):
        make_view("fancy", TRAINING, total_steps=1, title="x")


def test_a_spark_is_as_high_as_its_values() -> None:
    assert spark([0.0, 0.5, 1.0, None], 0.0, 1.0) == ["▁▄█ "]
    assert spark([0.0, 0.5, 1.0], 0.0, 1.0, rows=2) == ["  █", "▁██"]
    assert spark([3.0, 3.0], 3.0, 3.0) == ["▄▄"]


def test_columns_average_what_falls_together_and_end_with_the_data() -> None:
    assert columns([(0, 1.0), (1, 3.0), (5, 5.0)], 5, 10) == [2.0, 2.0, 5.0, None, None]
    assert columns([(4, 1.0)], 4, 8) == [1.0, 1.0, 1.0, None]
    assert columns([], 3, 8) == [None, None, None]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (64.0, "64"), (9.126, "9.13"), (12.34, "12.3"), (3120.4, "3,120"),
     (0.0123, "0.012"), (1.2e-5, "1.2e-05"), (-0.5, "-0.500"), (float("nan"), "-"), (None, "-")],
)  # fmt: skip
def test_numbers_are_short(value: Any, words: str) -> None:
    assert number(value) == words


def test_durations_and_shares_read_well() -> None:
    assert [duration(s) for s in (0.08, 4.23, 59.99, 65, 7389)] == [
        "0.08 s", "4.2 s", "1:00", "1:05", "2:03:09",
    ]  # fmt: skip
    assert [share(s) for s in (0.0, 0.004, 0.34, 0.996, 1.0)] == [
        "0 %", "0.4 %", "34 %", "99.6 %", "100 %",
    ]  # fmt: skip


def test_a_long_foreign_line_is_cut() -> None:
    assert one_line("a\ud800b") == "a?b"
    assert one_line("x" * 900) == "x" * 499 + "…"


def test_pass_rates_are_in_their_order_with_what_was_lost() -> None:
    values = {"heldout/pass@8": 0.8, "heldout/pass@1": 0.41, "heldout/samples_lost": 0.0}
    assert pass_rates(values) == "pass@1 41 %, pass@8 80 %"
    assert pass_rates({**values, "heldout/samples_lost": 3.0}).endswith("80 %, 3 samples lost")
    assert pass_rates({}) == ""


def test_a_held_out_result_says_what_was_lost_and_which_versions_it_met() -> None:
    values = heldout_values(116, 120, 2) | {"heldout/last_version": 7.0}
    assert interval(values) == "97 % (90 to 99 %, n = 120, 2 lost)"
    assert measured_versions(5, values) == "versions 5 to 7"
    assert measured_versions(7, values) == ""
    assert scores(values) == {}
