"""Support of this machine for SWE: which sandbox, and which repositories of the corpus run in it.

Without a Docker engine the corpus runs in bubblewrap, less the repositories whose test frameworks
this machine lacks. Instances of data sets live in images, which need an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from clawrl_gym.core.errors import ConfigError, SandboxError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.envs.sandbox.docker.addresses import EngineSearch, find_engine
from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.modules import module_mounts
from clawrl_gym.envs.swe.rows.runners import missing_runners, modules_for
from clawrl_gym.envs.swe.source import (
    COMPOSED,
    is_of_this_machine,
    lives_in_images,
    runners_of_families,
)

_FRAMEWORKS = (
    "install the framework below /usr (pytest: beside this package), start an engine, whose image "
    "has all of them"
)


def settled(config: SweEnvConfig, say: Callable[[str], None]) -> SweEnvConfig:
    """The configuration with the kind of sandbox and the families that this machine can run.

    Raises SandboxError where nothing isolates, ConfigError for families that cannot be tested.
    """
    require_package("swebench", "grades with its log parsers")
    if config.sandbox.type != "auto":
        return _with_testable_families(config, say)
    search = find_engine()
    sandbox = config.sandbox.model_copy(update={"type": usual_kind(config, search)})
    config = config.model_copy(update={"sandbox": sandbox})
    has_images = Sandboxes.of(sandbox).capabilities.images
    if has_images and search.address is None:
        raise SandboxError(f"{search.refusal()}{_without_images(config)}")
    if has_images:
        say(f"env=swe: sandbox=docker, {search.address}")
        return config
    if is_of_this_machine(config):
        say("env=swe: sandbox=bubblewrap, for repositories that run with a Python of this machine")
        return config
    for trouble in search.troubles:
        say(f"env=swe: {trouble}")
    try:
        return _with_testable_families(config, say, "no Docker engine answers, so ")
    except SandboxError as error:
        raise SandboxError(f"{search.refusal()}; and it does not run here: {error}") from error


def _with_testable_families(
    config: SweEnvConfig, say: Callable[[str], None], why: str = ""
) -> SweEnvConfig:
    families = tuple(runners_of_families(config))
    if not Sandboxes.of(config.sandbox).capabilities.mounts or not families:
        return config
    reasons = _untestable(config)
    if reasons and (config.families is not None or len(reasons) == len(families)):
        raise ConfigError(_refusal(reasons, config.sandbox.type))
    left = [family for family in families if family not in reasons]
    what = "families" if config.instances == COMPOSED else "repositories"
    say(f"env=swe: {why}sandbox={config.sandbox.type}, {len(left)} of {len(families)} {what}")
    for reason, names in _by_reason(reasons).items():
        say(f"env=swe: left out {', '.join(names)} ({reason})")
    return config.model_copy(update={"families": left}) if reasons else config


def require_package(name: str, use: str) -> None:
    """Raises ConfigError without it, before a run finds out at its first grade."""
    if find_spec(name) is None:
        raise ConfigError(
            f"env=swe {use}, but the package {name} is not installed: {how_to_install('swe')}"
        )


def usual_kind(config: SweEnvConfig, search: EngineSearch) -> str:
    """Kind behind `sandbox=auto`: bubblewrap where nothing answers, names or needs Docker."""
    if _wants_docker(config):
        return "docker"
    answers = search.address is not None or search.named
    return "docker" if answers and not is_of_this_machine(config) else "bubblewrap"


def _wants_docker(config: SweEnvConfig) -> bool:
    sandbox = config.sandbox
    return sandbox.image is not None or sandbox.network or lives_in_images(config)


def _without_images(config: SweEnvConfig) -> str:
    return (
        "; but the instances here live in images, which only Docker runs: env.instances=corpus "
        "needs none"
        if lives_in_images(config)
        else ""
    )


def _untestable(config: SweEnvConfig) -> Mapping[str, str]:
    """Families whose tests do not run in this sandbox, each with the reason."""
    needed = runners_of_families(config)
    runners = [name for names in needed.values() for name in names]
    sandbox = Sandboxes.of(config.sandbox).open(
        SandboxSpec(mounts=module_mounts(modules_for(runners)))
    )
    try:
        missing = missing_runners(runners, sandbox)
    finally:
        sandbox.close()
    return {
        family: "; ".join(missing[name] for name in names if name in missing)
        for family, names in needed.items()
        if not missing.keys().isdisjoint(names)
    }


def _refusal(reasons: Mapping[str, str], kind: str) -> str:
    parts = [f"{', '.join(names)} ({reason})" for reason, names in _by_reason(reasons).items()]
    return (
        f"the tests of these repositories do not run in sandbox={kind} here: "
        f"{'; '.join(parts)}; {_FRAMEWORKS}, or name others in env.families"
    )


def _by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    families: dict[str, list[str]] = {}
    for family, reason in reasons.items():
        families.setdefault(reason, []).append(family)
    return families
