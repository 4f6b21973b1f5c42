"""The view of a serving run: lines without what was said, a panel of any width."""

import io
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Message, Turn, Verdict, VerdictDetail
from clawrl_gym.ui.serving import SERVING
from clawrl_gym.ui.state import RunState
from clawrl_gym.ui.view import LineView, LiveView, make_view

CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def turn(index: int = 0, session: str = "s1", **changes: object) -> Turn:
    values = {
        "session_id": session, "index": index, "kind": "main", "prompt_ids_T": [1, 2, 3],
        "sampled_ids_T": [4, 5], "logprobs_T": [-1.0, -1.0], "versions_T": [3, 4],
        "finish_reason": "stop", "messages": [{"role": "user", "content": "a secret wish"}],
        "reply": Message(role="assistant", content="a secret reply"), "created_s": 0.0,
        "id": index + 1,
    } | changes  # fmt: skip
    return Turn(**values)  # type: ignore[arg-type]


def verdict(value: int | None, turn_id: int = 1) -> Verdict:
    reward = None if value is None else float(value)
    why = {"rule": "a correction", "said": "a secret"}
    return Verdict(turn_id, "rule", value, reward, why, 0.0)  # type: ignore[arg-type]


def test_lines_name_what_happened_and_keep_what_was_said_to_themselves() -> None:
    out = io.StringIO()
    view = LineView(out, SERVING, title="runs/serve")
    view.turn(turn())
    view.turn(turn(1, kind="side", rule="heartbeat", versions_T=[-1, -1]))
    view.turn(turn(2, reply={"role": "assistant", "content": None, "tool_calls": [CALL]}))
    view.verdict(verdict(-1))
    view.verdict(verdict(None))
    view.step(5, {"batch/samples": 8, "learner/loss": 0.25, "swap/pause_s": 0.08})
    lines = out.getvalue().splitlines()
    assert lines[1:] == [
        "turn s1#0  main  3 + 2 tokens  v3-4",
        "turn s1#1  side (heartbeat)  3 + 2 tokens  ",
        "turn s1#2  main  3 + 2 tokens  v3-4  read()",
        "verdict on turn 1: -  rule  a correction",
        "verdict on turn 1: ?  rule  a correction",
        "update 5: 8 turns  loss 0.250  step 0.00 s  swap 0.08 s",
    ]
    assert "secret" not in out.getvalue()


def test_a_models_verdict_is_told_by_its_votes_and_the_number_of_hints() -> None:
    out = io.StringIO()
    view = LineView(out, SERVING, title="runs/serve")
    why: VerdictDetail = {"votes": [1, -1, -1, None], "rule": -1, "hints": ["a secret"]}
    view.verdict(Verdict(4, "model", -1, -1.0, why, 0.0))
    view.step(2, {"batch/samples": 1, "learner/loss": 0.5, "teacher/gap_mean": -0.25})
    assert out.getvalue().splitlines()[1:] == [
        "verdict on turn 4: -  model  votes +1 -1 -1 ?  1 hint",
        "update 2: 1 turns  loss 0.500  teacher gap -0.250  step 0.00 s  swap 0.00 s",
    ]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_panel_shows_the_newest_hint_and_the_pieces_that_were_taught(width: int) -> None:
    state = RunState("runs/serve")
    state.take_turn(turn())
    for words in ("an older hint", "[bold]Look\x1b[31m first.\n" + "Slowly. " * 40):
        state.take_verdict(Verdict(1, "model", None, None, {"hints": [words]}, 0.0))
    state.take({"judge/hinted": 1.0, "verdicts/abstained": 2, "teacher/gap_mean": 0.5})
    state.reading = (3, [("read", -1.0)])
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(SERVING.panel(state, width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    assert "newest hint s1 [bold]Look  first. Slowly." in text
    assert "an older hint" not in text
    assert "abstained 2  hints 100 %" in text
    assert "teacher gap +0.500" in text
    assert "update 3 taught read" in text


def test_the_panel_says_how_long_it_serves_and_names_its_columns() -> None:
    state = RunState("runs/serve")
    state.take_turn(turn())
    console = Console(width=100, file=io.StringIO(), force_terminal=False)
    console.print(SERVING.panel(state, 100))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"serving for \d", text)
    assert re.search(r"session +turns +ago +verdicts +said", text)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_panel_fits_any_width_and_shows_foreign_text_as_text(width: int) -> None:
    state = RunState("[red]runs/serve")
    state.begin("vLLM", "loading")
    for number in range(12):
        message: Message = {"role": "user", "content": f"[bold]hello[/bold] \x1b[31m{number}"}
        state.take_turn(turn(0, f"session-{number}", messages=[message], id=number))
        state.take_verdict(verdict((1, 0, -1, None)[number % 4], number))
    state.take({"policy/version": 7, "ready/flush_s": math.nan})
    state.take_step(7, {"learner/loss": 0.1})
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(SERVING.panel(state, width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    assert "session-11" in text
    assert "session-3 " not in text, "only the newest sessions are shown"
    assert "\x1b" not in text
    if width == 160:
        assert "[bold]hello[/bold]" in text


def test_the_live_view_takes_everything_and_closes_twice() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    view = LiveView(console, SERVING, title="runs/serve")
    view.phase("vLLM", "ready")
    view.turn(turn())
    view.verdict(verdict(1))
    view.update({"sessions/open": 1})
    view.step(1, {"learner/loss": 0.2})
    view.message("something \x1b[2J")
    view.close()
    view.close()
    assert "s1" in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_unknown_kind_of_view_is_told() -> None:
    with pytest.raises(ConfigError, match="got ui='loud'"):
        make_view("loud", SERVING, title="x")


def panel_of(state: RunState, width: int = 100) -> str:
    out = io.StringIO()
    Console(width=width, file=out, force_terminal=False).print(SERVING.panel(state, width))
    return out.getvalue()


def test_what_is_due_counts_down_to_now() -> None:
    state = RunState("runs/serve")
    for left_s, words in ((14.2, "14 s"), (0.14, "1 s"), (-3.0, "now")):
        state.take({"ready/flush_s": left_s})
        assert f"next update {words}" in panel_of(state)
    state.take({"ready/flush_s": math.nan})
    assert "next update -" in panel_of(state)


def test_a_persons_correction_is_the_newest_hint() -> None:
    state = RunState("runs/serve")
    state.take_turn(turn())
    state.take_verdict(Verdict(1, "model", -1, -1.0, {"hints": ["Look first."]}, 0.0))
    state.take_verdict(Verdict(1, "feedback", -1, -1.0, {"text": "Say it\nshorter."}, 0.0))
    state.take_verdict(verdict(1))
    assert "newest hint s1 Say it shorter." in panel_of(state)


def test_of_a_long_run_the_newest_sessions_and_turns_are_kept() -> None:
    state = RunState("runs/serve")
    for index in range(1003):
        state.take_turn(replace(turn(index, session=f"s{index}"), id=index))
    assert list(state.sessions) == [f"s{index}" for index in range(995, 1003)]
    assert list(state.session_of_turn) == list(range(3, 1003))
    for value in [1] * 30:
        state.take_verdict(verdict(value, 1002))
    assert len(state.sessions["s1002"].verdicts) == 24
