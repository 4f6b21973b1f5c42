"""Effect of hints on a policy before it is trained: the basis of personal figures.

In on-policy distillation a policy that has read the user's words is its own teacher. So first
replies are measured without a hint, with the user's own words, with other words for the same wish,
with another user's wish, and with random words. A policy that does well only with words that it was
supervised on learns nothing from a person who talks otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from clawrl_gym.comparison.measurement import Measurement, folder_of, is_measured, slug
from clawrl_gym.config import EvaluateConfig, HintConfig, RunConfig, RunFolderConfig
from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.intervals import share_of
from clawrl_gym.core.metrics import TEACHER_PROBE_FILE
from clawrl_gym.evaluation.settings import EVALUATION_FILE
from clawrl_gym.judge.rule_hints import hint_of_words
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm

KINDS = {
    "none": "no hint",
    "own": "the user's own words",
    "other": "other words, same wish",
    "another": "another user's wish",
    "random": "random words",
}
"""Hints by the value of `env.hint`, in words."""


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """First replies with one kind of hint."""

    hint: str
    """Kind of hint, in words."""
    tasks: int
    liked: float
    low: float
    high: float
    """The 95 % interval of `liked`."""
    correct: float


def is_probed(config: EvaluateConfig) -> bool:
    """Whether its environment's users have wishes that hints can be about."""
    options = config.env.options()
    return config.env.type == "conversation" and options.get("tasks") != "composed"


def follows_hints(config: RunConfig) -> bool:
    """Whether a run learns from hints."""
    return build_algorithm(config.trainer, config.rollout.group_size).needs_hints


def probe_of(column: EvaluateConfig, hints: HintConfig, name: str, folder: Path) -> Measurement:
    """The measurement of one policy with every kind of hint, put as this run puts them."""
    form = hints.form.format(hint=hint_of_words("{words}"))
    return Measurement(
        name,
        folder,
        {
            kind: column.model_copy(
                update={
                    "env": column.env.model_copy(update={"hint": kind, "hint_form": form}),
                    "run": RunFolderConfig(dir=str(folder / kind)),
                }
            )
            for kind in KINDS
        },
    )


def planned_probe(config: RunConfig) -> Measurement:
    """The probe of the policy that a run begins with. Raises ConfigError where none can be."""
    for name, domain in config.domains.items():
        column = EvaluateConfig.model_construct(
            policy=config.policy, gateway=config.gateway, live=config.live, env=domain.env,
            agent=domain.agent, rollout=config.rollout, eval=config.eval,
        )  # fmt: skip
        if is_probed(column):
            folder = _place(config)
            return probe_of(column, domain.judge.hints, name or "conversation", folder)
    kinds = ", ".join(sorted({domain.env.type for domain in config.domains.values()}))
    raise ConfigError(
        f"got env={kinds}, expected env=conversation: whether a hint was followed can be told only "
        "of users whose wish is known"
    )


def _place(config: RunConfig) -> Path:
    if config.run.dir is not None:
        return Path(config.run.dir) / "teacher_probe"
    return Path(config.run.root) / f"teacher_probe-{slug(config.policy.model)}"


def read_probe(measurement: Measurement) -> list[ProbeRow]:
    """Read its measured rows, in the order of `KINDS`."""
    return [
        _row(KINDS[kind], folder_of(config) / EVALUATION_FILE)
        for kind, config in measurement.columns.items()
        if is_measured(config)
    ]


def _row(hint: str, path: Path) -> ProbeRow:
    try:
        episodes = json.loads(path.read_text(encoding="utf-8"))["episodes"]
        scores = [episode["scores"] for episode in episodes]
        liked = share_of([score["liked"] == 1.0 for score in scores])
        correct = share_of([score["correct"] == 1.0 for score in scores])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"cannot read {str(path)!r} ({error}); remove its folder to measure it again"
        ) from error
    return ProbeRow(hint, liked.n, liked.value, liked.low, liked.high, correct.value)


def write_probe(folder: Path, rows: Sequence[ProbeRow]) -> None:
    """Leave it in a run's folder, where its report finds it. Raises StoreError."""
    try:
        replace_text(folder / TEACHER_PROBE_FILE, json.dumps([asdict(row) for row in rows]) + "\n")
    except OSError as error:
        raise StoreError(f"cannot write {str(folder / TEACHER_PROBE_FILE)!r}: {error}") from error


def probe_words(rows: Sequence[ProbeRow]) -> str:
    """The shares in one line: `no hint 0.10, the user's own words 0.87, ...`."""
    return ", ".join(f"{row.hint} {row.liked:.2f}" for row in rows)
