"""Runs and measurements of a bench. Every mistake is found here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.comparison.measurement import Measurement, slug
from clawrl_gym.comparison.teacher_probe import follows_hints, is_probed, probe_of
from clawrl_gym.config import BenchConfig, EvaluateConfig, RunConfig, RunFolderConfig
from clawrl_gym.config.compose import groups_of, split_search_path
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import METRICS_FILE
from clawrl_gym.core.processes.controls import Control
from clawrl_gym.preflight.contradictions import idle_control
from clawrl_gym.recipe.model_size import compose_sized
from clawrl_gym.recipe.reply_form import spoken_like, with_form
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm

CONTROL_MARK = "-control-"
"""Part of a control's name, between its recipe and its kind."""
_RESERVED = {
    "control": "controls=NAME",
    "seed": "seeds=N",
    "run.dir": "dir=PATH",
    "run.name": "dir=PATH",
    "run.root": "dir=PATH",
    "resume": "the same dir=PATH again",
    "ui": "no word about it",
    "eval.ends": "no word about it",
    "eval.also": "matrix=[NAME,NAME]",
    "environments": "matrix=[NAME,NAME]",
}
"""Keys of a run that the bench sets itself, and what to give instead."""
_OF_MEASURING = frozenset({"policy", "size", "gateway", "live", "rollout", "eval", "sandbox"})
"""Groups and parts of a run's keys that hold for a measurement, too."""
_OF_ENVIRONMENT = frozenset({"env", "agent"})
"""Groups that apply where the recipes' own environment is measured."""
_ONLY_MEASURED = frozenset({"eval.k", "eval.samples"})
"""Keys that say nothing to a run that does not measure its ends."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The environments of the matrix: options of conf/env/, by name how each is measured."""

    configs: dict[str, EvaluateConfig]

    def of_recipe(self, recipe: RunConfig) -> dict[str, str]:
        """Those that a recipe trains on, by their names in its mixture: the first of each kind."""
        kinds = {config.env.type: name for name, config in reversed(self.configs.items())}
        return {name: kinds[domain.env.type] for name, domain in recipe.domains.items()}

    def for_policy(self, folder: Path, like: RunConfig, model: str) -> dict[str, EvaluateConfig]:
        """Evaluations of a model, served as in a run."""
        policy = like.policy.model_copy(update={"model": model})
        served = {"policy": policy, "gateway": like.gateway, "live": like.live}
        return {
            name: config.model_copy(
                update={
                    **served,
                    "agent": spoken_like(config.agent, like.agent),
                    "run": RunFolderConfig(dir=str(folder / slug(name))),
                }
            )
            for name, config in self.configs.items()
        }


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a recipe."""

    recipe: str
    seed: int
    folder: Path
    arguments: tuple[str, ...]
    """Arguments of `clawrl_gym.train`, without its folder."""
    config: RunConfig
    """The recipe's, the same for every seed."""
    trained_on: dict[str, str]
    """Environments of the matrix, each by its name in a mixture; of one alone that is empty."""
    baseline: Measurement
    """Measurement of the model that it begins with."""
    after: Measurement
    """Measurement of the weights that it ends with."""
    probe: Measurement | None = None
    """Teacher probe of the model that it begins with; None where it does not learn from hints."""
    unit = "updates"

    @property
    def name(self) -> str:
        return f"{self.recipe} seed {self.seed}"

    @property
    def env_name(self) -> str:
        """Name of its training environments, as in the matrix: `terminal`, `terminal+toolcall`."""
        return "+".join(self.trained_on.values())

    @property
    def steps(self) -> int:
        """Updates."""
        return self.config.trainer.steps

    @property
    def episodes(self) -> int:
        """Number of episodes that its updates train on."""
        return self.steps * episodes_per_update(self.config)

    @property
    def record_file(self) -> Path:
        """File of its record; beside the folder, which a new attempt replaces."""
        return self.folder.with_suffix(".json")

    @property
    def log_file(self) -> Path:
        return self.folder.with_suffix(".log")

    def progress(self) -> int:
        """Updates that it has logged."""
        steps = [row.get("step") for row in read_json_lines(self.folder / METRICS_FILE)]
        return max((step for step in steps if isinstance(step, int)), default=0)


