"""An evaluation as pages of HTML: figures and all tasks on one, the episodes of each on its own.

Pages need nothing but each other; they can be made again from the folder at any time, also while
the evaluation is not over.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from clawrl_gym.config.part import leaf
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.intervals import Estimate
from clawrl_gym.core.types import Answer, StopReason
from clawrl_gym.evaluation.figures import Cost, EvaluationResult, TaskResult, success_of
from clawrl_gym.evaluation.record import Attempt
from clawrl_gym.ui import pages
from clawrl_gym.ui.svg import Series, line_chart
from clawrl_gym.ui.text import duration, in_words, number, share
from clawrl_gym.ui.transcripts import TranscriptMessage, transcript_message

PAGE_FILE = "evaluation.html"
TRANSCRIPTS = "transcripts"
"""Folder of a page a task."""
TEMPLATES = Path(__file__).resolve().parent
WIDE, NARROW = (1040, 300), (400, 260)
"""Sizes of a chart, for a screen and for a phone."""
_LONGEST_SLUG = 60


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """One reply, and what came back."""

    said: TranscriptMessage
    note: str
    next: list[TranscriptMessage]


def write_evaluation_page(result: EvaluationResult) -> Path:
    """The page and one for each task. Raises OSError."""
    folder = result.folder / TRANSCRIPTS
    folder.mkdir(parents=True, exist_ok=True)
    for task in result.tasks:
        replace_text(folder / page_name(task), render_task(result, task))
    path = result.folder / PAGE_FILE
    replace_text(path, render_page(result))
    return path


def render_page(result: EvaluationResult) -> str:
    return pages.render(
        "evaluation.html.j2",
        TEMPLATES,
        result=result,
        sentence=sentence_of(result),
        warning=warning_of(result),
        start=result.settings.starts[-1],
        facts=facts_of(result),
        passes=result.passes(),
        rewards=rewards_of(result),
        charts=[pass_chart([("", "heldout", result)], *size) for size in (WIDE, NARROW)],
        families={name: success_of(tasks) for name, tasks in result.families().items()},
        scores=result.scores(),
        tasks=sorted(result.tasks, key=_rank),
        outcome=outcome_of,
        link=lambda task: f"{TRANSCRIPTS}/{page_name(task)}",
        in_words=in_words,
        cost_words=cost_words,
        number=number,
        duration=duration,
        made=time.strftime("%Y-%m-%d %H:%M"),
    )


def render_task(result: EvaluationResult, task: TaskResult) -> str:
    greedy = [task.greedy] if task.greedy else []
    return pages.render(
        "task.html.j2",
        TEMPLATES,
        result=result,
        task=task,
        attempts=[*greedy, *sorted(task.shown, key=lambda attempt: attempt.sample or 0)],
        answers=answers_of,
        opening=opening_of,
        title=attempt_title,
        outcome=attempt_outcome,
        hidden=len(task.samples) - len(task.shown),
        cost_words=cost_words,
        page=PAGE_FILE,
    )


def page_name(task: TaskResult) -> str:
    """A file's name for a task, whatever its id, the same in every evaluation."""
    slug = re.sub(r"[^\w.-]+", "-", task.name).strip("-.")[:_LONGEST_SLUG]
    digest = hashlib.sha256(repr(task.key).encode()).hexdigest()[:8]
    return f"{slug or 'task'}-{digest}.html"


def sentence_of(result: EvaluationResult) -> str:
    """The result in one line."""
    n = len(result.measured)
    if not n:
        return "No task has been measured yet."
    return f"{result.policy} solves {in_words(result.success)} of {n} tasks of env={result.env}."


def warning_of(result: EvaluationResult) -> str | None:
    """A warning that a reader of the figures needs; None without one."""
    parts = []
    if not result.is_complete:
        missing = f"{result.waiting} of {result.settings.episodes} episodes are missing"
        parts.append(f"Not complete: {missing}.")
    if result.lost:
        parts.append(
            f"{len(result.lost)} tasks were lost to infrastructure: they are in no share, and the "
            "interval of success goes from all of them failed to all solved."
        )
    elif result.is_complete and result.waiting:
        parts.append(f"{result.waiting} samples were lost to infrastructure: they are in no share.")
    cost = result.cost
    if cost.uncounted:
        parts.append(f"The server did not count the tokens of {cost.uncounted} replies.")
    if result.settings.regraded_from:
        parts.append(f"Graded again, from the episodes of {result.settings.regraded_from}.")
    return " ".join(parts) or None


def rewards_of(result: EvaluationResult) -> list[tuple[str, Estimate]]:
    """Mean rewards by name, as far as they are known."""
    rewards = [("reward", result.reward), ("sampled reward", result.sampled_reward)]
    return [(name, estimate) for name, estimate in rewards if estimate.n]


