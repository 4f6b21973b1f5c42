"""A run beside its control: paired differences of greedy and sampled held-out reward."""

from pathlib import Path

import numpy as np
import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.intervals import reward_difference, student_t
from clawrl_gym.core.metrics import Metrics
from clawrl_gym.evaluate import main
from clawrl_gym.evaluation.run_pairs import compare_runs

TASKS = [f"t{n}" for n in range(40)]


def run_of(folder: Path, greedy: float, sampled: float | None, seed: int) -> Path:
    """A run that began with -1.03 in each task and ended near a mean."""
    folder.mkdir()
    metrics = Metrics(folder, "none", {})
    draw = np.random.default_rng(seed)
    for step, level in ((0, -1.03), (12, greedy)):
        noise = draw.normal(0, 0.1, len(TASKS)) * bool(step)
        rewards = dict(zip(TASKS, level + noise, strict=True))
        drawn = {} if sampled is None else dict.fromkeys(TASKS, sampled if step else -1.0)
        metrics.log_tasks(
            step, dict.fromkeys(TASKS, False), {"reward": rewards, "sampled_reward": drawn}
        )
    metrics.close()
    return folder


def test_a_control_that_drifts_as_well_takes_its_part_of_the_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "ours", 0.81, 0.79, 1)
    control = run_of(tmp_path / "shuffled", 0.41, -0.35, 2)
    assert main(["compare", str(run), str(control)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:16].strip() for line in lines] == [
        "greedy success", "greedy reward", "sampled reward",
    ]  # fmt: skip
    assert "ours -1.03 → 0.7" in lines[1]
    assert "shuffled -1.03 → 0.4" in lines[1]
    assert "sampled reward   ours -1 → 0.790, shuffled -1 → -0.350; difference +1.14" in lines[2]
    assert lines[0].endswith("n = 40, not distinguishable")
    (pair,) = compare_runs([run, control])
    greedy = pair.measures[1].difference
    assert greedy.is_clear
    assert greedy.mean == pytest.approx(0.4, abs=0.05)


def test_what_was_not_sampled_is_told_with_the_key_that_samples_it(tmp_path: Path) -> None:
    run, control = run_of(tmp_path / "a", 1.0, None, 1), run_of(tmp_path / "b", 1.0, None, 2)
    (pair,) = compare_runs([run, control])
    assert "sampled reward   not measured by both runs; eval.sampled=true" in pair.summary()


def test_runs_without_a_common_task_are_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", 1.0, None, 1)
    (tmp_path / "b").mkdir()
    metrics = Metrics(tmp_path / "b", "none", {})
    metrics.log_tasks(0, {"other": True}, {"reward": {"other": 1.0}})
    metrics.close()
    with pytest.raises(ConfigError, match="no held-out task in common"):
        compare_runs([run, tmp_path / "b"])
    with pytest.raises(ConfigError, match="expected a run and one or more controls"):
        compare_runs([run, run])


def test_the_interval_of_a_difference_follows_the_scale_of_the_rewards() -> None:
    """Beside Student's interval of paired differences, computed with numpy, which it
    approaches as the two imagined tasks weigh less; rewards ten times as large have one ten times
    as wide."""
    draw = np.random.default_rng(0)
    n = 4000
    before, after = draw.normal(0, 1, n), draw.normal(0.5, 1, n)
    names = [str(at) for at in range(n)]
    ours = reward_difference(dict(zip(names, before, strict=True)),
                             dict(zip(names, after, strict=True)))  # fmt: skip
    assert ours is not None
    differences = after - before
    half = student_t(n - 1) * differences.std(ddof=1) / np.sqrt(n)
    assert ours.mean == pytest.approx(differences.mean())
    assert ours.high - ours.mean == pytest.approx(half, rel=0.02)
    tenfold = reward_difference(dict(zip(names, 10 * before, strict=True)),
                                dict(zip(names, 10 * after, strict=True)))  # fmt: skip
    assert tenfold is not None
    assert tenfold.high - tenfold.mean == pytest.approx(10 * (ours.high - ours.mean))
    assert reward_difference({"a": 1.0}, {"b": 1.0}) is None
