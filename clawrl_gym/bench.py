"""python -m clawrl_gym.bench: recipes of conf/experiment/ side by side, over paired seeds.

python -m clawrl_gym.bench experiment=personal_binary,personal_hybrid seeds=3 trainer.steps=16

Each is a run of `clawrl_gym.train`, measured before and after on the held-out tasks of every
environment. Called again, it keeps what is done. Keys of a run (KEY=VALUE) hold for all of them.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from clawrl_gym.config import BenchConfig
from clawrl_gym.config.compose import conf_dir, parse
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.run.command import print_help, run_command

_LISTS = ("experiment", "environments")


def configure(arguments: list[str]) -> BenchConfig:
    """The bench's configuration; what is no key of it goes to every run. Raises ConfigError."""
    from clawrl_gym.comparison.plan import plan_runs

    values = yaml.safe_load((conf_dir() / "bench.yaml").read_text())
    overrides = list(values.pop("overrides", []))
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in BenchConfig.model_fields and name != "overrides" and equals:
            values[name] = _read(name, value)
        else:
            overrides.append(argument)
    config = parse({**values, "overrides": overrides}, BenchConfig)
    if config.dry_run:
        plan_runs(config)
    return config


def _read(name: str, value: str) -> Any:
    """A value as the command line gives it: lists may stand without their brackets."""
    if name == "dir":
        return value
    if name in _LISTS and not value.startswith("["):
        value = f"[{value}]"
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"cannot read {name}={value!r}; expected YAML") from error


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        print_help("bench", __doc__ or "", BenchConfig)
        return 0
    return run_command(lambda: configure(arguments), _bench)


async def _bench(config: BenchConfig) -> int:
    from clawrl_gym.comparison.pipeline import bench

    return await bench(config)


if __name__ == "__main__":
    sys.exit(main())
