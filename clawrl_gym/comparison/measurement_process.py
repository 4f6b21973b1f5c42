"""python -m clawrl_gym.comparison.measurement_process FOLDER: one engine, several environments.

The bench writes what is to be measured into FOLDER and starts this. What is measured already stays;
an environment that fails does not keep the others from being measured.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from clawrl_gym.comparison.measurement import is_measured, make_room, read_plan
from clawrl_gym.config import EvaluateConfig
from clawrl_gym.core.errors import ClawError
from clawrl_gym.core.files.files import private_files
from clawrl_gym.preflight.preflight import Preflight
from clawrl_gym.run.evaluate import evaluate_prepared, prepare_evaluation
from clawrl_gym.run.policy import ServedPolicy


def _say(part: str, phase: str) -> None:
    sys.stdout.write(f"{part}: {phase}\n")
    sys.stdout.flush()


async def measure(folder: Path) -> int:
    """Measure what is missing; returns how many environments could not be measured."""
    missing = {
        name: config for name, config in read_plan(folder).items() if not is_measured(config)
    }
    plans: dict[str, Preflight[EvaluateConfig]] = {}
    for name, config in missing.items():
        try:
            with private_files():
                make_room(config)
            plans[name] = await prepare_evaluation(config, _say)
        except ClawError as error:
            _say("error", f"env={name}: {error}")
    if plans:
        with private_files():
            await _measure(folder, plans)
    return sum(not is_measured(config) for config in missing.values())


async def _measure(
    folder: Path,
    plans: Mapping[str, Preflight[EvaluateConfig]],
) -> None:
    first = next(iter(plans.values()))
    async with ServedPolicy(first.config, folder, on_phase=_say) as policy:
        for name, plan in plans.items():
            try:
                run = await evaluate_prepared(plan, _say, policy.address)
            except ClawError as error:
                _say("error", f"env={name}: {error}")
                continue
            _say("measured", f"env={name}: {run.success:.0%} of {run.evaluation.n} solved")


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    try:
        return 1 if asyncio.run(measure(Path(folder))) else 0
    except ClawError as error:
        _say("error", str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
