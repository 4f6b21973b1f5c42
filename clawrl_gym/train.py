"""python -m clawrl_gym.train: compose the configuration, build the run, run it.

python -m clawrl_gym.train env=terminal policy=tiny rollout.groups=4 trainer.steps=3
python -m clawrl_gym.train --config runs/NAME/config.yaml      # that run again, in a new folder
python -m clawrl_gym.train policy.model=runs/NAME              # from that run's newest checkpoint
"""

from __future__ import annotations

import sys

import clawrl_gym as cg
from clawrl_gym.run.command import command


async def _train(config: cg.RunConfig) -> int:
    await cg.run_training_async(config)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return command("train", __doc__, cg.load_config, _train, arguments)


if __name__ == "__main__":
    sys.exit(main())
