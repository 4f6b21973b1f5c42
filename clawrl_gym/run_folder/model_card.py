"""The model card of an export: what run, which environment, what was measured; nothing private.

It is made to be published, so it names no path of this machine, no command line and no key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from clawrl_gym.config.part import leaf
from clawrl_gym.config.sft import is_supervised
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import (
    HELDOUT_HIGH,
    HELDOUT_LOW,
    HELDOUT_N,
    HELDOUT_SUCCESS,
    METRICS_FILE,
    MetricRow,
    by_step,
)
from clawrl_gym.core.processes.controls import control_words
from clawrl_gym.core.provenance import read_starts
from clawrl_gym.inference.models.resolve import HUB_ID, sees
from clawrl_gym.inference.models.shipped import SHIPPED
from clawrl_gym.inference.models.wheels import WHEEL_MODELS
from clawrl_gym.inference.weights.checkpoints import run_of
from clawrl_gym.run_folder.folder import RunFolder

CARD = "README.md"
CARD_TAG = "clawrl-gym"
"""Tag that marks an export."""
_TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
_MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class Measured:
    """A held-out evaluation of the run."""

    step: int
    success: str
    interval: str
    n: int


def model_card(
    folder: RunFolder,
    values: dict[str, object],
    model: Path,
    step: int,
    dtype: str,
    name: str,
    *,
    is_adapter: bool = False,
    is_of_user: bool = False,
) -> str:
    """The card of the checkpoint after update `step`, in Markdown; `model` is its folder.

    `is_adapter`: it holds the adapter alone, and `model` is what it stands on. `is_of_user`: what
    was measured is of the run's own weights, and not of these.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # it makes text, never a page
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    rows = [] if is_of_user else by_step(read_json_lines(folder.path / METRICS_FILE))
    measured = [_measured(row) for row in rows if HELDOUT_SUCCESS in row and row["step"] <= step]
    starts = read_starts(folder.path)
    base, runs = _origin(str(leaf(values, "policy.model")))
    return environment.get_template("model_card.md.j2").render(
        front_matter=_front_matter(base, "peft" if is_adapter else "transformers"),
        is_adapter=is_adapter,
        control=control_words(leaf(values, "control")),
        is_of_user=is_of_user,
        loader="AutoModelForImageTextToText" if sees(model) else "AutoModelForCausalLM",
        reader="AutoProcessor" if sees(model) else "AutoTokenizer",
        name=name,
        run=folder.path.absolute().name,
        base=base,
        runs=runs,
        step=step,
        dtype=dtype,
        settings=list(_settings(values)),
        temperature=leaf(values, "eval.temperature") or 0,
        before=next((one for one in measured if one.step == 0), None),
        after=next((one for one in measured if one.step == step and step), None),
        measured=measured,
        versions=starts[-1].get("versions", {}) if starts else {},
        commit=starts[-1].get("commit") if starts else None,
        day=_day(starts[-1]["started_s"]) if starts and "started_s" in starts[-1] else None,
    )


def _front_matter(base: str, library: str) -> str:
    """Header for the Hugging Face hub."""
    facts: dict[str, object] = {
        "library_name": library,
        "tags": [CARD_TAG, "reinforcement-learning"],
    }
    if HUB_ID.match(base):
        facts["base_model"] = base
    return yaml.safe_dump(facts, sort_keys=False, indent=2)


def _measured(row: MetricRow) -> Measured:
    low, high = row.get(HELDOUT_LOW, 0.0), row.get(HELDOUT_HIGH, 1.0)
    interval = f"{low:.1%} to {high:.1%}"
    return Measured(
        int(row["step"]), f"{row[HELDOUT_SUCCESS]:.1%}", interval, int(row.get(HELDOUT_N, 0))
    )


_SETTINGS = {
    "environment": "env.type",
    "its id": "env.id",
    "its class": "env.target",
    "algorithm": "trainer.algorithm",
    "judge": "judge.type",
    "updates of the run": "trainer.steps",
    "groups of a batch": "rollout.groups",
    "episodes of a group": "rollout.group_size",
    "learning rate": "learner.lr",
    "sampling temperature": "policy.sampling.temperature",
    "context in tokens": "policy.max_model_len",
    "demonstrations": "demonstrations",
    "epochs": "epochs",
    "sequences of a batch": "batch",
    "seed": "seed",
}


def _settings(values: dict[str, object]) -> Iterator[tuple[str, object]]:
    """Main settings of a run's configuration, as far as they are there."""
    serves = "learn" in values
    if is_supervised(values):
        yield "command", "sft (supervised learning)"
        if not values.get("demonstrations"):
            values = {name: part for name, part in values.items() if name != "env"}
    else:
        yield "command", "serve (live conversations)" if serves else "train"
    mixture = leaf(values, "mixture")
    if isinstance(mixture, dict) and mixture:
        yield "environments", ", ".join(mixture)
        values = {name: part for name, part in values.items() if name not in ("env", "judge")}
    for words, key in _SETTINGS.items():
        value = leaf(values, key)
        if value is not None and not (serves and key == "trainer.steps"):
            yield words, value
    for key in ("env.tasks", "env.instances"):
        tasks = leaf(values, key)
        if tasks is not None:
            yield "tasks", Path(str(tasks)).name


def _origin(model: str) -> tuple[str, list[str]]:
    """The model that the first run of a chain began with, and the runs between, the newest first.

    Of a folder only its name is told.
    """
    runs: list[str] = []
    while (run := run_of(model)) is not None and len(runs) < _MAX_RUNS:
        runs.append(f"{run.name} (update {int(Path(model).name)})")
        try:
            model = str(leaf(RunFolder(run).read_values(), "policy.model"))
        except ConfigError:
            return "unknown", runs
    if model in WHEEL_MODELS:
        return WHEEL_MODELS[model].hub_id, runs
    known = model in SHIPPED or (HUB_ID.match(model) and not Path(model).exists())
    return (model if known else Path(model).name), runs


def _day(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(unix_s))
