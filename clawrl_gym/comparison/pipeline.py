"""The bench from its plan to its page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from clawrl_gym.comparison.page import write_curves, write_page
from clawrl_gym.comparison.plan import PlannedRun
from clawrl_gym.comparison.preflight import preflight_comparison
from clawrl_gym.comparison.progress import RunProgress
from clawrl_gym.comparison.record import RunRecord
from clawrl_gym.comparison.results import RecipeResult, read_results
from clawrl_gym.comparison.runner import TRAIN, PlanRunner
from clawrl_gym.comparison.tables import data_of, tables_of
from clawrl_gym.config import BenchConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.provenance import describe_start
from clawrl_gym.run.blocking import run_blocking
from clawrl_gym.ui.text import writable

PAGE_FILE = "bench.html"
TABLE_FILE = "bench.md"
DATA_FILE = "bench.json"
CURVES_FILE = "bench.svg"


async def run_comparison_async(
    config: BenchConfig, command: Sequence[str] = TRAIN, console: Console | None = None
) -> list[RecipeResult]:
    """Complete every run of every recipe, write what they reached, and give it back.

    Runs that failed are in `RecipeResult.failures`. Raises ConfigError for what cannot be compared.
    """
    console = console or Console()
    runs, _ = await asyncio.to_thread(preflight_comparison, config)
    folder = make_folder(config)
    view = RunProgress(console, len(runs))
    runner = PlanRunner(view, config.run_timeout_s, command)
    ended: list[tuple[PlannedRun, RunRecord]] = []
    try:
        for run in runs:
            ended.append((run, await runner.complete(run)))
            await asyncio.to_thread(write_results, folder, config, read_results(ended))
    finally:
        view.close()
    results = read_results(ended)
    show(results, config, console)
    console.print(f"page: {folder / PAGE_FILE}", markup=False, highlight=False, soft_wrap=True)
    return results


def run_comparison(config: BenchConfig) -> list[RecipeResult]:
    """`run_comparison_async`, blocking."""
    return run_blocking(run_comparison_async(config))


def make_folder(config: BenchConfig) -> Path:
    """The bench's folder. Raises ConfigError."""
    folder = Path(config.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the bench's folder {config.dir!r}: {error}") from error
    return folder


def write_results(folder: Path, config: BenchConfig, results: Sequence[RecipeResult]) -> None:
    """bench.json, bench.md, bench.html and bench.svg of the runs that have ended so far."""
    tables = tables_of(results, config.target)
    start = describe_start()
    data = {"start": start, "recipes": data_of(results, config.target)}
    (folder / DATA_FILE).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(table.markdown() for table in tables)
    (folder / TABLE_FILE).write_text(text, encoding="utf-8")
    write_page(folder / PAGE_FILE, config, results, tables, start)
    write_curves(folder / CURVES_FILE, results)


def show(results: Sequence[RecipeResult], config: BenchConfig, console: Console) -> None:
    """The tables and the failures on the terminal."""
    for table in tables_of(results, config.target):
        with console.capture() as captured:
            console.print(table.rich())
        console.file.write(writable(captured.get(), console.encoding))
    for recipe in results:
        for name, why in recipe.failures.items():
            console.print(
                f"{name}: {why}", style="red3", markup=False, highlight=False, soft_wrap=True
            )
