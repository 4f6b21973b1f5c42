"""Settings of an evaluation, in `evaluation.yaml`: only an evaluation of the same can be resumed.

Speed and addresses may change between two starts, never what is measured: tasks and samples may
become more, the server may move, its key may be another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import yaml

from clawrl_gym.config import EvaluateConfig
from clawrl_gym.config.part import leaf, leaves
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.core.provenance import Start, describe_start
from clawrl_gym.core.redact import hidden, is_secret
from clawrl_gym.inference.weights.files import weight_files

SETTINGS_FILE = "evaluation.yaml"
EVALUATION_FILE = "evaluation.json"
"""The figures, once it has ended."""
_MAY_CHANGE = (
    "run", "dry_run", "gateway", "live", "rollout",
    "endpoint.base_url", "endpoint.key", "endpoint.patience_s",
    "eval.tasks", "eval.k", "eval.samples", "eval.every", "eval.between_tasks", "eval.ends",
    "policy.servers", "policy.placement", "policy.port", "policy.kv_cache_gb",
    "policy.max_restarts", "policy.gpu_memory_utilization", "policy.max_num_seqs", "policy.serve",
    "policy.max_adapters", "policy.threads", "policy.enforce_eager", "policy.start_timeout_s",
)  # fmt: skip
"""Keys, and parts of the configuration, that say nothing about what is measured."""
_DECIDES = ("rollout.episode_timeout_s", "policy.request_timeout_s")
"""Keys that decide, whatever part they are in."""
_EDGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """The content of the file."""

    config: dict[str, object]
    """Configuration of the newest start, without secret keys."""
    weights: str | None
    """A mark of the weights; None of a server elsewhere."""
    tasks: int
    """Tasks that are measured, once each."""
    samples: int
    """Number of samples of each task, beside the greedy episode."""
    starts: tuple[Start, ...] = ()
    regraded_from: str | None = None
    """The folder whose episodes were graded again; None of an evaluation of its own."""

    @property
    def episodes(self) -> int:
        """Number of episodes when it is complete."""
        return self.tasks * (1 + self.samples)

    def differences(self, other: Settings) -> Iterator[str]:
        """Why `other` is not the same evaluation, a line each."""
        own, new = dict(deciding(self.config)), dict(deciding(other.config))
        for key in sorted(own.keys() | new.keys()):
            if own.get(key) != new.get(key):
                yield f"{key} was {_word(own.get(key))}, is {_word(new.get(key))}"
        if self.weights != other.weights:
            model = leaf(other.config, "policy.model")
            yield f"the weights in {model} are not those that were measured"

    def moves(self, other: Settings) -> str | None:
        """A message that the server is at another address now; None where it is not."""
        was, now = (leaf(one.config, "endpoint.base_url") for one in (self, other))
        if was == now:
            return None
        return f"endpoint.base_url was {was}, is {now}: treated as the same server"


def settings_of(
    config: EvaluateConfig, tasks: int, model: Path | None, regraded_from: str | None = None
) -> Settings:
    """Settings of a new evaluation; `model` is the folder whose weights are measured."""
    values = hidden(config.model_dump(mode="json"))
    mark = None if model is None or config.endpoint.base_url else mark_of(model)
    samples = config.eval.samples_per_task
    return Settings(values, mark, tasks, samples, (describe_start(),), regraded_from)


def read_settings(folder: Path) -> Settings:
    """Read the settings. Raises ConfigError where there are none, or they cannot be read."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        missing = "" if folder.exists() else ", there is no such folder"
        raise ConfigError(
            f"{folder} holds no evaluation (no {SETTINGS_FILE}{missing}); expected the folder of "
            "one, made by: python -m clawrl_gym.evaluate run.dir=PATH"
        )
    try:
        values = plain_values(path.read_text(encoding="utf-8"))
        settings = Settings(**{**values, "starts": tuple(values["starts"])})
        EvaluateConfig.of(settings.config)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError) as error:
        message = " ".join(str(error).split())
        raise ConfigError(f"cannot read {path}: {message}") from error
    return settings


def write_settings(folder: Path, settings: Settings) -> None:
    """Write the settings in one step. Raises OSError."""
    values = {**asdict(settings), "starts": list(settings.starts)}
    replace_text(folder / SETTINGS_FILE, yaml.safe_dump(values, sort_keys=False))


def continued(before: Settings, now: Settings) -> Settings:
    """The settings to resume with. Raises ConfigError when it is not the same evaluation."""
    differences = list(before.differences(now))
    if differences:
        raise ConfigError(
            "this folder holds an evaluation of something else: "
            + "; ".join(differences)
            + ". Choose another folder: run.dir=PATH"
        )
    return replace(
        now,
        tasks=max(before.tasks, now.tasks),
        samples=max(before.samples, now.samples),
        starts=(*before.starts, *now.starts),
    )


def mark_of(model: Path) -> str:
    """Fingerprint of a folder's weights: of each file its size, its beginning and its end.

    Raises ConfigError when they cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for name, path in sorted(weight_files(model).items()):
            size = path.stat().st_size
            digest.update(f"{name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(_EDGE_BYTES))
                file.seek(max(0, size - _EDGE_BYTES))
                digest.update(file.read())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the weights in {model}: {error}") from error
    return digest.hexdigest()[:16]


def deciding(config: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Settings that two starts of an evaluation must have in common."""
    elsewhere = leaf(config, "endpoint.base_url") is not None
    whole = EvaluateConfig.of(config).model_dump(mode="json")
    for key, value in leaves(whole):
        if key in _DECIDES:
            yield key, value
        elif elsewhere and key.startswith("policy."):
            continue
        elif not (_is_below(key, _MAY_CHANGE) or is_secret(key)):
            yield key, value


def _is_below(key: str, names: tuple[str, ...]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _word(value: object) -> str:
    return "not set" if value is None else str(value)
