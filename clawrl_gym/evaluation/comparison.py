"""Several evaluations of the same tasks on one page: figures, differences, tasks that flipped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from markupsafe import Markup

from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.intervals import Difference
from clawrl_gym.core.provenance import describe_start
from clawrl_gym.evaluation.figures import EvaluationResult, TaskResult, data_of, read_result
from clawrl_gym.evaluation.page import (
    NARROW,
    PAGE_FILE,
    TEMPLATES,
    TRANSCRIPTS,
    WIDE,
    cost_words,
    outcome_of,
    page_name,
    pass_chart,
    rewards_of,
    write_evaluation_page,
)
from clawrl_gym.evaluation.pairs import Pair, names_of, pairs_of, points, setting_differences
from clawrl_gym.evaluation.settings import SETTINGS_FILE
from clawrl_gym.ui import pages
from clawrl_gym.ui.svg import IntervalRow, interval_chart, write_picture
from clawrl_gym.ui.text import estimate_words, in_words, reward_change

COMPARISON_PAGE = "comparison.html"
COMPARISON_PICTURE = "comparison.svg"
COMPARISON_DATA = "comparison.json"
MOST = 8
"""Evaluations on a page: as many as there are colours."""


@dataclass(frozen=True, slots=True)
class EvaluationComparison:
    """The results of a comparison, and the files they were written to."""

    results: tuple[EvaluationResult, ...]
    pairs: tuple[Pair, ...]
    folder: Path

    @property
    def names(self) -> dict[Path, str]:
        return names_of(self.results)

    @property
    def sentences(self) -> list[str]:
        """One for each pair."""
        return [pair.sentence(self.names) for pair in self.pairs]

    def summary(self) -> str:
        """The result in a few lines."""
        figures = [
            f"{self.names[one.folder]:<32} {in_words(one.success)}, n = {len(one.measured)}"
            + "".join(f", {name} {estimate_words(own)}" for name, own in rewards_of(one))
            + (f", {len(one.lost)} lost" if one.lost else "")
            + f"; {cost_words(one.cost)}"
            + (f"; {one.versions_in_words}" if one.versions else "")
            for one in self.results
        ]
        return "\n".join([*figures, *self.sentences, f"page: {self.folder / COMPARISON_PAGE}"])


def compare_evaluations(folders: Sequence[Path], out: Path | None = None) -> EvaluationComparison:
    """Read evaluations, and write a page, a picture and the numbers.

    `out`: None takes a folder beside the first. Raises ConfigError for what cannot be compared,
    StoreError when it cannot be written.
    """
    if not 2 <= len(folders) <= MOST or len({one.resolve() for one in folders}) < len(folders):
        given = ", ".join(map(str, folders)) or "nothing"
        raise ConfigError(f"got {given} to compare, expected 2 to {MOST} different folders")
    results = tuple(read_result(folder) for folder in folders)
    pairs = tuple(pairs_of(results))
    if out is None:
        out = folders[0].resolve().parent / ("comparison-" + "-".join(one.name for one in results))
    if (out / SETTINGS_FILE).exists():
        raise ConfigError(f"{out} holds an evaluation, expected a folder of its own: --out PATH")
    comparison = EvaluationComparison(results, pairs, out)
    try:
        for result in results:
            if not (result.folder / TRANSCRIPTS).is_dir():  # it has not ended: nobody wrote it yet
                write_evaluation_page(result)
        out.mkdir(parents=True, exist_ok=True)
        replace_text(out / COMPARISON_PAGE, render_comparison(comparison))
        replace_text(out / COMPARISON_DATA, json.dumps(_data(comparison), indent=1) + "\n")
        write_picture(out / COMPARISON_PICTURE, _title(comparison), [], success_chart(comparison))
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error}; make room, or --out PATH") from error
    return comparison


def render_comparison(comparison: EvaluationComparison) -> str:
    """The page."""
    results, names = comparison.results, comparison.names
    curves = [(names[one.folder], colour(index), one) for index, one in enumerate(results)]
    return pages.render(
        "comparison.html.j2",
        TEMPLATES,
        comparison=comparison,
        start=describe_start(),
        results=[(colour(index), one) for index, one in enumerate(results)],
        names=names,
        success=success_chart(comparison),
        differences=difference_chart(comparison),
        passes=[pass_chart(curves, *size) for size in (WIDE, NARROW)],
        ks=sorted(set.intersection(*(set(one.passes()) for one in results))),
        families=family_rows(results),
        settings=setting_differences(results),
        flips=flipped_tasks(comparison),
        in_words=in_words,
        points=points,
        reward_words=lambda one: "-" if one is None else reward_change(one),
        cost_words=cost_words,
        outcome=outcome_of,
        page=lambda one: _link(comparison.folder, one.folder / PAGE_FILE),
        link=lambda one, task: _link(comparison.folder, one.folder / TRANSCRIPTS / page_name(task)),
        made=time.strftime("%Y-%m-%d %H:%M"),
    )


def success_chart(comparison: EvaluationComparison) -> Markup:
    """Greedy success of each, with its interval."""
    rows = []
    for index, result in enumerate(comparison.results):
        one, name = result.success, _short(comparison.names[result.folder])
        rows.append(IntervalRow(name, colour(index), one.value, one.low, one.high, in_words(one)))
    return interval_chart(rows, label="success, 95 % intervals")


def difference_chart(comparison: EvaluationComparison) -> Markup:
    """Paired differences of success, with 0 in the middle."""
    rows = []
    for pair in comparison.pairs:
        one = pair.success
        first, second = (
            _short(comparison.names[result.folder], 22) for result in (pair.before, pair.after)
        )
        index = comparison.results.index(pair.after)
        words = f"{100 * one.mean:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f})"
        name = f"{second} less {first}"
        rows.append(IntervalRow(name, colour(index), one.mean, one.low, one.high, words))
    widest = max(max(abs(row.low), abs(row.high)) for row in rows)
    edge = min(1.0, 0.1 * (int(widest * 10) + 1))
    return interval_chart(
        rows, label="paired differences of success, 95 % intervals", x_range=(-edge, edge)
    )


def family_rows(results: Sequence[EvaluationResult]) -> list[tuple[str, list[str]]]:
    """Success of each by family."""
    families = [result.families() for result in results]
    names = sorted({name for own in families for name in own})
    if len(names) < 2:
        return []
    return [(name, [_solved_of(own.get(name, [])) for own in families]) for name in names]


def flipped_tasks(
    comparison: EvaluationComparison,
) -> list[tuple[TaskResult, list[TaskResult | None]]]:
    """Tasks on which the evaluations do not agree, with the result of each that measured it."""
    by_key = [{task.key: task for task in one.measured} for one in comparison.results]
    rows = []
    for key, task in sorted(by_key[0].items(), key=lambda entry: entry[1].name):
        own = [tasks.get(key) for tasks in by_key]
        if len({one.solved for one in own if one is not None}) > 1:
            rows.append((task, own))
    return rows


def colour(index: int) -> str:
    """The colour class of evaluation number `index`."""
    return f"recipe{index}"


def _title(comparison: EvaluationComparison) -> str:
    env = comparison.results[0].env
    n = min(len(pair.tasks) for pair in comparison.pairs)
    return f"Greedy success on {n} tasks of env={env}, 95 % intervals"


def _solved_of(tasks: Sequence[TaskResult]) -> str:
    return f"{sum(task.solved for task in tasks)} of {len(tasks)}" if tasks else "-"


def _data_of(difference: Difference | None) -> dict[str, float | int] | None:
    return None if difference is None else asdict(difference)


def _short(name: str, limit: int = 32) -> str:
    return name if len(name) <= limit else "…" + name[1 - limit :]


def _link(folder: Path, target: Path) -> str:
    return os.path.relpath(target.resolve(), folder.resolve())


def _data(comparison: EvaluationComparison) -> dict[str, object]:
    return {
        "start": describe_start(),
        "evaluations": [
            {"folder": str(one.folder), "policy": one.policy, **data_of(one)}
            for one in comparison.results
        ],
        "pairs": [
            {
                "before": str(pair.before.folder),
                "after": str(pair.after.folder),
                "sentence": sentence,
                "tasks": len(pair.tasks),
                "unpaired": pair.unpaired,
                "success": asdict(pair.success),
                "reward": _data_of(pair.reward("reward")),
                "sampled_reward": _data_of(pair.reward("sampled_reward")),
                "pass": {str(k): asdict(one) for k, one in pair.passes().items()},
                "won": [flip.after.name for flip in pair.won],
                "lost": [flip.after.name for flip in pair.lost],
            }
            for pair, sentence in zip(comparison.pairs, comparison.sentences, strict=True)
        ],
    }
