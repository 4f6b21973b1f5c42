"""The comparison with trl: both sides get the same numbers, and its figures say what was put in."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.learning.arms import Place, measure_arm, read_result
from bench.learning.figures import beside_trl, curve_of, difference, lag, lags, table
from bench.learning.ground import Ground
from bench.learning.picture import write_curves, write_differences
from bench.learning.settings import ARMS, Settings, read_settings
from bench.learning.trl_arm import Rewards
from clawrl_gym.core.errors import ConfigError

SETTINGS = Settings(
    ground=("env=length",), policy="tiny", steps=12, groups=4, group_size=8, lr=5e-4,
    warmup_steps=2, rank=16, alpha=32, max_tokens=64, held_out=5, samples=2, threads=1,
)  # fmt: skip


def rising(update: float) -> float:
    return 1 / (1 + math.exp(5 - update))


def result(arm: str, seed: int, late: int = 0, held_out: float = 0.0) -> dict[str, Any]:
    """Training rewards that rise, the same for each prompt; held-out ones around a number."""
    tasks = [held_out + 0.1 * at for at in range(5)]
    return {
        "settings": SETTINGS.as_json(), "arm": arm, "seed": seed, "wall_s": 100.0, "cpu_s": 50.0,
        "peak_gib": 2.0 if arm == "trl" else 1.0,
        "training": {
            "rewards": [[[rising(update - late) + 0.01 * seed] * 8] * 4 for update in range(12)],
            "by_version": {str(version): rising(version) for version in range(12)},
            "policy_lag": [float(late)] * 12, "updates_s": 80.0,
        },
        "held_out": {"greedy": tasks, "sampled": [[one - 0.5, one + 0.5] for one in tasks]},
    }  # fmt: skip


RESULTS = {
    "ours": {seed: result("ours", seed, late=2, held_out=1.0) for seed in range(2)},
    "trl": {seed: result("trl", seed, held_out=1.0) for seed in range(2)},
    "ours-control": {seed: result("ours-control", seed) for seed in range(2)},
}


def test_every_arm_is_a_configuration_that_a_run_takes() -> None:
    for arm in ARMS:
        config = SETTINGS.config(arm, seed=3)
        assert config.seed == 3
        assert config.control == ("shuffled_rewards" if arm.endswith("-control") else "none")
        assert config.rollout.mode == ("sync" if "sync" in arm else "async")
        assert config.learner.adapter is not None
        assert (config.learner.adapter.rank, config.learner.adapter.alpha) == (16, 32)
    assert SETTINGS.config("ours-lag1").rollout.max_staleness == 1
    assert read_settings(json.dumps(SETTINGS.as_json())) == SETTINGS


def test_prompts_are_those_that_the_run_draws_and_rewards_are_its_environments() -> None:
    ground = Ground(SETTINGS.config())
    tasks = ground.train(3)
    assert tasks == Ground(SETTINGS.config()).train(3)
    assert {task.split for task in ground.held_out(5)} == {"heldout"}
    (message,) = ground.messages(tasks[0])
    asked = str(message["content"])
    length = int(asked.split()[-2])
    topic = asked.removeprefix("Tell me about ").partition(" in about")[0]
    right = topic.ljust(length, "x")
    assert ground.reward(tasks[0], right) == 1.0
    assert ground.reward(tasks[0], right[0]) < 0


@pytest.mark.parametrize(
    ("env", "wrong"),
    [("terminal", "whose action is the whole reply"), ("conversation", "expected one that ends")],
)
def test_what_has_more_than_one_reply_is_no_ground(env: str, wrong: str) -> None:
    settings = replace(SETTINGS, ground=(f"env={env}",))
    ground = Ground(settings.config())
    (task,) = ground.train(1)
    with pytest.raises(ConfigError, match=wrong):
        ground.reward(task, "ls")


def test_the_control_of_trl_permutes_within_groups_and_records_what_was_earned() -> None:
    ground = Ground(SETTINGS.config())
    rewards = Rewards(ground, ground.train(2), group_size=4)
    replies = [[{"role": "assistant", "content": "x" * length}] for length in (9, 20, 40, 80) * 2]
    tasks = [0] * 4 + [1] * 4
    true = rewards(replies, task=tasks)
    rewards.shuffled_by = random.Random(1)
    told = rewards(replies, task=tasks)
    assert rewards.given[0] == rewards.given[1] == [true[:4], true[4:]]
    assert told != true or len(set(true)) == 1
    assert sorted(told[:4]) == sorted(true[:4])


def test_a_curve_that_comes_two_updates_later_lags_two_updates() -> None:
    curve, reference = ([rising(at - late) for at in range(16)] for late in (2, 0))
    assert lag(curve, reference) == pytest.approx(2, abs=0.2)
    assert lag(reference, reference) == 0
    assert lag([0.0] * 16, reference) is None
    assert lag(reference, [0.5] * 16) is None


def test_the_lag_of_old_samples_is_told_apart_from_that_of_learning() -> None:
    found = lags(RESULTS)["ours"]
    assert found["by update"] == pytest.approx(2, abs=0.2)
    assert found["by weights that sampled"] == pytest.approx(0, abs=0.1)


def test_held_out_rewards_are_compared_with_the_control_by_seed_and_task() -> None:
    found = difference(RESULTS, "ours", "ours-control", "greedy")
    assert found is not None
    assert found.mean == pytest.approx(1.0)
    assert (found.seeds, found.tasks) == (2, 5)
    assert difference(RESULTS, "trl", "trl-control", "greedy") is None
    before = {"held_out": result("ours", 0)["held_out"]}
    rows = list(table(RESULTS, before))
    assert rows[2].startswith("| ours | 2 | 0.20 → 1.20 | +1.00 (")
    assert "| 2.00 | 100 s | 80 s | 50 s | 1.0 GiB |" in rows[2]
    assert "ours / trl: 1.00 of the wall time, 1.00 of the CPU seconds, 0.50 of the memory" in (
        list(beside_trl(RESULTS))
    )


def test_one_seed_has_an_interval_over_prompts_and_several_one_over_seeds() -> None:
    one = result("ours", 0)
    one["training"]["rewards"] = [[[0.0], [1.0], [0.5]]]
    curve = curve_of({0: one})
    assert curve.means == [0.5]
    assert curve.lows[0] < 0.5 < curve.highs[0]
    several = curve_of(RESULTS["ours"])
    assert several.highs[0] - several.means[0] == pytest.approx(12.7062 * 0.005, rel=1e-3)


def test_the_picture_has_a_line_for_each_seed_and_dashes_controls(tmp_path: Path) -> None:
    write_curves(RESULTS, tmp_path / "curves.svg", "A title")
    text = (tmp_path / "curves.svg").read_text()
    assert text.count('s-recipe7 line"') == len(RESULTS["ours"])
    assert text.count('s-recipe7 line dashed"') == len(RESULTS["ours-control"])
    assert text.count('s-recipe5 line"') == len(RESULTS["trl"])
    write_differences(RESULTS, tmp_path / "differences.svg", "A title")
    assert "+1.00 (" in (tmp_path / "differences.svg").read_text()


def test_a_finished_result_is_not_measured_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.result("ours", 0).write_text(json.dumps(RESULTS["ours"][0]))
    assert measure_arm(SETTINGS, "ours", 0, place, 1.0) == RESULTS["ours"][0]
    with pytest.raises(SystemExit, match=r"another lr: \[0.0005\], and now it is \[0.1\]"):
        read_result(place.result("ours", 0), replace(SETTINGS, lr=0.1))
