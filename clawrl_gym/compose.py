"""From `conf/` and a command line to a RunConfig: Hydra composes, pydantic checks.

Nothing after this sees anything of Hydra. Whatever does not fit is one ConfigError of one line,
with the nearest known key.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from clawrl_gym.config import RunConfig
from clawrl_gym.errors import ConfigError


def conf_dir() -> Path:
    """The folder of the Hydra groups."""
    return Path(__file__).resolve().parent / "conf"


def compose(config_name: str, overrides: list[str]) -> RunConfig:
    """Compose `conf/<config_name>.yaml` with command-line overrides into a RunConfig.

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
    overrides = [_forced(override) for override in overrides]
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = hydra.compose(config_name, overrides=overrides)
        values = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_hydra_message(error, names)) from error
    return parse(values)


def groups() -> dict[str, list[str]]:
    """The Hydra groups and their options."""
    folders = sorted(path for path in conf_dir().iterdir() if path.is_dir())
    return {f.name: sorted(option.stem for option in f.glob("*.yaml")) for f in folders}


def _forced(override: str) -> str:
    """A key is set whether or not the YAML lists it: what exists is RunConfig's to say."""
    name = override.split("=", 1)[0]
    if override[0] in "+~" or name in groups():
        return override
    return f"++{override}"


def parse(values: Any) -> RunConfig:
    """RunConfig from plain values; raises ConfigError naming each wrong key."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_pydantic_message(error)) from error


def known_keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    """All dotted keys of a configuration, for suggestions."""
    keys: list[str] = []
    for name, info in model.model_fields.items():
        keys.append(prefix + name)
        for part in _parts_of(info.annotation):
            keys += known_keys(part, f"{prefix}{name}.")
    return sorted(set(keys))


def _parts_of(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    arguments = getattr(annotation, "__args__", ())
    return [part for argument in arguments for part in _parts_of(argument)]


def _suggestion(key: str) -> str:
    near = difflib.get_close_matches(key, known_keys(), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _hydra_message(error: Exception, names: list[str]) -> str:
    """Hydra's message in one line, with the nearest known key."""
    known = set(known_keys())
    unknown = [name for name in names if "." in name and name not in known]
    if unknown:
        return f"unknown configuration key {unknown[0]!r}{_suggestion(unknown[0])}"
    unread = getattr(error, "override", None)
    if unread is not None:
        return f"cannot read {str(unread).lstrip('+')!r}; expected KEY=VALUE, quoted as YAML"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines).partition(" Config search path")[0][:500]


def _pydantic_message(error: ValidationError) -> str:
    problems = []
    for item in error.errors():
        location = [str(part) for part in item["loc"] if part not in ("terminal", "gym")]
        key = ".".join(location)
        if item["type"] == "value_error" and not location:
            problems.append(item["msg"].removeprefix("Value error, "))
        elif item["type"] == "extra_forbidden":
            problems.append(f"unknown configuration key {key!r}{_suggestion(key)}")
        else:
            problems.append(f"{key}: got {item['input']!r}: {item['msg']}")
    return "; ".join(problems)
