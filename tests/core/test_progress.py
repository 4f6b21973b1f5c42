"""How far long work is, told now and then."""

from __future__ import annotations

from clawrl_gym.core.progress import NowAndThen


def test_something_is_said_at_once_and_then_once_in_so_many_seconds() -> None:
    said: list[str] = []
    now_s = 100.0
    tell = NowAndThen(said.append, 10.0, lambda: now_s)
    tell("at once")
    for now_s in (109.0, 110.0, 119.0, 121.0):
        tell(f"at {now_s:g}")
    assert said == ["at once", "at 110", "at 121"]


def test_what_is_left_takes_as_long_as_what_is_done() -> None:
    now_s = 0.0
    tell = NowAndThen(print, clock_s=lambda: now_s)
    assert tell.left(0, 8) == ""
    now_s = 26.0
    assert tell.left(2, 8) == ", left 1:18"
    assert tell.left(9, 8) == ", left 0:00"
