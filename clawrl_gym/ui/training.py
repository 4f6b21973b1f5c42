"""Layout of a training run: start-up, curves, the four loops, its health, the rest of its way."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clawrl_gym.core.metrics import HELDOUT_REWARD, HELDOUT_SUCCESS, LEFT_S, NO_GRADIENT
from clawrl_gym.ui.judging import LABEL, reading_line
from clawrl_gym.ui.panel import Gauge, ViewLayout, learning_lines, loop_table, spinner
from clawrl_gym.ui.sparkline import columns, spark
from clawrl_gym.ui.state import RunPhase, RunState
from clawrl_gym.ui.text import (
    HELDOUT_PREFIX,
    age,
    duration,
    envs_in,
    family_of,
    interval,
    measured_versions,
    number,
    pass_rates,
    reward_words,
    sampled_words,
    scores,
    share,
)

_SHORTEST_BAR = 10
_TALL = 32
"""Rows from which there is room for more than the necessary."""
_CURVE_COLOURS = {"train/reward": "medium_purple1", "train/success": "dark_cyan"}
_LOOPS: dict[str, list[Gauge]] = {
    "serve": [
        ("policy/version", "version", number),
        ("rollout/tokens_per_s", "tokens/s", number),
        ("swap/pause_s", "last swap", duration),
    ],
    "collect": [
        ("rollout/in_flight", "in flight", number),
        ("rollout/in_flight_limit", "at most", number),
        ("rollout/episodes_per_s", "episodes/s", number),
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
_STEP_GAUGES: tuple[Gauge, ...] = (
    ("train/reward", "reward", number),
    ("train/success", "success", share),
    ("learner/loss", "loss", number),
    ("logprob_gap/mean", "gap", number),
    ("judge/mean", "verdict", number),
    ("judge/abstained", "abstained", share),
    ("judge/hinted", "hints", share),
    ("teacher/gap_mean", "teacher gap", number),
    ("staleness/mean", "stale", number),
    ("rollout/tokens_per_s", "tokens/s", number),
    ("rollout/episodes_per_s", "episodes/s", number),
    (LEFT_S, "left", duration),
)

_OF_A_GRADIENT = ("learner/loss", "logprob_gap/mean", "teacher/gap_mean")


def _sections(state: RunState, width: int, height: int) -> list[RenderableType]:
    """The panel; a tall terminal also shows success by family."""
    inner = max(20, width - 4)
    sections: list[RenderableType] = [_phases(state)]
    if state.curves:
        sections += [Text(), _curves(state, inner)]
    if envs_in(state.gauges, "train/success"):
        sections += [Text(), _envs(state)]
    if height >= _TALL and any(family_of(name) for name in state.gauges):
        sections += [Text(), _families(state)]
    if state.gauges and (state.curves or state.first_step):
        sections += [Text(), loop_table(_LOOPS, state.gauges, width)]
        sections += [*learning_lines(state.gauges), Text(), _health(state)]
        sections += [_failures(state)] if state.failures() else []
    if height >= _TALL and state.reading is not None:
        sections += [Text(), reading_line(state.reading)]
    return [*sections, Text(), _progress(state, inner)]


def _phases(state: RunState) -> RenderableType:
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


def _closing_line(state: RunState) -> Text:
    total_steps = state.total_steps or 0
    complete = state.step >= total_steps
    line = Text("✓ " if complete else "■ ", style="green3" if complete else "orange3")
    words = "done" if complete else f"stopped after {state.step} of {total_steps} updates,"
    line.append(f"{words} in {duration(state.elapsed_s())}", style="bold")
    ended = [phase for phase in state.phases if phase.end_s is not None]
    longest = sorted(ended, key=RunPhase.lasted_s, reverse=True)[:3]
    durations = " · ".join(f"{phase.name} {duration(phase.lasted_s())}" for phase in longest)
    return line.append(f"  {durations}", style=LABEL)


def _phase_line(phase: RunPhase) -> Text:
    line = Text(overflow="ellipsis", no_wrap=True)
    if phase.end_s is None:
        line.append(f"{spinner()} ", style="bold").append(f"{phase.name:<24}", style="bold")
    else:
        line.append("✓ ", style="green3").append(f"{phase.name:<24}")
    line.append(f"{duration(phase.lasted_s()):>7}", style=LABEL)
    return line.append(f"  {phase.detail}" if phase.detail else "", style=LABEL)


def _curves(state: RunState, inner: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=LABEL, no_wrap=True, min_width=13)
    grid.add_column(justify="right", no_wrap=True, min_width=5)
    grid.add_column(no_wrap=True, max_width=max(8, inner - 22))
    width = max(8, inner - 28)
    for name, label, form in (
        ("train/reward", "train reward", number),
        ("train/success", "train success", share),
    ):
        points = state.curves.get(name, [])
        if not points:
            continue
        values = [y for _, y in points]
        line = columns(points, width, state.total_steps or 0)
        top, bottom = spark(line, min(0.0, *values, 0.0), max(1.0, *values, 1.0), rows=2)
        colour = _CURVE_COLOURS[name]
        grid.add_row("", "", Text(top, style=colour))
        grid.add_row(label, Text(form(values[-1]), style="bold"), Text(bottom, style=colour))
    if state.heldout:
        grid.add_row("held-out", *_heldout(state))
        rewards = _heldout_rewards(state)
        if rewards is not None:
            grid.add_row("held-out reward", *rewards)
    return grid


def _heldout(state: RunState) -> tuple[Text, Text]:
    first, last = state.heldout[0], state.heldout[-1]
    value = Text(share(last[HELDOUT_SUCCESS]), style="bold green3")
    words = Text(no_wrap=True, overflow="ellipsis")
    if len(state.heldout) == 1:
        spread = interval(first).removeprefix(share(first[HELDOUT_SUCCESS]))
        return value, words.append(f"before training{spread}", style=LABEL)
    words.append(f"{share(first[HELDOUT_SUCCESS])} before ", style=LABEL).append("→ ")
    words.append(interval(last), style="green3")
    return value, words.append(f" at update {number(last['step'])}", style=LABEL)


def _heldout_rewards(state: RunState) -> tuple[Text, Text] | None:
    """The newest mean reward, and what it was before; None where it is not known."""
    known = [row for row in state.heldout if HELDOUT_REWARD in row]
    if not known:
        return None
    first, last = known[0], known[-1]
    value = number(last[HELDOUT_REWARD])
    words = Text(no_wrap=True, overflow="ellipsis")
    if len(known) > 1:
        words.append(f"{number(first[HELDOUT_REWARD])} before ", style=LABEL).append("→ ")
    spread = reward_words(last).removeprefix("reward ")
    return Text(value, style="bold green3"), words.append(spread, style="green3")


def _envs(state: RunState) -> RenderableType:
    """Success in each environment of a mixture: in training, and on held-out tasks."""
    heldout = envs_in(state.gauges, HELDOUT_SUCCESS)
    line = Text("environments  ", style=LABEL)
    for name, success in envs_in(state.gauges, "train/success").items():
        line.append(f"{name}\u00a0", style="default").append(share(success), style="dark_cyan")
        if name in heldout:
            line.append("\u00a0held-out\u00a0", style=LABEL)
            line.append(share(heldout[name]), style="green3")
        line.append("  ")
    return line


def _families(state: RunState) -> RenderableType:
    """Success by task family at its last update, as one block each."""
    line = Text("families      ", style=LABEL)
    for name, value in sorted(state.gauges.items()):
        family = family_of(name)
        if family is not None:
            block = spark([value], 0.0, 1.0)[0]
            line.append(f"{family}\u00a0", style="default").append(block, style="dark_cyan")
            line.append("  ")
    return line


def _health(state: RunState) -> RenderableType:
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


def _failures(state: RunState) -> Text:
    """Episodes that the agent itself ended without a grade."""
    words = ", ".join(f"{kind} {number(count)}" for kind, count in state.failures().items())
    return Text("ended by the agent ", style=LABEL).append(words, style="orange3")


def _progress(state: RunState, inner: int) -> RenderableType:
    total_steps, left_s = state.total_steps or 0, state.left_s()
    fields = [f"{state.step}/{total_steps} updates", duration(state.elapsed_s())]
    if not state.closed and state.update_age_s is not None:
        fields[0] += f", {age(state.update_age_s)} ago"
    if not state.closed and left_s is not None:
        fields.append(f"{age(left_s)} left")
    elif not state.closed and state.is_late:
        fields.append("late")
    words = " · ".join(fields)
    if len(words) + _SHORTEST_BAR > inner:
        return Text(words)
    bar = ProgressBar(
        total=max(1, total_steps), completed=state.step, width=max(8, inner - len(words) - 2),
        complete_style="medium_purple1", finished_style="green3",
    )  # fmt: skip
    grid = Table.grid(padding=(0, 2))
    grid.add_row(bar, Text(words, no_wrap=True))
    return grid


def _step_lines(state: RunState, step: int, values: Mapping[str, float]) -> list[str]:
    """One line for the update, one for a held-out result."""
    gauges = {**state.gauges, LEFT_S: state.left_s()}
    if NO_GRADIENT in values:  # those of the update before say nothing of this one
        gauges |= dict.fromkeys(_OF_A_GRADIENT, None)
    lines = []
    if any(not name.startswith((HELDOUT_PREFIX, "policy/")) for name in values):
        fields = [
            f"{label} {form(value)}"
            for name, label, form in _STEP_GAUGES
            if (value := gauges.get(name)) is not None
        ]
        if NO_GRADIENT in values:
            fields.append("no gradient")
        lines.append("  ".join([f"step {step}/{state.total_steps}", *fields]))
    if HELDOUT_SUCCESS in values:
        fields = [f"{name} {share(v)}" for name, v in envs_in(values, HELDOUT_SUCCESS).items()]
        fields += [f"{name} {number(value)}" for name, value in scores(values).items()]
        result = f"held-out after {step} updates: {interval(values)}"
        more = [reward_words(values), pass_rates(values), measured_versions(step, values)]
        lines.append("  ".join([result, *filter(None, more), *fields]))
        sampled = sampled_words(values)
        lines += [f"  sampled after {step} updates: {sampled}"] if sampled else []
    return lines


TRAINING = ViewLayout(_sections, _step_lines)
