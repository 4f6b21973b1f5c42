"""Draws a ViewState as one rich panel, for any width from 60 columns up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clawrl_gym.ui.judging import LABEL, judging_line, reading_line, teacher_line
from clawrl_gym.ui.sparkline import columns, spark
from clawrl_gym.ui.state import Phase, ViewState
from clawrl_gym.ui.text import duration, family_of, interval, number, share

_TALL = 32
"""Rows from which there is room for more than the necessary."""
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
COLOURS = {
    "serve": "dodger_blue1",
    "collect": "dark_cyan",
    "judge": "orange3",
    "train": "medium_purple1",
}
_CURVE_COLOURS = {
    "train/reward": "medium_purple1",
    "train/success": "dark_cyan",
    "heldout/success": "green3",
}

Form = Callable[[float], str]
_LOOP_ROWS: dict[str, list[tuple[str, str, Form]]] = {
    "serve": [
        ("policy/version", "version", number),
        ("rollout/tokens_per_s", "tokens/s", number),
        ("swap/pause_s", "last swap", duration),
    ],
    "collect": [
        ("rollout/in_flight", "in flight", number),
        ("rollout/episodes_per_s", "episodes/s", number),
        ("merge/share", "merged", share),
    ],
    "judge": [
        ("groups/ready", "groups ready", number),
        ("groups/zero_variance", "equal rewards", number),
        ("groups/dropped_stale", "too old", number),
    ],
    "train": [
        ("learner/loss", "loss", number),
        ("learner/tokens_per_s", "tokens/s", number),
        ("learner/grad_norm", "gradient", number),
    ],
}


def render(state: ViewState, width: int, height: int = 24) -> RenderableType:
    """The whole view; a tall terminal also shows success by family."""
    inner = max(40, width - 4)
    parts: list[RenderableType] = [_phases(state)]
    if state.curves:
        parts += [Text(), _curves(state, inner)]
    if height >= _TALL and any(family_of(name) for name in state.gauges):
        parts += [Text(), _families(state)]
    if state.gauges and (state.curves or state.first_step):
        parts += [Text(), _loops(state), *learning_lines(state.gauges), Text(), _health(state)]
    if height >= _TALL and state.reading is not None:
        parts += [Text(), reading_line(state.reading)]
    parts += [Text(), _progress(state, inner)]
    return Panel(
        Group(*parts), title=f"[bold default]{escape(state.title)}[/]", title_align="left",
        border_style="grey42", box=box.ROUNDED, padding=(0, 1), width=width,
    )  # fmt: skip


def spinner() -> str:
    return _SPINNER[int(time.monotonic() * 10) % len(_SPINNER)]


def _phases(state: ViewState) -> RenderableType:
    """Start-up as a list of ticks; once training, one line."""
    if not state.phases:
        return Text(f"{spinner()} starting", style="bold")
    if state.first_step is None and not state.closed:
        lines = [_phase_line(phase) for phase in state.phases[-10:]]
        waiting = [] if state.open_phases else [Text(f"{spinner()} running", style="bold")]
        return Group(*lines, *waiting)
    if state.closed:
        return _closing_line(state)
    line = Text(overflow="ellipsis", no_wrap=True)
    if not state.open_phases:
        line.append(f"{spinner()} ", style="bold").append("running  ", style="bold")
    for phase in state.open_phases:
        line.append(f"{spinner()} ", style="bold").append(phase.name, style="bold")
        line.append(f" {duration(phase.lasted_s())}  ", style=LABEL)
        line.append(f"{phase.detail}  " if phase.detail else "", style=LABEL)
    for phase in reversed([phase for phase in state.phases if phase.end_s is not None]):
        line.append("✓ ", style="green3")
        line.append(f"{phase.name} {duration(phase.lasted_s())}  ", style=LABEL)
    return line


def _closing_line(state: ViewState) -> Text:
    whole = state.step >= state.total_steps
    line = Text("✓ " if whole else "■ ", style="green3" if whole else "orange3")
    words = "done" if whole else f"stopped after {state.step} of {state.total_steps} updates,"
    line.append(f"{words} in {duration(state.elapsed_s())}", style="bold")
    start_up = [phase for phase in state.phases if phase.end_s is not None]
    longest = sorted(start_up, key=Phase.lasted_s, reverse=True)[:3]
    told = " · ".join(f"{phase.name} {duration(phase.lasted_s())}" for phase in longest)
    return line.append(f"  {told}", style=LABEL)


def _phase_line(phase: Phase) -> Text:
    line = Text(overflow="ellipsis", no_wrap=True)
    if phase.end_s is None:
        line.append(f"{spinner()} ", style="bold").append(f"{phase.name:<24}", style="bold")
    else:
        line.append("✓ ", style="green3").append(f"{phase.name:<24}")
    line.append(f"{duration(phase.lasted_s()):>7}", style=LABEL)
    return line.append(f"  {phase.detail}" if phase.detail else "", style=LABEL)


def _curves(state: ViewState, inner: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=LABEL, no_wrap=True, min_width=13)
    grid.add_column(justify="right", no_wrap=True, min_width=5)
    grid.add_column(no_wrap=True)
    width = max(16, inner - 28)
    for name, label in (("train/reward", "train reward"), ("train/success", "train success")):
        points = state.curves.get(name, [])
        if not points:
            continue
        low = min(0.0, *(y for _, y in points)) if len(points) > 1 else min(0.0, points[0][1])
        high = max(1.0, *(y for _, y in points)) if len(points) > 1 else max(1.0, points[0][1])
        top, bottom = spark(columns(points, width, state.total_steps), low, high, rows=2)
        value = number(points[-1][1]) if name == "train/reward" else share(points[-1][1])
        colour = _CURVE_COLOURS[name]
        grid.add_row("", "", Text(top, style=colour))
        grid.add_row(label, Text(value, style="bold"), Text(bottom, style=colour))
    if state.heldout:
        grid.add_row("held-out", *_heldout(state, width))
    return grid


def _heldout(state: ViewState, width: int) -> tuple[Text, Text]:
    first, last = state.heldout[0], state.heldout[-1]
    value = Text(share(last["heldout/success"]), style="bold green3")
    words = Text(no_wrap=True, overflow="ellipsis")
    if len(state.heldout) == 1:
        return value, words.append(f"before training{_spread(first)}", style=LABEL)
    words.append(f"{share(first['heldout/success'])} before ", style=LABEL).append("→ ")
    words.append(interval(last), style="green3")
    return value, words.append(f" at update {number(last['step'])}", style=LABEL)


def _spread(result: dict[str, float]) -> str:
    return interval(result).removeprefix(share(result["heldout/success"]))


def _families(state: ViewState) -> RenderableType:
    """Success by task family at its last update, as one block each."""
    line = Text("families      ", style=LABEL)
    for name, value in sorted(state.gauges.items()):
        family = family_of(name)
        if family is not None:
            block = spark([value], 0.0, 1.0)[0]
            line.append(f"{family}\u00a0", style="default").append(block, style="dark_cyan")
            line.append("  ")
    return line


def _loops(state: ViewState) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True, width=7)
    for _ in range(3):
        grid.add_column(no_wrap=True, ratio=1)
    for loop, fields in _LOOP_ROWS.items():
        cells = [cell(label, state.gauges.get(name), form) for name, label, form in fields]
        grid.add_row(Text(loop, style=f"bold {COLOURS[loop]}"), *cells)
    return grid


def learning_lines(gauges: Mapping[str, float]) -> list[Text]:
    """What judge and teacher did; nothing in a run that has neither."""
    return [line for line in (judging_line(gauges), teacher_line(gauges)) if line is not None]


def cell(label: str, value: float | None, form: Form) -> Text:
    cell = Text(f"{label} ", style=LABEL)
    return cell.append("-" if value is None else form(value), style="default")


def _health(state: ViewState) -> RenderableType:
    gauges = state.gauges
    line = Text()
    for label, mean, worst in (
        ("staleness", "staleness/mean", "staleness/max"),
        ("log-prob gap", "logprob_gap/mean", "logprob_gap/max"),
    ):
        line.append(f"{label} ", style=LABEL).append(number(gauges.get(mean)))
        line.append(f" (max {number(gauges.get(worst))})   ", style=LABEL)
    if "memory/rss_gb" in gauges:
        line.append("memory ", style=LABEL).append(f"{gauges['memory/rss_gb']:.1f} GiB")
    line.append("\n")
    errors = state.errors()
    line.append("errors ", style=LABEL)
    if not errors:
        return line.append("none", style="green3")
    words = ", ".join(f"{kind} {number(count)}" for kind, count in errors.items())
    return line.append(words, style="bold red3")


def _progress(state: ViewState, inner: int) -> RenderableType:
    left = state.left_s()
    finished = state.step >= state.total_steps
    tail = (
        "" if finished or state.closed else f" · {duration(left)} left" if left is not None else ""
    )
    words = f"{state.step}/{state.total_steps} updates · {duration(state.elapsed_s())}{tail}"
    bar = ProgressBar(
        total=max(1, state.total_steps), completed=state.step, width=max(8, inner - len(words) - 2),
        complete_style="medium_purple1", finished_style="green3",
    )  # fmt: skip
    grid = Table.grid(padding=(0, 2))
    grid.add_row(bar, Text(words, no_wrap=True))
    return grid