def plan_runs(config: BenchConfig) -> list[PlannedRun]:
    """All runs, seed by seed, so that recipes can be compared early. Raises ConfigError."""
    _check_overrides(config)
    shared = _with_default(config.overrides, "eval.temperature", "0")
    recipes = _with_controls(
        config.controls, {name: _recipe(config, name, shared) for name in config.experiment}
    )
    columns = _columns(config, shared, [recipe.config for recipe in recipes.values()])
    folder = Path(config.dir)
    baselines = _baselines(folder, columns, {name: one.config for name, one in recipes.items()})
    probes = _probes(folder, baselines, {name: one.config for name, one in recipes.items()})
    runs = []
    for seed in range(config.seeds):
        for name, one in recipes.items():
            recipe = one.config
            arguments = (f"seed={seed}", "eval.ends=false", *one.arguments)
            arguments = (f"experiment={one.experiment}", *arguments)
            if recipe.learner.remote_checkpoints is not None:  # seeds are called alike everywhere
                address = "/".join((recipe.learner.remote_checkpoints, folder.name, name))
                arguments += (f"learner.remote_checkpoints={quoted(address)}",)
            place = folder / name / f"seed{seed}"
            runs.append(
                PlannedRun(
                    name,
                    seed,
                    place,
                    arguments,
                    recipe,
                    columns.of_recipe(recipe),
                    baselines[name],
                    _after(place, f"{name} seed {seed}", columns, recipe),
                    probes.get(name),
                )
            )
    return runs


def baselines_of(runs: Sequence[PlannedRun]) -> list[Measurement]:
    """Each once."""
    return list({run.baseline.folder: run.baseline for run in runs}.values())


def probes_of(runs: Sequence[PlannedRun]) -> list[Measurement]:
    """Each once."""
    return list({run.probe.folder: run.probe for run in runs if run.probe is not None}.values())


def episodes_per_update(config: RunConfig) -> int:
    """Training episodes."""
    return config.rollout.groups * config.rollout.group_size


def quoted(path: Path | str) -> str:
    """A path or an address as a value on a command line, whatever characters it has."""
    text = str(path)
    if re.fullmatch(r"[\w./-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _baselines(
    folder: Path, columns: Columns, recipes: Mapping[str, RunConfig]
) -> dict[str, Measurement]:
    """Baselines by recipe; one for all that begin with the same model and serve it alike."""
    baselines: dict[str, Measurement] = {}
    ways: dict[str, list[tuple[object, ...]]] = {}
    for name, recipe in recipes.items():
        model, way = recipe.policy.model, (recipe.policy, recipe.gateway, recipe.live)
        of_model = ways.setdefault(model, [])
        if way not in of_model:
            of_model.append(way)
        number = of_model.index(way) + 1
        other = f"-{number}" if number > 1 else ""
        place = folder / f"baseline-{slug(model)}{other}"
        plan = columns.for_policy(place, recipe, model)
        baselines[name] = Measurement(f"baseline{other} of {model}", place, plan)
    return baselines


def _probes(
    folder: Path, baselines: Mapping[str, Measurement], recipes: Mapping[str, RunConfig]
) -> dict[str, Measurement]:
    """Probes by recipe, of those that learn from hints; one for all that share a baseline."""
    probes: dict[str, Measurement] = {}
    for name, recipe in recipes.items():
        baseline = baselines[name]
        judges = [d.judge for d in recipe.domains.values() if d.env.type == "conversation"]
        probed = [column for column in baseline.columns.values() if is_probed(column)]
        if not (judges and probed and follows_hints(recipe)):
            continue
        place = folder / baseline.folder.name.replace("baseline", "probe", 1)
        words = baseline.name.replace("baseline", "teacher probe", 1)
        probes[name] = probe_of(probed[0], judges[0].hints, words, place)
    return probes


def _after(run: Path, name: str, columns: Columns, recipe: RunConfig) -> Measurement:
    place = run.with_name(f"{run.name}-measured")
    return Measurement(f"{name}, measured", place, columns.for_policy(place, recipe, str(run)))


def _check_overrides(config: BenchConfig) -> None:
    for override in config.overrides:
        name = _key(override)
        if name in _RESERVED:
            raise ConfigError(
                f"got {override!r}, expected {_RESERVED[name]}: the bench sets {name} for each run"
            )
        if name == "trainer.steps" and config.episodes is not None:
            raise ConfigError(
                f"got {override!r} together with episodes={config.episodes}, expected one of them: "
                "episodes sets trainer.steps of each recipe"
            )


