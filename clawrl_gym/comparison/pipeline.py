"""The bench from its plan to its page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from clawrl_gym.comparison.matrix import (
    against_table,
    cells_of,
    columns_of,
    findings,
    matrix_table,
)
from clawrl_gym.comparison.page import write_curves, write_page
from clawrl_gym.comparison.picture import write_matrix
from clawrl_gym.comparison.plan import baselines_of, probes_of
from clawrl_gym.comparison.preflight import preflight_comparison
from clawrl_gym.comparison.progress import RunProgress
from clawrl_gym.comparison.results import EndedRun, RecipeResult, read_results
from clawrl_gym.comparison.runner import Commands, PlanRunner
from clawrl_gym.comparison.tables import ResultTable, data_of, probe_tables, tables_of
from clawrl_gym.config import BenchConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.provenance import describe_start
from clawrl_gym.run.blocking import run_blocking
from clawrl_gym.ui.text import writable

PAGE_FILE = "bench.html"
TABLE_FILE = "bench.md"
DATA_FILE = "bench.json"
CURVES_FILE = "bench.svg"
MATRIX_FILE = "bench_matrix.svg"


async def run_comparison_async(
    config: BenchConfig, commands: Commands | None = None, console: Console | None = None
) -> list[RecipeResult]:
    """Complete every run of every recipe, write what they reached, and give it back.

    Runs that failed are in `RecipeResult.failures`. Raises ConfigError for what cannot be compared.
    """
    console = console or Console()
    runs, _ = await asyncio.to_thread(preflight_comparison, config)
    folder = make_folder(config)
    view = RunProgress(console, len(runs))
    runner = PlanRunner(view, config.run_timeout_s, commands)
    ended: list[EndedRun] = []
    try:
        baselines = {
            baseline.folder: await runner.measure(baseline) for baseline in baselines_of(runs)
        }
        probes = {probe.folder: await runner.measure(probe) for probe in probes_of(runs)}
        for run in runs:
            record = await runner.complete(run)
            after = await runner.measure(run.after) if record.finished else None
            probe = None if run.probe is None else probes[run.probe.folder]
            ended.append(EndedRun(run, record, baselines[run.baseline.folder], after, probe))
            results = await asyncio.to_thread(read_results, ended)
            await asyncio.to_thread(write_results, folder, config, results)
    finally:
        view.close()
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
    tables, found = all_tables(results, config), findings(results)
    start = describe_start()
    data = {
        "start": start,
        "findings": found,
        "matrix": cells_of(results),
        "recipes": data_of(results, config.target),
    }
    (folder / DATA_FILE).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text = "\n".join([*found, "", *(table.markdown() for table in tables)])
    (folder / TABLE_FILE).write_text(text, encoding="utf-8")
    write_page(folder / PAGE_FILE, config, results, tables, start)
    write_curves(folder / CURVES_FILE, results)
    write_matrix(folder / MATRIX_FILE, results)


def all_tables(results: Sequence[RecipeResult], config: BenchConfig) -> list[ResultTable]:
    """The matrix first."""
    matrix = [matrix_table(results), against_table(results)] if columns_of(results) else []
    head = [table for table in matrix if table is not None]
    return [*head, *probe_tables(results), *tables_of(results, config.target)]


def show(results: Sequence[RecipeResult], config: BenchConfig, console: Console) -> None:
    """The tables, what was found, and the failures on the terminal."""
    for table in all_tables(results, config):
        with console.capture() as captured:
            console.print(table.rich())
        console.file.write(writable(captured.get(), console.encoding))
    for sentence in findings(results):
        console.file.write(writable(f"{sentence}\n", console.encoding))
    for name, why in failures_of(results).items():
        console.print(f"{name}: {why}", style="red3", markup=False, highlight=False, soft_wrap=True)


def failures_of(results: Sequence[RecipeResult]) -> dict[str, str]:
    """Why, by what failed; a baseline that several recipes share once."""
    return {name: why for recipe in results for name, why in recipe.failures.items()}
