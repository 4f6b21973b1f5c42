"""python -m clawrl_gym.teacher_probe: what a policy makes of hints, before it learns from them.

python -m clawrl_gym.teacher_probe experiment=personal_hybrid eval.temperature=1
python -m clawrl_gym.teacher_probe runs/NAME    # what it began with; its report has it

First replies to held-out problems of env=conversation: how many are as the user wishes without a
hint, with the user's own words, with other words for the same wish, with another user's wish, and
with random words. A run by trainer=opd or trainer=hybrid follows what its teacher makes of hints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

import clawrl_gym as cg
from clawrl_gym.config import RunFolderConfig
from clawrl_gym.run.command import command


def _configure(arguments: list[str]) -> cg.RunConfig:
    """A run's folder stands for its configuration, and keeps the result."""
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        return cg.load_config(arguments)
    folder, *rest = arguments
    config = cg.load_config(["--config", f"{folder}/config.yaml", *rest])
    return config.model_copy(update={"run": RunFolderConfig(dir=folder)})


def _check(config: cg.RunConfig) -> Iterator[str]:
    from clawrl_gym.comparison.teacher_probe import KINDS, planned_probe
    from clawrl_gym.preflight.preflight import preflight_evaluation

    probe = planned_probe(config)
    for column in probe.columns.values():
        preflight_evaluation(column)
    yield f"{config.policy.model}, {len(KINDS)} times {config.eval.tasks} tasks, in {probe.folder}"


async def _probe(config: cg.RunConfig) -> int:
    from clawrl_gym.comparison.measurement_process import measure
    from clawrl_gym.comparison.tables import probe_table
    from clawrl_gym.comparison.teacher_probe import planned_probe, read_probe, write_probe

    probe = planned_probe(config)
    probe.write()
    failed = await measure(probe.folder)
    rows = read_probe(probe)
    if rows and config.run.dir is not None:
        write_probe(Path(config.run.dir), rows)
    Console().print(probe_table(config.policy.model, rows).rich())
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return command("train", __doc__, _configure, _check, _probe, arguments)


if __name__ == "__main__":
    sys.exit(main())