@dataclass(frozen=True, slots=True)
class _Recipe:
    """An experiment, or a control of it."""

    experiment: str
    config: RunConfig
    arguments: tuple[str, ...]
    """Arguments of its runs beside the experiment."""


def _with_controls(
    controls: Sequence[Control], recipes: Mapping[str, _Recipe]
) -> dict[str, _Recipe]:
    """Every recipe, and after it the controls that it can be run with.

    Raises ConfigError for a control that fits none.
    """
    planned: dict[str, _Recipe] = {}
    fitting = set()
    for name, recipe in recipes.items():
        planned[name] = recipe
        algorithm = build_algorithm(recipe.config.trainer, recipe.config.rollout.group_size)
        for control in controls:
            config = recipe.config.model_copy(update={"control": control})
            if any(idle_control(config, algorithm)):
                continue
            fitting.add(control)
            own = (*recipe.arguments, f"control={control}")
            planned[f"{name}{CONTROL_MARK}{control}"] = _Recipe(recipe.experiment, config, own)
    for control in controls:
        if control not in fitting:
            raise ConfigError(
                f"got controls={control} and no recipe that learns from what it makes worthless, "
                f"expected one beside {', '.join(recipes)}"
            )
    return planned


def _recipe(config: BenchConfig, name: str, overrides: tuple[str, ...]) -> _Recipe:
    """A composed recipe, with the arguments that are added for it."""
    _check_option("experiment", name, split_search_path(overrides)[1])
    own = tuple(override for override in overrides if _key(override) not in _ONLY_MEASURED)
    try:
        recipe = compose_sized("train", [f"experiment={name}", *own], RunConfig)
        if config.episodes is not None:
            steps = max(1, round(config.episodes / episodes_per_update(recipe)))
            own = (*own, f"trainer.steps={steps}")
            recipe = compose_sized("train", [f"experiment={name}", *own], RunConfig)
    except ConfigError as error:
        raise ConfigError(f"experiment {name!r} does not take this: {error}") from error
    return _Recipe(name, with_form(recipe, own), own)


def _columns(
    config: BenchConfig, overrides: tuple[str, ...], recipes: Sequence[RunConfig]
) -> Columns:
    """The named columns, and those that recipes train on."""
    overrides, places = _without_search_path(overrides)
    search_path = [argument for place in places for argument in ("--config-dir", place)]
    shared = [override for override in overrides if _part(override) in _OF_MEASURING]
    own = [override for override in overrides if _part(override) in _OF_ENVIRONMENT]
    own = [override for override in own if _key(override) not in _OF_ENVIRONMENT]
    kinds = {domain.env.type for recipe in recipes for domain in recipe.domains.values()}

    def measured(name: str, extra: Sequence[str]) -> EvaluateConfig:
        arguments = [*search_path, f"env={name}", *shared, *extra]
        return compose_sized("evaluate", arguments, EvaluateConfig)

    configs: dict[str, EvaluateConfig] = {}
    for name in config.matrix:
        _check_option("env", name, places)
        plain = measured(name, ())
        configs[name] = measured(name, own) if own and plain.env.type in kinds else plain
    for kind in sorted(kinds - {column.env.type for column in configs.values()}):
        configs[kind] = measured(kind, own)
    return Columns(configs)


def _without_search_path(overrides: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    rest, places = split_search_path(overrides)
    return tuple(rest), places


def _with_default(overrides: tuple[str, ...], key: str, value: str) -> tuple[str, ...]:
    given = any(_key(override) == key for override in overrides)
    return overrides if given else (*overrides, f"{key}={value}")


def _key(override: str) -> str:
    return override.lstrip("+~").split("=", 1)[0]


def _part(override: str) -> str:
    return _key(override).split(".", 1)[0]


def _check_option(group: str, name: str, places: Sequence[str]) -> None:
    options = groups_of("train", places)[group]
    if name not in options:
        near = difflib.get_close_matches(name, options, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"got {group} {name!r}, expected one of conf/{group}/: {', '.join(options)}{hint}"
        )
