"""From `conf/` and a command line to a command's configuration: Hydra composes, pydantic checks.

Nothing after this sees anything of Hydra. Whatever does not fit is one ConfigError of one line,
with the nearest known key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml

from clawrl_gym.config import Part, RunConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import unknown_key

C = TypeVar("C", bound=Part)


def conf_dir() -> Path:
    """The folder of the Hydra groups."""
    return Path(__file__).resolve().parents[1] / "conf"


def compose(config_name: str, overrides: list[str], model: type[C]) -> C:
    """Compose `conf/<config_name>.yaml` with command-line overrides into a command's configuration.

    `env.id=` or `env.target=` alone choose `env=gym`. Raises ConfigError, in one line, for
    whatever does not fit, with the nearest known key.
    """
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise ConfigError(f"got {override!r}, expected KEY=VALUE or GROUP=OPTION; see --help")
    names = [override.lstrip("+~").split("=", 1)[0] for override in overrides]
    if "env" not in names and {"env.id", "env.target"} & set(names):
        overrides = ["env=gym", *overrides]
    chosen = groups_of(config_name)
    overrides = [_forced(override, chosen) for override in overrides]
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = hydra.compose(config_name, overrides=overrides)
        values = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_hydra_message(error, names, model)) from error
    return model.of(_own(values, names, model))


def _own(values: Any, names: list[str], model: type[Part]) -> dict[str, Any]:
    """Without the parts that a shared group (policy=) sets for other commands only."""
    asked = {name.partition(".")[0] for name in names}
    return {
        key: value
        for key, value in values.items()
        if key in model.model_fields or key in asked or key not in RunConfig.model_fields
    }


def groups_of(config_name: str) -> dict[str, list[str]]:
    """The Hydra groups that a command takes, and their options."""
    listed = yaml.safe_load((conf_dir() / f"{config_name}.yaml").read_text()).get("defaults", [])
    named = [name for entry in listed if isinstance(entry, dict) for name in entry]
    names = [name for name in named if not name.startswith("optional ")]  # follow from others
    return {
        name: sorted(option.stem for option in (conf_dir() / name).glob("*.yaml"))
        for name in sorted(names)
    }


def _forced(override: str, chosen: dict[str, list[str]]) -> str:
    """A key is set whether or not the YAML lists it: what exists is the configuration's to say."""
    name = override.split("=", 1)[0]
    if override[0] in "+~" or name in chosen:
        return override
    return f"++{override}"


def _hydra_message(error: Exception, names: list[str], model: type[Part]) -> str:
    """Hydra's message in one line, with the nearest known key."""
    known = set(model.dotted_keys())
    unknown = [name for name in names if "." in name and name not in known]
    if unknown:
        return unknown_key(unknown[0], known)
    unread = getattr(error, "override", None)
    if unread is not None:
        return f"cannot read {str(unread).lstrip('+')!r}; expected KEY=VALUE, quoted as YAML"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines).partition(" Config search path")[0][:500]