def facts_of(result: EvaluationResult) -> list[tuple[str, str]]:
    """The small print under the headline."""
    config, start = result.settings.config, result.settings.starts[-1]
    machine = start.get("machine", {})
    rows = [
        ("policy", result.policy),
        ("environment", result.env),
        ("split", leaf(config, "split")),
        ("temperature", f"{leaf(config, 'eval.temperature')} (greedy episodes)"),
        ("samples of each task", result.samples or None),
        ("turns, at most", leaf(config, "env.max_turns")),
        ("weights", result.settings.weights),
        ("processor", machine.get("cpu")),
        ("commit", start.get("commit")),
        ("starts", len(result.settings.starts) if len(result.settings.starts) > 1 else None),
        ("cost", cost_words(result.cost)),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def cost_words(cost: Cost) -> str:
    """`12,345 prompt and 678 completion tokens in 360 replies, 0.8 s an episode`."""
    tokens = (
        f"{cost.prompt_tokens:,} prompt and {cost.completion_tokens:,} completion tokens in "
        f"{cost.answers:,} replies"
    )
    if cost.uncounted:
        counted = cost.answers - cost.uncounted
        tokens = tokens if counted else f"tokens unknown in {cost.answers:,} replies"
        tokens += f" ({cost.uncounted:,} of them not counted)" if counted else ""
    return f"{tokens}, {duration(cost.seconds / max(1, cost.attempts))} an episode"


def pass_chart(curves: list[tuple[str, str, EvaluationResult]], width: int, height: int) -> Markup:
    """pass@k by the power of two that k is; empty without samples. Curves: name, colour, result."""
    series = []
    for name, colour, result in curves:
        passes = {k: estimate for k, estimate in result.passes().items() if k & (k - 1) == 0}
        points = [(float(k.bit_length() - 1), one.value) for k, one in passes.items()]
        bars = [(float(k.bit_length() - 1), one.low, one.high) for k, one in passes.items()]
        series.append(Series(name or "pass@k", colour, points, bars))
    if max((len(one.points) for one in series), default=0) < 2:
        return Markup("")
    return line_chart(
        series, width=width, height=height, y_range=(0.0, 1.0), form=share,
        x_label="log2 k", label="pass@k by k",
    )  # fmt: skip


def outcome_of(attempt: Attempt | None) -> tuple[str, str]:
    """A class and a word for the greedy episode of a task."""
    if attempt is None:
        return "bad", "lost"
    episode = attempt.episode
    if episode.success:
        return "good", "✓ solved"
    if episode.stop_reason is StopReason.DEADLINE:
        return "bad", "✗ deadline"
    return "bad", "✗ failed" if not episode.reward else f"✗ {number(episode.reward)}"


def attempt_title(attempt: Attempt) -> str:
    return "greedy" if attempt.sample is None else f"sample {attempt.sample + 1}"


def attempt_outcome(attempt: Attempt) -> str:
    """The end of an attempt, in words."""
    episode = attempt.episode
    words = [
        f"reward {number(episode.reward)}", episode.stop_reason.value,
        f"{episode.turns} turn{'' if episode.turns == 1 else 's'}", duration(episode.duration_s),
    ]  # fmt: skip
    words += [f"{name} {number(value)}" for name, value in episode.scores.items()]
    return ", ".join(words)


def opening_of(attempt: Attempt) -> list[TranscriptMessage]:
    transcript = attempt.episode.transcript
    return [] if transcript is None else [transcript_message(one) for one in transcript.opening]


def answers_of(attempt: Attempt) -> Iterator[ShownAnswer]:
    """Every reply with what it cost and what came back, the report of the checks at the end."""
    transcript = attempt.episode.transcript
    if transcript is None:
        return
    for number_, answer in enumerate(transcript.answers, 1):
        came = [
            transcript_message({"role": "came back", "content": text})
            for text in transcript.observations[number_ : number_ + 1]
        ]
        if number_ == len(transcript.answers) and transcript.report:
            came.append(transcript_message({"role": "report", "content": transcript.report}))
        yield ShownAnswer(transcript_message(answer.message), _note(answer), came)


def _note(answer: Answer) -> str:
    words = []
    if answer.prompt_tokens is not None:
        words.append(f"{answer.prompt_tokens:,} + {answer.completion_tokens:,} tokens")
    if answer.duration_s:
        words.append(duration(answer.duration_s))
    if answer.finish_reason not in (None, "stop", "tool_calls"):
        words.append(f"ended by {answer.finish_reason}")
    if answer.action is None:
        words.append("no action was found in it")
    return ", ".join(words)


def _rank(task: TaskResult) -> tuple[int, str]:
    """Lost tasks first, then failed ones."""
    return (0 if task.greedy is None else 2 if task.solved else 1, task.name)
