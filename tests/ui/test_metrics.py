from __future__ import annotations

import importlib.util
import itertools
import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.files.jsonl import JsonLines, read_json_lines
from clawrl_gym.core.files.log_files import files_of_log
from clawrl_gym.core.metrics import (
    METRICS_FILE,
    TIMELINE_FILE,
    Metrics,
    RateWindow,
    Timeline,
    best_heldout,
    by_step,
    heldout_values,
    in_env,
    judged_shares,
    mean_scores,
    pass_at_k,
    wilson,
)
from clawrl_gym.ui.run_data import read_run


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_wilson_gives_the_textbook_interval() -> None:
    low, high = wilson(81, 263)  # Newcombe 1998, table I: 0.2553 to 0.3662
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


def test_the_best_of_some_steps_is_the_last_of_equals() -> None:
    successes = {0: 0.4, 10: 0.9, 20: 0.8, 30: 0.9, 40: 1.0}
    rows = [{"step": step, "heldout/success": value} for step, value in successes.items()]
    rows += [{"step": 25, "train/reward": 1.0}]
    assert best_heldout(rows, [10, 20, 25, 30]) == 30
    assert best_heldout(rows, [10, 20]) == 10
    assert best_heldout(rows, [25]) is None


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (0, 0), (1, 1)])
def test_wilson_stays_between_zero_and_one_and_holds_the_share(successes: int, n: int) -> None:
    low, high = wilson(successes, n)
    assert 0.0 <= low <= (successes / n if n else 0.5) <= high <= 1.0
    assert high - low > 0.05


def test_held_out_values_carry_their_names() -> None:
    values = heldout_values(60, 120)
    assert set(values) == {f"heldout/{name}" for name in ("success", "n", "lost", "low", "high")}
    assert values["heldout/success"] == 0.5
    assert values["heldout/n"] == 120


def test_a_rate_is_over_its_window_only() -> None:
    window = RateWindow(10.0)
    for second in range(100):
        window.add(5, now_s=float(second))
    assert window.rate(now_s=99.0) == 5.0
    assert window.rate(now_s=200.0) == 0.0


def test_a_young_rate_is_over_its_age_and_not_inflated() -> None:
    window = RateWindow(10.0)
    window.add(8, now_s=0.0)
    assert window.rate(now_s=0.01) == 8.0
    assert window.rate(now_s=4.0) == 2.0
    assert RateWindow().rate() == 0.0


def test_each_log_is_one_line_on_disk_at_once(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, "none", {})
    metrics.log(0, {"heldout/success": 0.5})
    metrics.log(1, {"train/reward": 0.25, "policy/version": 1})
    first, second = lines_of(tmp_path / "metrics.jsonl")
    assert first["step"] == 0
    assert first["heldout/success"] == 0.5
    assert isinstance(first["time_s"], float)
    assert (second["step"], second["train/reward"]) == (1, 0.25)
    assert metrics.latest["policy/version"] == 1.0
    metrics.close()


def test_a_value_that_is_not_finite_becomes_null_and_is_not_the_latest(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, "none", {})
    metrics.log(1, {"time/left_s": 9.0})
    metrics.log(2, {"time/left_s": math.nan, "learner/loss": math.inf})
    assert lines_of(tmp_path / "metrics.jsonl")[1]["time/left_s"] is None
    assert metrics.latest["time/left_s"] == 9.0
    metrics.close()


def test_a_resumed_run_goes_on_in_the_same_file_and_its_later_values_count(tmp_path: Path) -> None:
    before = Metrics(tmp_path, "none", {})
    before.log(1, {"train/reward": 0.1})
    before.log(2, {"train/reward": 0.2})
    before.close()
    after = Metrics(tmp_path, "none", {})
    after.log(2, {"train/reward": 0.9})
    after.close()
    assert len(lines_of(tmp_path / "metrics.jsonl")) == 3
    assert [row["train/reward"] for row in after.history] == [0.1, 0.9]
    starts = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert len(starts) == 2


def test_values_of_one_step_from_several_lines_make_one_row() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 1, "a": 1.0},
        {"step": 0, "b": 0.0},
        {"step": 1, "c": 3.0, "a": None},
    ]
    assert by_step(rows) == [{"step": 0, "b": 0.0}, {"step": 1, "a": 1.0, "c": 3.0}]


