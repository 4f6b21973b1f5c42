"""python -m clawrl_gym.doctor: what this machine can run, what is missing, how to fix it.

With a run's arguments (policy=qwen3_4b learner=lora) it says instead what memory this run takes on
a GPU, part by part, and whether that fits this one and cards of 16, 24, 48 and 80 GB, by arithmetic
from the model's configuration: the model need not be here. --json prints the same for programs.
The exit code is 1 when something that is required is missing, 2 for arguments that do not fit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clawrl_gym.checks import MachineCheck, Status, run_checks
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.preflight.gpu_fit import as_fields, gpu_fit_lines, gpus_here, memory_lines
from clawrl_gym.preflight.model_plan import shape_of
from clawrl_gym.preflight.requirements import LEARNER_ON_GPU_GIB, requirements_of
from clawrl_gym.recipe.configure import load_config

_WIDE = 100
"""Columns from which the table also says what each thing is for."""
_MARKS = {
    Status.OK: Text("✓ ok", style="green3"),
    Status.MISSING: Text("✗ missing", style="bold red3"),
    Status.OPTIONAL: Text("○ optional", style="grey62"),
}


def show(checks: Sequence[MachineCheck], console: Console) -> None:
    """The checks as a table, the cures below it, and one line of verdict."""
    table = Table(box=box.SIMPLE_HEAD, header_style="grey62", padding=(0, 1), expand=False)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    wide = console.width >= _WIDE
    if wide:
        table.add_column("needed for", style="grey62", no_wrap=True)
    for check in checks:
        fine = check.status is Status.OK
        finding = Text(check.finding, no_wrap=fine, overflow="ellipsis" if fine else "fold")
        cells = [Text(check.name), _MARKS[check.status], finding]
        table.add_row(*cells, *([Text(check.needed_for)] if wide else []))
    console.print(table)
    for status, heading in (
        (Status.MISSING, "To fix:"),
        (Status.OPTIONAL, "Optional:"),
    ):
        _show_cures([check for check in checks if check.status is status], heading, console)
    console.print(verdict(checks))


def _fields(check: MachineCheck) -> dict[str, str]:
    """A check as programs read it."""
    return {
        "name": check.name, "status": check.status, "found": check.finding,
        "needed_for": check.needed_for, "cure": check.cure,
    }  # fmt: skip


def _show_cures(checks: Sequence[MachineCheck], heading: str, console: Console) -> None:
    if not checks:
        return
    console.print(Text(heading, style="bold"))
    for check in checks:
        console.print(Text(f"  {check.name} (for {check.needed_for})"))
        console.print(Text(f"      {check.cure or check.finding}", style="cyan"), soft_wrap=True)
    console.print()


def verdict(checks: Sequence[MachineCheck]) -> Text:
    """Whether the main command can run."""
    missing = [check.name for check in checks if check.status is Status.MISSING]
    if missing:
        words = f"This machine cannot run `make train` yet: {', '.join(missing)}."
        return Text(words, style="bold red3")
    return Text("This machine can run `make train`.", style="bold green3")


def is_ready(checks: Sequence[MachineCheck]) -> bool:
    """Whether nothing that is required is missing."""
    return all(check.status is not Status.MISSING for check in checks)


def fit(overrides: Sequence[str], *, as_json: bool, out: TextIO) -> None:
    """Memory of one run by part, and on cards of several sizes. Raises ConfigError."""
    config = load_config(list(overrides))
    shape = shape_of(config.policy.model)
    cards = gpus_here()
    if as_json:
        out.write(json.dumps(as_fields(config, shape, cards), indent=1) + "\n")
        return
    out.write(
        f"{config.policy.model}: {shape.parameters:,} parameters; by arithmetic, in GiB; on a card "
        f"the learner's process takes {LEARNER_ON_GPU_GIB} more\n"
    )
    needs = requirements_of(config, shape, "cuda")
    for line in (*memory_lines(needs), *gpu_fit_lines(config, shape, cards)):
        out.write(f"  {line}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m clawrl_gym.doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    parser.add_argument("run", nargs="*", metavar="KEY=VALUE", help="arguments of a run")
    options = parser.parse_args(arguments)
    if options.run:
        try:
            fit(options.run, as_json=options.json, out=sys.stdout)
        except ConfigError as error:
            sys.stderr.write(f"clawrl_gym.doctor: {error}\n")
            return 2
        return 0
    checks = run_checks(Path("runs").absolute())
    if options.json:
        rows = {"ok": is_ready(checks), "checks": [_fields(check) for check in checks]}
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    else:
        show(checks, Console())
    return 0 if is_ready(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
