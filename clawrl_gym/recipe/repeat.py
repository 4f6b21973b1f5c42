"""`--config runs/NAME/config.yaml`: a run's own configuration in place of conf/, to run it again.

Everything is as it was, the seed too, but the folder, which is a new one. KEY=VALUE wins over it.
What the file cannot bring back is told: keys that are hidden, other versions, settings of today.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from clawrl_gym.config import Part, RunConfig, ServeConfig
from clawrl_gym.config.compose import split_search_path, with_overrides
from clawrl_gym.config.part import leaves
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.provenance import git_commit, package_versions, read_starts
from clawrl_gym.core.redact import is_secret
from clawrl_gym.run_folder.folder import read_config_values

FLAG = "--config"
C = TypeVar("C", bound=Part)
_OF_ONE_RUN = ("run.dir", "run.name", "resume", "dry_run", "print_config", "print_unit")
"""Keys that say which run it was, and not how it ran."""
_HIDDEN = ("hidden", "[hidden]", "***")
"""Forms in which a report, a log and run.json write a hidden key."""
_PATHS = ("tasks", "instances", "heldout", "model", "teacher")
"""Keys whose value may be a path."""
_log = logging.getLogger(__name__)


def split_config(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The file that `--config` names, and the other arguments. Raises ConfigError without one."""
    rest: list[str] = []
    files: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        flag, equals, value = argument.partition("=")
        if flag == FLAG:
            files.append(value if equals else next(waiting, ""))
        else:
            rest.append(argument)
    if len(files) > 1 or "" in files:
        raise ConfigError(
            f"got {FLAG} {' '.join(files)}, expected one file: {FLAG} runs/NAME/config.yaml"
        )
    if not files:
        return None, rest
    file = Path(files[0])
    return (file / "config.yaml" if file.is_dir() else file), rest


def repeated(
    file: Path, arguments: Sequence[str], command: str, model: type[C], flag: str = FLAG
) -> C:
    """The configuration in `file`, with the command line's keys over it, for a run of its own.

    `flag` is what the command line asked for it with. Raises ConfigError when it is of another
    command, or a key in it is hidden.
    """
    if not file.is_file():
        raise ConfigError(f"there is no file {file}, expected the config.yaml of a run")
    stored = read_config_values(file)
    _check_command(file, stored, command)
    values = {name: value for name, value in stored.items() if name in model.model_fields}
    overrides, places = split_search_path(arguments)
    if places:
        values["searchpath"] = places
    _remove(values, _OF_ONE_RUN)
    changed = with_overrides(values, overrides, command, flag)
    _check_hidden(file, changed)
    try:
        config = model.of(changed)
    except ConfigError as error:
        raise ConfigError(f"{file} with these keys cannot be run: {error}") from error
    for note in notes(file, stored, config):
        _log.warning("%s: %s", file, note)
    return config


def notes(file: Path, stored: Mapping[str, object], config: Part) -> Iterator[str]:
    """Differences from the time when the file was written."""
    mixed = stored.get("mixture")
    if isinstance(mixed, Mapping) and mixed and "mixture" not in type(config).model_fields:
        yield f"it trained on {', '.join(mixed)} together: only {next(iter(mixed))} is taken"
    starts = read_starts(file.parent)
    if not starts:
        yield "there is no run.json beside it: which versions made the run is not known"
    else:
        then, now = starts[-1].get("versions", {}), package_versions()
        for name in sorted(then.keys() | now.keys()):
            version, here = then.get(name, "(none)"), now.get(name, "(none)")
            if version != here:
                yield f"it ran with {name} {version}, here is {here}"
        commit, commit_now = starts[-1].get("commit"), git_commit()
        if commit and commit_now and commit != commit_now:
            yield f"it ran with the code of commit {commit}, here is {commit_now}"
    stored_keys = {key for key, _ in leaves(stored)}
    own = dict(leaves(config.model_dump(mode="json")))
    writer = ServeConfig if "learn" in stored else RunConfig
    new = [
        key
        for key in own
        if key.partition(".")[0] in writer.model_fields
        and not _is_in(key, stored_keys)
        and key not in _OF_ONE_RUN
    ]
    if new:
        yield f"it does not say {', '.join(new)}: today's defaults are used"
    for key, value in own.items():
        if key.rpartition(".")[2] in _PATHS and _is_relative_path(value):
            yield f"{key}={value} is looked for in this directory, {Path.cwd()}"


def _check_command(file: Path, stored: Mapping[str, object], command: str) -> None:
    writer = "serve" if "learn" in stored else "train" if "env" in stored else None
    fits = ("train",) if command == "evaluate" else (command,)
    if writer not in fits:
        raise ConfigError(
            f"{file} is "
            + (f"of clawrl_gym.{writer}" if writer else "not a run's configuration")
            + f", expected the config.yaml of a run of clawrl_gym.{' or '.join(fits)}"
        )


def _remove(values: dict[str, object], keys: Sequence[str]) -> None:
    for key in keys:
        part, _, name = key.rpartition(".")
        inner = values.get(part) if part else values
        if isinstance(inner, dict):
            inner.pop(name, None)


def _check_hidden(file: Path, values: Mapping[str, object]) -> None:
    for key, value in leaves(values):
        if is_secret(key) and value in _HIDDEN:
            raise ConfigError(f"{key} is hidden in {file}, expected the key itself: {key}=KEY")


def _is_in(key: str, stored: set[str]) -> bool:
    """Whether the file says it, or says that the part it is in is empty."""
    parts = key.split(".")
    return any(".".join(parts[:end]) in stored for end in range(1, len(parts) + 1))


def _is_relative_path(value: object) -> bool:
    """A name with a folder in it, or one that is here; ids of the hub and words of ours are not."""
    if not isinstance(value, str) or Path(value).is_absolute() or "://" in value:
        return False
    return Path(value).exists() or value.count("/") > 1 or value.startswith(".")
