"""From `conf/` and a command line to a command's configuration: Hydra composes, pydantic checks.

Nothing after this sees Hydra. Every mistake is one ConfigError of one line, with the nearest known
key. Folders of a user's own groups stand beside `conf/`: `--config-dir DIR`, or
`hydra.searchpath=[DIR]`. A group that is a seam (`judge=`, `env=`, ...) takes an import path, or a
name that an installed package gives, as well as an option.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import yaml

from clawrl_gym.config import Part, RunConfig
from clawrl_gym.config.mixing import is_of_mixture, listed_envs, with_mixture
from clawrl_gym.config.part import leaf
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import (
    AGENTS,
    ALGORITHMS,
    ENVIRONMENTS,
    JUDGES,
    LEARNERS,
    LOSSES,
    SANDBOXES,
    Seam,
    unknown_key,
)

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

C = TypeVar("C", bound=Part)
_SEAMS: Mapping[str, Seam] = {
    "agent": AGENTS,
    "env": ENVIRONMENTS,
    "judge": JUDGES,
    "learner": LEARNERS,
    "loss": LOSSES,
    "sandbox": SANDBOXES,
    "trainer": ALGORITHMS,
}
"""Groups that take a class of one's own, by name."""
_ENV_OF_KEY = {"env.id": "gym", "env.target": "gym", "env.tasks": "terminal"}
"""The environment that a key implies without `env=`. The default environment brings weights and
settings for its own tasks, which a user's folder of tasks does not need."""
_PLUGIN = "_plugin_"
"""The option that stands for a class of one's own."""
_SWEEP = set(",[]{}")
"""Characters of several values, which never name a class."""
_CONFIG_DIR = ("--config-dir", "-cd")
_SEARCH_PATH = "hydra.searchpath"


def conf_dir() -> Path:
    """The folder of the Hydra groups."""
    return Path(__file__).resolve().parents[1] / "conf"


def compose(config_name: str, arguments: Sequence[str], model: type[C]) -> C:
    """Compose `conf/<config_name>.yaml` with a command line into a command's configuration.

    Keys that only one environment can mean choose it, see `_ENV_OF_KEY`. Raises ConfigError, in one
    line, for every mistake, with the nearest known key.
    """
    overrides, places = split_search_path(arguments)
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise ConfigError(f"got {override!r}, expected KEY=VALUE or GROUP=OPTION; see --help")
    envs, overrides = listed_envs(overrides, config_name)
    names = {_name(override).partition(".")[0] for override in overrides}
    mixes = envs is not None or "mixture" in names
    # What suits the environment that a run has without `env=` does not suit a mixture.
    usual = ["env=terminal"] if mixes and "env" not in names else []
    values = _composed(config_name, [*usual, *overrides], places, model)
    if "mixture" in model.model_fields:
        of_all = [override for override in overrides if not is_of_mixture(override)]
        values = with_mixture(
            values,
            envs,
            overrides,
            lambda env: _composed(config_name, [*of_all, f"env={env}"], places, model),
        )
    if places and "searchpath" in model.model_fields:
        values["searchpath"] = places
    return model.of(_own(values, [_name(override) for override in overrides], model))


def _composed(
    config_name: str, overrides: Sequence[str], places: Sequence[str], model: type[Part]
) -> dict[str, object]:
    """Plain values, as Hydra composes them. Raises ConfigError."""
    from omegaconf import OmegaConf

    with _hydra_errors(overrides, model):
        composed = _by_hydra(config_name, overrides, places)
        return cast(dict[str, object], OmegaConf.to_container(composed, resolve=True))


def choices(config_name: str, arguments: Sequence[str]) -> dict[str, str]:
    """The option chosen in each group by a command line, its recipe's choices included.

    Raises ConfigError.
    """
    overrides, places = split_search_path(arguments)
    _, overrides = listed_envs(overrides, config_name)
    with _hydra_errors(overrides, RunConfig):
        composed = _by_hydra(config_name, overrides, places, with_hydra=True)
    return dict(composed.hydra.runtime.choices)


