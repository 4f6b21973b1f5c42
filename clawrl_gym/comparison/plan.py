"""Which runs a bench consists of, and their command lines. Everything wrong is found here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config import BenchConfig, RunConfig
from clawrl_gym.config.compose import compose, groups_of, split_search_path
from clawrl_gym.core.errors import ConfigError

_RESERVED = {
    "seed": "seeds=N",
    "run.dir": "dir=PATH",
    "run.name": "dir=PATH",
    "run.root": "dir=PATH",
    "resume": "the same dir=PATH again",
    "ui": "no word about it",
}
"""Keys of a run that the bench sets itself, and what to give instead."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a recipe."""

    recipe: str
    seed: int
    folder: Path
    arguments: tuple[str, ...]
    """Of `clawrl_gym.train`, without its folder."""
    config: RunConfig
    """The recipe's, the same for every seed."""

    @property
    def name(self) -> str:
        return f"{self.recipe} seed {self.seed}"

    @property
    def steps(self) -> int:
        """Updates."""
        return self.config.trainer.steps

    @property
    def record_file(self) -> Path:
        """How it went; beside the folder, which a new attempt replaces."""
        return self.folder.with_suffix(".json")

    @property
    def log_file(self) -> Path:
        return self.folder.with_suffix(".log")


def plan_runs(config: BenchConfig) -> list[PlannedRun]:
    """All runs, seed by seed, so that recipes can be compared early. Raises ConfigError."""
    for override in config.overrides:
        name = override.lstrip("+~").split("=", 1)[0]
        if name in _RESERVED:
            raise ConfigError(
                f"got {override!r}, expected {_RESERVED[name]}: the bench sets {name} for each run"
            )
    types = {name: _env_type(name, config.overrides) for name in config.environments}
    recipes = {name: _recipe(name, config.overrides) for name in config.experiment}
    runs = []
    for seed in range(config.seeds):
        for name, recipe in recipes.items():
            own = (f"experiment={name}", f"seed={seed}", *config.overrides)
            foreign = [env for env, kind in types.items() if kind != recipe.env.type]
            if not recipe.eval.also and foreign:
                own = (*own, f"eval.also=[{','.join(foreign)}]")
            folder = Path(config.dir) / name / f"seed{seed}"
            runs.append(PlannedRun(name, seed, folder, own, recipe))
    return runs


def quoted(path: Path) -> str:
    """A path as a value on a command line, whatever characters it has."""
    text = str(path)
    if re.fullmatch(r"[\w./-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _env_type(name: str, overrides: Sequence[str]) -> str:
    _, places = split_search_path(overrides)
    _check_option("env", name, places)
    search_path = [argument for place in places for argument in ("--config-dir", place)]
    return compose("train", [*search_path, f"env={name}"], RunConfig).env.type


def _recipe(name: str, overrides: tuple[str, ...]) -> RunConfig:
    _check_option("experiment", name, split_search_path(overrides)[1])
    try:
        return compose("train", [f"experiment={name}", *overrides], RunConfig)
    except ConfigError as error:
        raise ConfigError(f"experiment {name!r} does not take this: {error}") from error


def _check_option(group: str, name: str, places: Sequence[str]) -> None:
    options = groups_of("train", places)[group]
    if name not in options:
        near = difflib.get_close_matches(name, options, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"got {group} {name!r}, expected one of conf/{group}/: {', '.join(options)}{hint}"
        )
