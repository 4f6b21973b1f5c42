"""Which checkpoints stay: by age, within a quota, and what is pinned."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.files.whole_folder import link_folder
from clawrl_gym.inference.weights.checkpoints import list_checkpoints
from clawrl_gym.trainers.versions.retention import (
    Kept,
    Retention,
    kept_by_age,
    pin,
    read_pins,
    unpin,
)

NOON_S = time.mktime((2026, 3, 12, 12, 0, 0, 0, 0, -1))
DAY_S = 86_400.0


def made(*ages_s: float, size: int = 1) -> list[Kept]:
    """Versions 1, 2, ... by age, the oldest first."""
    ages = sorted(ages_s, reverse=True)
    return [Kept(version, NOON_S - age, size) for version, age in enumerate(ages, 1)]


def test_all_of_today_one_a_day_and_one_a_week_stay() -> None:
    hours = [3600.0 * n for n in range(5)]
    yesterday = [DAY_S + 3600.0 * n for n in range(3)]
    weeks = [21 * DAY_S, 22 * DAY_S, 23 * DAY_S, 40 * DAY_S]
    ages = sorted(hours + yesterday + weeks, reverse=True)
    kept = kept_by_age(made(*ages), NOON_S, 1 << 40)
    left = [ages[version - 1] / DAY_S for version in kept]
    assert left[-5:] == [age / DAY_S for age in hours[::-1]]
    assert left[-6] == 1.0, "the last of yesterday"
    assert 40.0 in left
    assert len([age for age in left if 20 < age < 24]) <= 2


def test_many_updates_within_a_minute_push_no_older_version_out() -> None:
    good = [DAY_S * n for n in range(1, 8)]
    flood = [60.0 - n for n in range(50)]
    everything = made(*good, *flood)
    kept = kept_by_age(everything, NOON_S, 12)
    assert len(kept) == 12
    assert kept[:7] == list(range(1, 8)), "each good day has one left"
    assert kept[-2:] == [56, 57]


def test_pinned_and_newest_ones_stay_whatever_the_quota() -> None:
    assert kept_by_age(made(*range(100, 0, -1)), NOON_S, 0, pinned=[3, 50]) == [3, 50, 99, 100]


@given(
    st.lists(st.floats(0, 400 * DAY_S), max_size=60),
    st.integers(0, 70),
    st.sets(st.integers(1, 60), max_size=5),
)
def test_the_quota_holds_but_for_what_stays_in_any_case(
    ages: list[float], quota: int, pinned: set[int]
) -> None:
    everything = made(*ages)
    kept = kept_by_age(everything, NOON_S, quota, pinned)
    present = {one.version for one in everything}
    fixed = (pinned & present) | set(sorted(present)[-2:])
    assert fixed <= set(kept) <= present
    assert len(kept) <= max(quota, len(fixed))


def checkpoints(folder: Path, ages_s: dict[int, float], kilobytes: int = 1) -> Path:
    now_s = time.time()
    for version, age_s in ages_s.items():
        place = folder / f"{version:06d}"
        place.mkdir(parents=True)
        (place / "weights").write_bytes(bytes(1024 * kilobytes))
        os.utime(place, (now_s - age_s, now_s - age_s))
    return folder


def test_pruning_by_age_leaves_pins_and_what_is_wanted(tmp_path: Path) -> None:
    ages = {version: 3600.0 * 24 * (60 - version) for version in range(1, 61)}
    folder = checkpoints(tmp_path, ages)
    pin(folder, "good", 2)
    Retention(LearnerConfig(keep_checkpoints="by_age"), folder).prune([5])
    left = list(list_checkpoints(folder))
    assert {2, 5, 53, 54, 55, 56, 57, 58, 59, 60} <= set(left)
    assert len(left) < 25


def test_linked_checkpoints_take_no_room_of_the_quota(tmp_path: Path) -> None:
    folder = checkpoints(tmp_path, {1: 30.0}, kilobytes=700)
    for version in range(2, 9):
        link_folder(folder / "000001", folder / f"{version:06d}")
    Retention(LearnerConfig(keep_checkpoints="by_age", keep_gb=1 / 1024), folder).prune([])
    assert list(list_checkpoints(folder)) == list(range(1, 9))


@pytest.mark.parametrize("keep", [2, "auto", "by_age"])
def test_what_is_pinned_stays_by_every_rule_until_it_is_let_go(tmp_path: Path, keep: str) -> None:
    folder = checkpoints(tmp_path, dict.fromkeys(range(1, 21), 0.0))
    config = LearnerConfig.model_validate({"keep_checkpoints": keep, "keep_gb": 1e-6})
    pin(folder, "first", 1)
    Retention(config, folder).prune([])
    assert 1 in list_checkpoints(folder)
    unpin(folder, "first")
    Retention(config, folder).prune([])
    assert 1 not in list_checkpoints(folder)


@pytest.mark.parametrize(
    "name", ["", "1", "12", "-a", "a b", "a/b", "../x", ".", "a" * 65, "ä", "a\n", " good", "a:b"]
)
def test_names_that_cannot_be_one_are_refused(tmp_path: Path, name: str) -> None:
    checkpoints(tmp_path, {1: 0.0})
    with pytest.raises(ConfigError, match="expected a letter"):
        pin(tmp_path, name, 1)


def test_a_name_means_the_version_it_was_given_last_and_comes_last(tmp_path: Path) -> None:
    checkpoints(tmp_path, {1: 0.0, 2: 0.0})
    pin(tmp_path, "good", 1)
    pin(tmp_path, "start", 0)
    pin(tmp_path, "good", 2)
    assert list(read_pins(tmp_path).items()) == [("start", 0), ("good", 2)]
    with pytest.raises(ConfigError, match="version 7, expected one that is kept: 0, 1, 2"):
        pin(tmp_path, "good", 7)
    with pytest.raises(ConfigError, match="'bad', expected one that is pinned: start, good"):
        unpin(tmp_path, "bad")


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"good": "x"}', '{"good": null}', "null"])
def test_a_file_of_pins_that_cannot_be_read_is_told_and_nothing_is_deleted(
    tmp_path: Path, text: str
) -> None:
    folder = checkpoints(tmp_path, dict.fromkeys(range(1, 9), 0.0))
    (folder / "pins.json").write_text(text)
    with pytest.raises(StoreError, match=r"cannot read .*pins\.json"):
        Retention(LearnerConfig(keep_checkpoints=2), folder).prune([])
    assert len(list_checkpoints(folder)) == 8
