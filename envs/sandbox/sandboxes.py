"""Opens the sandboxes of one environment, of a given kind and with given limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clawrl_gym.config.envs import SandboxConfig
from clawrl_gym.core.plugins import SANDBOXES
from clawrl_gym.envs.sandbox.interface import (
    Limits,
    Sandbox,
    SandboxCapabilities,
    SandboxSpec,
)
from clawrl_gym.envs.sandbox.ready import Template, ready_sandboxes

Opener = Callable[..., Sandbox]
"""Called as `open_sandbox(limits, rootfs=, workdir=, env=, unsafe_no_limits=)`."""


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """An environment's sandbox options, checked, and what opens them."""

    kind: str
    """bubblewrap, docker, or the import path of a class."""
    config: SandboxConfig
    opener: Opener | None
    """Takes the place of the kind's own, where it is given."""

    @classmethod
    def of(
        cls,
        options: SandboxConfig | Mapping[str, object],
        opener: Opener | None = None,
        default: str = "bubblewrap",
    ) -> Sandboxes:
        """`default` is the kind that `auto` stands for. Raises ConfigError for wrong options."""
        config = options if isinstance(options, SandboxConfig) else SandboxConfig.of(options)
        return cls(default if config.type == "auto" else config.type, config, opener)

    @property
    def limits(self) -> Limits:
        return Limits.of(self.config)

    @property
    def capabilities(self) -> SandboxCapabilities:
        """Capabilities that the kind declares."""
        declared: SandboxCapabilities = SANDBOXES.capabilities_of(self.kind)
        return declared

    def require(self, needs: Mapping[str, str]) -> None:
        """Raises ConfigError for a capability that the kind lacks, but where an opener stands in.

        `needs`: who needs it and what for, by capability.
        """
        if self.opener is None:
            SANDBOXES.require(self.kind, needs)

    def missing_image(self) -> str | None:
        """Where there are images: that the one which tasks share is still to be made, in words.

        Raises SandboxError where no engine answers.
        """
        if not self.capabilities.images:
            return None
        from clawrl_gym.envs.sandbox.docker.images import TERMINAL_IMAGE, missing_image

        return missing_image(self.config.image or TERMINAL_IMAGE)

    def open(self, spec: SandboxSpec, *, now: bool = False) -> Sandbox:
        """A fresh sandbox, one that stands ready unless it is to be started `now`.

        Raises SandboxError where it cannot be isolated, or has no image.
        """
        if self.opener is not None:
            return self.opener(
                self.limits,
                rootfs=self.config.rootfs,
                workdir=spec.workdir,
                env=dict(spec.env),
                unsafe_no_limits=self.config.unsafe_no_limits,
            )
        template = self._template(spec)
        return template.start() if now else ready_sandboxes().take(template)

    def _template(self, spec: SandboxSpec) -> Template:
        def start() -> Sandbox:
            sandbox: Sandbox = SANDBOXES.resolve(self.kind).build(self.config, spec)
            return sandbox

        key = f"{self.kind} {self.config.model_dump_json()} {spec}"
        return Template(key, start, self.config.ready if self.capabilities.pooled else 0)