def test_half_a_line_left_by_a_crash_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a"')
    metrics = Metrics(tmp_path, "none", {})
    metrics.log(3, {"a": 3.0})
    metrics.close()
    assert [row["step"] for row in read_json_lines(path)] == [1, 3]


def test_an_unknown_logger_is_refused() -> None:
    with pytest.raises(ConfigError, match="got logger='csv', expected one of none, tensorboard"):
        Metrics(Path("unused"), "csv", {})


def test_a_logger_that_is_not_installed_is_refused_with_the_cure(tmp_path: Path) -> None:
    if importlib.util.find_spec("wandb") is not None:
        pytest.skip("wandb is installed here")
    with pytest.raises(ConfigError, match="-m pip install 'wandb>="):
        Metrics(tmp_path, "wandb", {})
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_what_metrics_jsonl_gets(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    metrics = Metrics(tmp_path, "tensorboard", {})
    metrics.log(3, {"train/reward": 0.5, "time/left_s": math.nan})
    metrics.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["train/reward"]
    (point,) = events.Scalars("train/reward")
    assert (point.step, point.value) == (3, 0.5)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open"):
        JsonLines(tmp_path / "file" / "metrics.jsonl")


def test_a_full_disk_is_one_clear_error() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    lines = JsonLines(full)
    with pytest.raises(StoreError, match="No space left on device"):
        lines.append({"step": 1})
    lines.close()


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)

    def work(name: str) -> None:
        for index in range(200):
            timeline.add("collect", name, index, index + 1, note="x" * 300)

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    timeline.close()
    assert len(lines_of(tmp_path / "timeline.jsonl")) == 800


