"""python -m clawrl_gym.bench: recipes of conf/experiment/ side by side, over paired seeds.

python -m clawrl_gym.bench experiment=personal_binary,personal_hybrid seeds=3 trainer.steps=16

Each is a run of `clawrl_gym.train`, measured before and after on the held-out tasks of every
environment. Called again, it keeps what is done. Keys of a run (KEY=VALUE) hold for all of them.
"""

from __future__ import annotations

import sys

import clawrl_gym as cg
from clawrl_gym.core.interrupt import HOLDING_S, INTERRUPTS
from clawrl_gym.run.command import command


def configure(arguments: list[str]) -> cg.BenchConfig:
    """The bench's configuration. Raises ConfigError."""
    from clawrl_gym.comparison.plan import plan_runs

    config = cg.load_config(arguments, "bench")
    if config.dry_run:
        plan_runs(config)
    return config


async def _bench(config: cg.BenchConfig) -> int:
    INTERRUPTS.patience_s = HOLDING_S
    with INTERRUPTS.goes_on("the same command goes on with what is missing"):
        results = await cg.run_comparison_async(config)
    return 1 if any(result.failures for result in results) else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return command("bench", __doc__, configure, _bench, arguments)


if __name__ == "__main__":
    sys.exit(main())
