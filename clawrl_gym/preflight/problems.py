"""Collects all that is wrong, so that it can be said at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from clawrl_gym.core.errors import ClawError, ConfigErrors


@dataclass(slots=True)
class Problems:
    """All that is wrong, in the order in which it was found."""

    lines: list[str] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """An error of the block is one more problem; what comes after the block is looked at."""
        try:
            yield
        except ConfigErrors as errors:
            self.lines += errors.lines
        except ClawError as error:
            self.lines.append(str(error))

    def error(self) -> ConfigErrors:
        return ConfigErrors(dict.fromkeys(self.lines))

    def raise_if_any(self) -> None:
        if self.lines:
            raise self.error()