def test_a_span_records_its_block_and_what_was_said_of_it(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    with timeline.span("train", "step", version=4):
        pass
    timeline.close()
    (row,) = lines_of(tmp_path / "timeline.jsonl")
    assert (row["loop"], row["name"], row["version"]) == ("train", "step", 4)
    assert float(str(row["end_s"])) >= float(str(row["start_s"])) > 1e9


def test_a_span_whose_block_fails_is_recorded_with_the_error(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    with pytest.raises(KeyError), timeline.span("serve", "swap"):
        raise KeyError("x")
    timeline.close()
    (row,) = lines_of(tmp_path / "timeline.jsonl")
    assert row["error"] == "KeyError"


def test_an_unknown_loop_is_refused(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    with pytest.raises(ValueError, match="got loop 'eat'"):
        timeline.add("eat", "x", 0.0, 1.0)  # type: ignore[arg-type]
    timeline.close()


@pytest.mark.parametrize(
    ("n", "solved", "k", "rate"),
    [
        (1, 0, 1, 0.0),
        (1, 1, 1, 1.0),
        (10, 3, 1, 0.3),
        (10, 3, 5, 11 / 12),
        (10, 3, 8, 1.0),
        (200, 1, 100, 0.5),
        (200, 17, 10, 0.5974489),
        (16, 0, 16, 0.0),
    ],
)
def test_pass_at_k_is_the_unbiased_estimate(n: int, solved: int, k: int, rate: float) -> None:
    assert pass_at_k(n, solved, k) == pytest.approx(rate)


def test_pass_at_k_is_the_mean_over_all_choices_of_k_attempts() -> None:
    for n, solved in [(6, 2), (7, 1), (5, 5)]:
        attempts = [True] * solved + [False] * (n - solved)
        for k in range(1, n + 1):
            choices = [any(choice) for choice in itertools.combinations(attempts, k)]
            assert pass_at_k(n, solved, k) == pytest.approx(sum(choices) / len(choices))


@pytest.mark.parametrize(("n", "solved", "k"), [(4, 5, 1), (4, 2, 5), (4, 2, 0), (4, -1, 1)])
def test_pass_at_k_of_too_few_attempts_is_refused(n: int, solved: int, k: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= solved <= n >= k > 0"):
        pass_at_k(n, solved, k)


def test_what_was_lost_widens_the_interval_of_held_out_tasks_on_both_sides() -> None:
    values = heldout_values(6, 10, lost=5)
    assert values["heldout/success"] == 0.6
    assert (values["heldout/n"], values["heldout/lost"]) == (10, 5)
    assert values["heldout/low"] == wilson(6, 15)[0]
    assert values["heldout/high"] == wilson(11, 15)[1]
    assert heldout_values(0, 0, lost=2)["heldout/success"] == 0.0
    assert heldout_values(3, 10)["heldout/lost"] == 0


def test_scores_are_means_over_the_episodes_that_have_them() -> None:
    scores = [{"tests": 1.0, "style": 0.5}, {"tests": 0.0}, {}]
    assert mean_scores(scores, "heldout") == {"heldout/style": 0.5, "heldout/tests": 0.5}
    assert mean_scores([], "heldout") == {}


def test_shares_of_verdicts_are_of_what_was_judged_asked_and_voted() -> None:
    counts = {"positive": 4, "neutral": 2, "negative": 1, "abstained": 3, "hints": 5}
    counts |= {"hints_asked": 8, "hints_refused": 2, "votes": 40, "votes_invalid": 1}
    counts |= {"agree": 3, "disagree": 1}
    assert judged_shares(counts) == {
        "judge/abstained": 0.3,
        "judge/hinted": 0.5,
        "judge/mean": pytest.approx(3 / 7),
        "judge/hints_refused": 0.25,
        "judge/votes_invalid": 0.025,
        "judge/agreement": 0.75,
    }
    assert judged_shares({}) == {}
    assert judged_shares({"abstained": 2}) == {"judge/abstained": 1.0, "judge/hinted": 0.0}
    assert judged_shares({"positive": 1}) == {
        "judge/abstained": 0.0,
        "judge/hinted": 0.0,
        "judge/mean": 1.0,
    }


def test_metrics_of_an_environment_carry_its_name() -> None:
    assert in_env("gui", {"train/reward": 0.5}) == {"env/gui/train/reward": 0.5}


def test_a_rate_is_of_the_events_that_are_younger_than_its_window() -> None:
    window = RateWindow(10.0)
    window.add(4, now_s=0.0)
    window.add(6, now_s=8.0)
    assert window.rate(now_s=9.0) == pytest.approx(10 / 9)
    assert window.rate(now_s=10.0) == pytest.approx(0.6)  # the first is as old as the window


@pytest.mark.parametrize("left_out", [{0}, {1}, {2, 5}, {5}, {0, 1, 2, 3, 4, 5}, set()])
def test_a_file_is_rewritten_with_every_line_that_is_kept(
    tmp_path: Path, left_out: set[int]
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"row": number, "text": str(number) * 600_000} for number in range(6)]
    lines = JsonLines(path)
    for row in rows:
        lines.append(row)
    path.chmod(0o640)
    wrong = {json.dumps(rows[number]).encode() + b"\n" for number in left_out}
    assert lines.rewrite(lambda line: line not in wrong) == len(left_out)
    kept = [row for row in rows if row["row"] not in left_out]
    assert lines_of(path) == kept
    assert path.stat().st_mode & 0o777 == 0o640
    lines.append({"row": 6})
    lines.close()
    assert lines_of(path) == [*kept, {"row": 6}]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


def test_full_files_get_a_number_and_every_reader_has_the_whole_series(tmp_path: Path) -> None:
    metrics, timeline = Metrics(tmp_path, "none", {}, 400), Timeline(tmp_path, 400)
    for step in range(1, 31):
        metrics.log(step, {"train/reward": step / 30, "logprob_gap/mean": 1e-7})
        timeline.add("train", "update", step, step + 0.5)
    metrics.close()
    timeline.close()
    for name in (METRICS_FILE, TIMELINE_FILE):
        files = files_of_log(tmp_path / name)
        assert len(files) > 4
        assert all(path.stat().st_size < 800 for path in files)
    again = Metrics(tmp_path, "none", {}, 400)
    again.log(31, {"train/reward": 1.0})
    again.close()
    assert [row["step"] for row in again.history] == list(range(1, 32))
    run = read_run(tmp_path)
    assert [row["step"] for row in run.rows] == list(range(1, 32))
    assert len(run.spans) == 30
