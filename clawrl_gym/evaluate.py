"""python -m clawrl_gym.evaluate: measure a policy on the tasks of an environment.

python -m clawrl_gym.evaluate env=toolcall policy=tiny eval.tasks=50
python -m clawrl_gym.evaluate endpoint.base_url=http://127.0.0.1:8000/v1 endpoint.model=NAME

The first starts vLLM; the second asks any server of the OpenAI API. evaluation.json holds every
episode; success is of all tasks, and those that infrastructure lost are told beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import clawrl_gym as cg
from clawrl_gym.run.command import command


def _say(part: str, phase: str) -> None:
    sys.stderr.write(f"{part}: {phase}\n")


def _check(config: cg.EvaluateConfig) -> Iterator[str]:
    from clawrl_gym.run.dry_run import plan_lines
    from clawrl_gym.run.preflight import preflight_evaluation

    preparations: list[str] = []
    plan = preflight_evaluation(config, preparations.append)
    yield from plan_lines(plan, preparations)


async def _evaluate(config: cg.EvaluateConfig) -> int:
    run = await cg.run_evaluation_async(config, on_phase=_say)
    sys.stdout.write(run.summary() + "\n")
    return 0


def _configure(arguments: list[str]) -> cg.EvaluateConfig:
    return cg.load_config(arguments, "evaluate")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return command("evaluate", __doc__, _configure, _check, _evaluate, arguments)


if __name__ == "__main__":
    sys.exit(main())