def _by_hydra(
    config_name: str,
    overrides: Sequence[str],
    places: Sequence[str],
    *,
    with_hydra: bool = False,
) -> DictConfig:
    """Compose with Hydra; `with_hydra` keeps Hydra's own settings."""
    import hydra

    names = [_name(override) for override in overrides]
    groups = groups_of(config_name, places)
    if "env" in groups and not {"env", "experiment"} & set(names):
        chosen = [env for key, env in _ENV_OF_KEY.items() if key in names]
        overrides = [*(f"env={env}" for env in chosen[:1]), *overrides]
    _refuse_foreign_groups(names, groups, config_name)
    overrides = [_forced(_with_plugin(override, groups), groups) for override in overrides]
    if places:
        overrides.append(f"{_SEARCH_PATH}=[{','.join(map(_quoted, places))}]")
    _check_values(overrides, groups, config_name)
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return hydra.compose(config_name, overrides=overrides, return_hydra_config=with_hydra)


@contextmanager
def _hydra_errors(overrides: Sequence[str], model: type[Part]) -> Iterator[None]:
    """Raise errors of Hydra and OmegaConf as a ConfigError in one line."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        names = [_name(override) for override in overrides]
        raise ConfigError(_hydra_message(error, names, model)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"a recipe is not valid YAML: {' '.join(str(error).split())}") from error


def with_overrides(
    values: Mapping[str, object], overrides: Sequence[str], config_name: str, flag: str
) -> dict[str, object]:
    """A whole configuration's plain values with KEY=VALUE set, read as `compose` reads them.

    `~KEY` takes the key's default. Where another plug-in is chosen, the options of the one before
    are left out. `flag` stands for the values in messages. Raises ConfigError for an invalid
    override, and for groups: the values of a group cannot be told from those in `values`.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    groups = groups_of(config_name)
    changed = copy.deepcopy(dict(values))
    _forget_options(changed, overrides)
    for text in overrides:
        name = _name(text)
        if "=" not in text and not text.startswith("~"):
            raise ConfigError(f"got {text!r}, expected KEY=VALUE; see --help")
        if name in groups or (conf_dir() / name).is_dir():
            raise ConfigError(
                f"got {name}= together with {flag}, expected keys such as learner.lr=1e-4: a group "
                f"of settings begins another run; leave {flag} out, or set its keys"
            )
        try:
            (override,) = OverridesParser.create().parse_overrides([text])
        except HydraException as error:
            raise ConfigError(f"cannot read {text!r}; expected KEY=VALUE") from error
        if override.is_sweep_override():
            raise ConfigError(f"got several values of {name!r}: a run has one of each key")
        _set(changed, name.split("."), None if override.is_delete() else override)
    return changed


def _forget_options(values: dict[str, object], overrides: Sequence[str]) -> None:
    """Remove the options in `values` of a plug-in where another one is chosen."""
    chosen = dict(text.partition("=")[::2] for text in overrides)
    for seam in _SEAMS.values():
        has_own = seam.options_key.endswith(".options")
        if has_own and seam.key in chosen and chosen[seam.key] != leaf(values, seam.key):
            _set(values, seam.options_key.split("."), None)


def _set(values: dict[str, object], path: Sequence[str], override: Override | None) -> None:
    """Set or (None) remove the value at a path of keys."""
    *parents, last = path
    for key in parents:
        inner = values.get(key)
        if not isinstance(inner, dict):
            inner = values[key] = {}
        values = inner
    if override is None:
        values.pop(last, None)
    else:
        values[last] = override.value()


