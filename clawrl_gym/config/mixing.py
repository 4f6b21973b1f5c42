"""From `env=[terminal,toolcall] mixture.terminal.weight=2` to a configuration for each environment.

Settings that `env=NAME` alone would choose for an environment (its keys, its agent, its judge, its
curriculum, the time and number of its episodes) are its own in a mixture, too. All else belongs to
the run, the model too; a judge or a curriculum on the command line is for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clawrl_gym.config.policy import SamplingConfig
from clawrl_gym.core.errors import ConfigError

Values = dict[str, object]
ComposeAlone = Callable[[str], Values]
"""The whole configuration of a run of one environment, by its name after `env=`."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_OWN = ("env", "agent", "judge", "curriculum")
"""Groups that `env=NAME` alone chooses."""
_OF_ROLLOUT = ("episode_timeout_s", "envs_per_worker")
"""Keys of `rollout` that it chooses as well."""
_OF_ALL = ("policy", "learner")
"""Parts that a mixture takes from its environments alone, where they agree."""
_OF_ONE = ("env", "agent")
"""Parts that each environment of a mixture has for itself."""


def listed_envs(overrides: Sequence[str], command: str) -> tuple[list[str] | None, list[str]]:
    """The names in `env=[A,B]`, None without it, and the other overrides. Raises ConfigError."""
    names: list[str] | None = None
    rest = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key != "env" or not value.strip().startswith("["):
            rest.append(override)
            continue
        if command != "train":
            raise ConfigError(
                f"got {override}, expected one environment, env=NAME: a mixture is trained on "
                f"(python -m clawrl_gym.train {override}); call {command} once for each"
            )
        entries = value.strip().removeprefix("[").removesuffix("]").split(",")
        names = [entry.strip().strip("'\"") for entry in entries]
        _check_names(names, override)
    return names, rest


def _check_names(names: Sequence[str], override: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"got {override}, expected names such as env=[terminal,toolcall]; an environment "
                "of your own has a name here and its type beside it: env=[terminal,mine] "
                "mixture.mine.env.type=my_pkg.env:MyEnv"
            )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"got {override} with {twice[0]} twice, expected each name once: for two forms of one "
            f"kind give them names, env=[{twice[0]},other] mixture.other.env.type={twice[0]}, and "
            "mixture.other.env.KEY=VALUE for what differs"
        )


def is_of_mixture(override: str) -> bool:
    """Whether an override concerns single environments."""
    name = override.lstrip("+~").partition("=")[0]
    return name.partition(".")[0] in (*_OF_ONE, "mixture")


def with_mixture(
    values: Values, names: Sequence[str] | None, overrides: Sequence[str], alone: ComposeAlone
) -> Values:
    """The run's values, its environments filled in; unchanged without a mixture.

    Raises ConfigError where an override cannot say which environment it is of.
    """
    domains = _domains(values.get("mixture"), names)
    if not domains:
        return values
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key.partition(".")[0] in _OF_ONE:
            rest = f"{key}=" if "." in key else f"{key}.type="
            raise ConfigError(
                f"got {override} with a mixture of {', '.join(domains)}, expected the name of the "
                f"one that it is of: mixture.{next(iter(domains))}.{rest}VALUE"
            )
    usual = {name: _usual(name, given, alone) for name, given in domains.items()}
    filled = {name: _filled(usual[name], given) for name, given in domains.items()}
    first = next(iter(filled.values()))
    shared = {name: _agreed(name, values, list(usual.values())) for name in _OF_ALL}
    shared["policy"] = _shared_policy(shared["policy"], [own["policy"] for own in usual.values()])
    return {
        **values, **shared, "env": first["env"], "agent": first["agent"], "mixture": filled,
    }  # fmt: skip


def _agreed(name: str, values: Values, usual: Sequence[Values]) -> object:
    """The run's part, with the values that all of them would have alone."""
    own = values[name]
    alone = [kind for kind in (each[name] for each in usual) if isinstance(kind, Mapping)]
    if not isinstance(own, Mapping) or not alone:
        return own
    first, *others = alone
    return {**own, **{key: v for key, v in first.items() if all(o.get(key) == v for o in others)}}


def _shared_policy(policy: object, policies: Sequence[object]) -> object:
    """The shared policy: a reply may be as long as the longest that one of them allows."""
    if not isinstance(policy, Mapping):
        return policy
    own = [each for each in policies if isinstance(each, Mapping)]
    shared = dict(policy)
    longest = max(map(_max_tokens, own), default=0)
    if longest > _max_tokens(policy):
        shared["sampling"] = {**policy.get("sampling", {}), "max_tokens": longest}
    return shared


def _max_tokens(policy: Mapping[str, Any]) -> int:
    sampling = policy.get("sampling")
    found = sampling.get("max_tokens") if isinstance(sampling, Mapping) else None
    return found if isinstance(found, int) else SamplingConfig().max_tokens


def _domains(mixture: object, names: Sequence[str] | None) -> dict[str, Values]:
    """The settings of each environment, in the order in which they were named."""
    if mixture is None:
        mixture = {}
    if not isinstance(mixture, Mapping):
        raise ConfigError(
            f"got mixture={mixture!r}, expected weights by name, such as "
            "mixture={terminal:2,toolcall:1}"
        )
    foreign = [name for name in mixture if names is not None and name not in names]
    if foreign:
        raise ConfigError(
            f"got mixture.{foreign[0]} with env=[{','.join(names or ())}], expected one of these "
            "names: what is mixed has to stand in env=[...]"
        )
    if names is None:
        _check_names([str(name) for name in mixture], "mixture={" + ",".join(mixture) + "}")
    return {name: _said(name, mixture.get(name)) for name in (names or mixture)}


def _said(name: str, said: object) -> Values:
    """Settings of one environment; a number alone is a weight."""
    if said is None:
        return {}
    if isinstance(said, int | float) and not isinstance(said, bool):
        return {"weight": said}
    if not isinstance(said, Mapping):
        raise ConfigError(
            f"got mixture.{name}={said!r}, expected a weight above 0, or keys such as "
            f"mixture.{name}.weight=2 and mixture.{name}.env.max_turns=4"
        )
    return dict(said)


def _usual(name: str, said: Values, alone: ComposeAlone) -> Values:
    """The configuration of a run of this environment alone. Raises ConfigError."""
    own_env = said.get("env")
    kind = own_env.get("type") if isinstance(own_env, Mapping) else None
    if kind is not None and not isinstance(kind, str):
        raise ConfigError(f"got mixture.{name}.env.type={kind!r}, expected a name")
    try:
        return alone(kind or name)
    except ConfigError as error:
        raise ConfigError(f"mixture.{name}: {error}") from error


def _filled(usual: Values, said: Values) -> Values:
    rollout = usual.get("rollout")
    own: Values = {key: usual[key] for key in _OWN if key in usual}
    if isinstance(rollout, Mapping):
        own |= {key: rollout[key] for key in _OF_ROLLOUT if key in rollout}
    return _merged(own, said)


def _merged(usual: Mapping[str, object], said: Mapping[str, object]) -> Values:
    """Merge settings key by key; those in `said` win."""
    merged = dict(usual)
    for key, value in said.items():
        own = merged.get(key)
        both = isinstance(own, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(own, value) if both else value  # type: ignore[arg-type]
    return merged
