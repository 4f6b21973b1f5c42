"""python -m clawrl_gym.train: compose the configuration, build the run, run it.

python -m clawrl_gym.train env=terminal policy=tiny rollout.groups=4 trainer.steps=3
"""

from __future__ import annotations

import sys

from clawrl_gym.config import RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.run.command import print_help, run_command


def configure(arguments: list[str]) -> RunConfig:
    """The run's configuration; `resume=` takes the run's own and lets the rest override it."""
    config = compose("train", arguments, RunConfig)
    if config.resume is None:
        return config
    from pathlib import Path

    from clawrl_gym.run.folder import RunFolder

    stored = RunFolder(Path(config.resume)).read_config(RunConfig)
    allowed = ("resume", "trainer.steps", "dry_run", "ui", "logger")
    names = [argument.lstrip("+").split("=", 1)[0] for argument in arguments]
    foreign = [name for name in names if name not in allowed]
    if foreign:
        raise ConfigError(
            f"got {foreign[0]!r} together with resume=, expected only {', '.join(allowed[1:])}: "
            "a resumed run keeps its own configuration"
        )
    changed = {"resume": config.resume, "dry_run": config.dry_run, "ui": config.ui}
    if "logger" in names:
        changed["logger"] = config.logger
    if "trainer.steps" in names:
        longer = stored.trainer.model_copy(update={"steps": config.trainer.steps})
        return stored.model_copy(update={**changed, "trainer": longer})
    return stored.model_copy(update=changed)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        print_help("train", __doc__ or "", RunConfig)
        return 0
    return run_command(lambda: configure(arguments), _train)


async def _train(config: RunConfig) -> int:
    from clawrl_gym.run.train import train

    return await train(config)


if __name__ == "__main__":
    sys.exit(main())