def split_search_path(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides, and the places of groups beside `conf/`: folders, file:// or pkg://.

    Folders become absolute. Raises ConfigError for a missing one.
    """
    overrides: list[str] = []
    places: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        flag, equals, value = argument.partition("=")
        if flag in _CONFIG_DIR:
            folder = value if equals else next(waiting, "")
            if not folder:
                raise ConfigError(f"got {flag} without a folder, expected {flag} DIR")
            places.append(_place(folder, flag))
        elif flag.lstrip("+") == _SEARCH_PATH:
            places += [_place(place, _SEARCH_PATH) for place in _list_of(value)]
        else:
            overrides.append(argument)
    return overrides, list(dict.fromkeys(places))


def groups_of(config_name: str, places: Sequence[str] = ()) -> dict[str, list[str]]:
    """The Hydra groups that a command takes, and their options, those of `places` too.

    A command without a file in `conf/` has none.
    """
    file = conf_dir() / f"{config_name}.yaml"
    defaults = yaml.safe_load(file.read_text()).get("defaults", []) if file.exists() else []
    names = [name for entry in defaults if isinstance(entry, dict) for name in entry]
    folders = [conf_dir(), *(Path(place.removeprefix("file://")) for place in places)]
    return {
        name: sorted(
            {option.stem for folder in folders for option in (folder / name).glob("*.yaml")}
        )
        for name in sorted(names)
        if not name.startswith("optional ")  # follow from others
    }


def _place(place: str, origin: str) -> str:
    if place.startswith("pkg://"):
        return place
    folder = Path(place.removeprefix("file://")).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(
            f"got {origin} {place!r}, expected a folder with groups of your own, such as "
            f"experiment/mine.yaml (there is no folder {str(folder)!r})"
        )
    return f"file://{folder}"


def _list_of(value: str) -> list[str]:
    """The entries of a list, with or without its brackets and quotes."""
    entries = value.strip().removeprefix("[").removesuffix("]").split(",")
    return [text for entry in entries if (text := entry.strip().strip("'\""))]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _name(override: str) -> str:
    return override.lstrip("+~").split("=", 1)[0]


def _own(
    values: Mapping[str, object], names: Sequence[str], model: type[Part]
) -> dict[str, object]:
    """The values without the parts that a shared group (policy=) sets for other commands only."""
    overridden = {name.partition(".")[0] for name in names}
    return {
        key: value
        for key, value in values.items()
        if key in model.model_fields or key in overridden or key not in RunConfig.model_fields
    }


def _with_plugin(override: str, groups: Mapping[str, Sequence[str]]) -> str:
    """`judge=my_pkg.judge:Mine` as an option of the group, made for this class."""
    from hydra.core.config_store import ConfigStore

    group, _, value = override.partition("=")
    value = value.strip().strip("'\"").replace("\\:", ":")  # as a sweep writes it
    seam = _SEAMS.get(group)
    if seam is None or group not in groups or value in groups[group] or _SWEEP & set(value):
        return override
    if ":" not in value and value not in seam.installed():
        near = difflib.get_close_matches(value, [*groups[group], *seam.installed()], n=1)
        raise ConfigError(
            f"got {group}={value!r}"
            + (f" (did you mean {near[0]!r}?)" if near else "")
            + f", expected one of {', '.join([*groups[group], *seam.installed()])}, a name that an "
            f"installed package gives in its entry points {seam.group!r}, or package.module:Name"
        )
    package, _, key = seam.key.rpartition(".")
    node = {key: value}
    ConfigStore.instance().store(name=_PLUGIN, node=node, group=group, package=package)
    return f"{group}={_PLUGIN}"


def _refuse_foreign_groups(
    names: Sequence[str], groups: Mapping[str, Sequence[str]], config_name: str
) -> None:
    """Raise ConfigError for a group of `conf/` that this command does not take."""
    for name in names:
        if name and name not in groups and (conf_dir() / name).is_dir():
            raise ConfigError(
                f"got {name}=, which {config_name} does not have, expected one of its groups: "
                + ", ".join(groups)
            )


def _forced(override: str, groups: Mapping[str, Sequence[str]]) -> str:
    """Set a key whether or not the YAML lists it: the configuration class decides which exist."""
    name = override.split("=", 1)[0]
    if override[0] in "+~" or name in groups:
        return override
    return f"++{override}"


def _check_values(
    overrides: Sequence[str], groups: Mapping[str, Sequence[str]], command: str
) -> None:
    """Raise ConfigError for several values of one key, and for a group set to anything but text."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            key = override.key_or_group
            cure = (
                "add --multirun to train with one after another"
                if command == "train"
                else f"call {command} once for each"
            )
            raise ConfigError(
                f"got several values of {key!r}, expected one: {cure}; {key}=[A,B] is a list, and "
                "python -m clawrl_gym.bench compares recipes over seeds"
            )
        group, value = override.key_or_group, override.value()
        if group in groups and not override.is_delete() and not isinstance(value, str):
            raise ConfigError(
                f"got {group}={value!r}, expected one of {', '.join(groups[group])}"
                + (", or package.module:Name" if group in _SEAMS else "")
            )


def _hydra_message(error: Exception, names: Sequence[str], model: type[Part]) -> str:
    """Hydra's message in one line, with the nearest known key."""
    keys = set(model.dotted_keys())
    unknown = [name for name in names if "." in name and name not in keys]
    if unknown and not unknown[0].startswith("hydra."):
        return unknown_key(unknown[0], keys)
    unread = getattr(error, "override", None)
    if unread is not None:
        return f"cannot read {str(unread).lstrip('+')!r}; expected KEY=VALUE, quoted as YAML"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines).partition(" Config search path")[0]
    return text.replace(f" {_PLUGIN}", "")[:500]
