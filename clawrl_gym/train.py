"""python -m clawrl_gym.train: compose the configuration, build the run, run it.

python -m clawrl_gym.train env=terminal policy=tiny rollout.groups=4 trainer.steps=3
python -m clawrl_gym.train --config runs/NAME/config.yaml      # that run again, in a new folder
python -m clawrl_gym.train policy.model=runs/NAME              # from that run's newest checkpoint
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import clawrl_gym as cg
from clawrl_gym.run.command import command


def _check(config: cg.RunConfig) -> Iterator[str]:
    from clawrl_gym.preflight.dry_run import plan_lines
    from clawrl_gym.preflight.preflight import preflight_training

    preparations: list[str] = []
    plan = preflight_training(config, preparations.append)
    yield from plan_lines(plan, preparations)


async def _train(config: cg.RunConfig) -> int:
    await cg.run_training_async(config)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return command("train", __doc__, cg.load_config, _check, _train, arguments)


if __name__ == "__main__":
    sys.exit(main())
