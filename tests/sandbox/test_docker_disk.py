"""When containers are looked at for what they write, where the engine does not limit it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker.disk import WatchedContainer, due
from tests.support.fake_engine import without_engines


def watched(name: str, cost_s: float = 0.002, **state: bool) -> WatchedContainer:
    return WatchedContainer(name, 1 << 20, lambda _: None, looked_s=100.0, cost_s=cost_s, **state)


def looked_at(entries: list[WatchedContainer], now_s: float) -> list[str]:
    return [one.container for one in due(entries, now_s)]


def test_a_container_pays_for_its_own_looks_alone() -> None:
    """However many run beside it: it was looked at every ten seconds beside fifteen others."""
    others = [watched(str(number), 0.06, running=True) for number in range(15)]
    light, heavy = watched("light", running=True), watched("heavy", 0.5, running=True)
    assert looked_at([*others, light, heavy], 100.41) == ["light"]
    assert len(looked_at([*others, light, heavy], 100.61)) == 16
    assert looked_at([heavy], 105.1) == ["heavy"]


def test_where_something_runs_or_ran_comes_first_and_the_rest_every_ten_seconds() -> None:
    entries = [watched("idle"), watched("ran", dirty=True), watched("runs", running=True)]
    assert looked_at(entries, 100.3) == []
    assert looked_at(entries, 100.5) == ["ran", "runs"]
    assert looked_at(entries, 110.1) == ["ran", "runs", "idle"]
    assert looked_at([watched("idle and heavy", 2.0)], 110.1) == []


def test_a_look_that_fails_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_engines(tmp_path, monkeypatch)
    ending = WatchedContainer("ending", 1 << 20, lambda _: None, running=True, dirty=True)
    with pytest.raises(SandboxError):
        ending.look()
    assert not ending.is_due(ending.looked_s + 0.3)
