"""What a user chooses about pages and browsers: the options of the environment, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from clawrl_gym.core.errors import ConfigError

Observation = Literal["tree", "screenshot", "marked", "both"]
Coordinates = Literal["pixels", "thousandths"]
MIN_TOKENS = 512
MIN_SIDE_PX, MAX_SIDE_PX = 64, 4096


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """Which browsers are started, and what one may take. See `BrowserConfig` for the meanings."""

    executable: str | None = None
    contexts_per_browser: int = 100
    max_contexts: int = 1000
    memory_mb: int | None = None
    unsafe_no_isolation: bool = False

    def __post_init__(self) -> None:
        _positive("browser.", self, ("contexts_per_browser", "max_contexts", "memory_mb"))


@dataclass(frozen=True, slots=True)
class GuiOptions:
    """What every episode has in common. See `GuiEnvConfig` for the meanings."""

    observation: Observation = "tree"
    coordinates: Coordinates = "pixels"
    width: int = 1024
    height: int = 640
    max_turns: int = 15
    max_tokens: int = 3000
    action_timeout_s: float = 10.0
    page_timeout_s: float = 20.0
    allow: tuple[str, ...] = ()
    browser: BrowserOptions = field(default_factory=BrowserOptions)

    def __post_init__(self) -> None:
        _one_of("observation", self.observation, get_args(Observation))
        _one_of("coordinates", self.coordinates, get_args(Coordinates))
        _positive("", self, ("max_turns", "action_timeout_s", "page_timeout_s"))
        if self.max_tokens < MIN_TOKENS:
            raise ConfigError(
                f"got max_tokens={self.max_tokens}, expected at least {MIN_TOKENS}: the heading of "
                "a page and a few of its lines"
            )
        for side in (self.width, self.height):
            if not MIN_SIDE_PX <= side <= MAX_SIDE_PX:
                raise ConfigError(
                    f"got a viewport of {self.width} x {self.height}, expected "
                    f"{MIN_SIDE_PX} to {MAX_SIDE_PX} pixels a side"
                )
        if isinstance(self.allow, str) or not all(isinstance(host, str) for host in self.allow):
            raise ConfigError(f"got allow={self.allow!r}, expected a list of hosts")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> GuiOptions:
        """From keyword arguments; those that are not about pages are not read."""
        known = {name: given[name] for name in _names(cls) & set(given)}
        browser = dict(known.get("browser") or {})
        if unknown := set(browser) - _names(BrowserOptions):
            raise ConfigError(
                f"got browser options {sorted(unknown)}, expected some of "
                f"{sorted(_names(BrowserOptions))}"
            )
        known["browser"] = BrowserOptions(**browser)
        allow = known.get("allow") or ()
        known["allow"] = allow if isinstance(allow, str) else tuple(allow)
        return cls(**known)


def _names(kind: type) -> set[str]:
    return {one.name for one in fields(kind)}


def _one_of(name: str, got: Any, expected: tuple[Any, ...]) -> None:
    if got not in expected:
        raise ConfigError(f"got {name}={got!r}, expected one of {list(expected)}")


def _positive(prefix: str, options: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ConfigError(f"got {prefix}{name}={value}, expected a positive number")
