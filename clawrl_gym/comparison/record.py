"""Record of a run of the bench: one small JSON file beside its folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.processes.interrupt import EXIT_CODES

TOOK_TOO_LONG = 124
"""Exit code of a run that was stopped because its time was up."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that the bench has started at least once."""

    arguments: tuple[str, ...]
    exit_code: int | None = None
    """Exit code; None: it runs, or the bench was stopped meanwhile."""
    wall_s: float = 0.0
    """Seconds of all its starts together."""
    starts: int = 0
    failure: str = ""

    @property
    def finished(self) -> bool:
        return self.exit_code == 0

    @property
    def interrupted(self) -> bool:
        """Something outside ended it, so that it can resume."""
        code = self.exit_code
        return code is None or code < 0 or code in (TOOK_TOO_LONG, *EXIT_CODES.values())

    def begun(self) -> RunRecord:
        """Once more started."""
        return replace(self, exit_code=None, starts=self.starts + 1, failure="")


def read_record(path: Path) -> RunRecord | None:
    """Read a record; None when there is none. Raises ConfigError for one that cannot be read."""
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values["arguments"] = tuple(values["arguments"])
        return RunRecord(**values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"cannot read {str(path)!r} ({error}); remove it to run this seed again"
        ) from error


def write_record(path: Path, record: RunRecord) -> None:
    """Replace the file in one step. Raises ConfigError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(asdict(record), indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error}") from error
