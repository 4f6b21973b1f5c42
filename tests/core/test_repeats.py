"""Like lines are told once and counted."""

from clawrl_gym.core.repeats import Repeats


def test_of_256_like_lines_one_is_told_and_the_others_are_counted() -> None:
    now_s, lines = 0.0, list[str]()
    repeats = Repeats(lines.append, every_s=30, clock=lambda: now_s)
    for number in range(256):
        repeats.add(
            f"env_error: session g{number:06d}-1-0-{number:08x} at http://127.0.0.1:8{number}"
        )
    repeats.add("env_error: another thing")
    assert lines == [
        "env_error: session g000000-1-0-00000000 at http://127.0.0.1:80",
        "env_error: another thing",
    ]
    now_s = 31.0
    repeats.flush_if_due()
    assert lines[2:] == [f"255 more like this in 31 s: {lines[0]}"]
    repeats.add("env_error: another thing")
    assert lines[3:] == ["env_error: another thing"]


def test_a_long_line_is_known_by_its_beginning() -> None:
    now_s, lines = 0.0, list[str]()
    repeats = Repeats(lines.append, every_s=1, clock=lambda: now_s)
    repeats.add("x" * 500)
    repeats.add("x" * 500)
    now_s = 2.0
    repeats.add("y")
    assert lines[1:] == [f"1 more like this in 2 s: {'x' * 120}...", "y"]
