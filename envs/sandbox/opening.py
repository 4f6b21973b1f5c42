"""How the sandboxes of one environment are opened: which kind, with which limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.sandbox.interface import Limits, Sandbox, SandboxSpec

SandboxKind = Literal["bubblewrap", "docker"]
Opener = Callable[..., Sandbox]
"""Called as `open_sandbox(limits, rootfs=, workdir=, env=, unsafe_no_limits=)`."""
_OTHERS = frozenset(("type", "rootfs", "unsafe_no_limits", "image", "network", "ttl_s"))


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """An environment's sandbox options, checked, and what opens them."""

    kind: SandboxKind
    limits: Limits
    rootfs: str | None
    unsafe_no_limits: bool
    image: str | None
    """Docker: what a task without an image of its own starts from."""
    network: bool
    ttl_s: float
    opener: Opener | None

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        opener: Opener | None = None,
        default: SandboxKind = "bubblewrap",
    ) -> Sandboxes:
        """From the fields of a `SandboxConfig`. Raises ConfigError for unknown ones."""
        limits = {field.name for field in fields(Limits)}
        unknown = sorted(set(options) - limits - _OTHERS)
        if unknown:
            raise ConfigError(
                f"got sandbox options {unknown}, expected some of {sorted(limits | _OTHERS)}"
            )
        kind = options.get("type", "auto")
        if kind not in ("auto", "bubblewrap", "docker"):
            raise ConfigError(
                f"got sandbox type {kind!r}, expected 'auto', 'bubblewrap' or 'docker'"
            )
        return cls(
            kind=default if kind == "auto" else kind,
            limits=Limits(**{name: options[name] for name in limits if name in options}),
            rootfs=options.get("rootfs"),
            unsafe_no_limits=bool(options.get("unsafe_no_limits", False)),
            image=options.get("image"),
            network=bool(options.get("network", False)),
            ttl_s=float(options.get("ttl_s", 7200.0)),
            opener=opener,
        )

    def open(self, spec: SandboxSpec) -> Sandbox:
        """A fresh sandbox. Raises SandboxError where it cannot be isolated, or has no image."""
        if self.opener is None and self.kind == "docker":
            from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox

            return open_docker_sandbox(
                self.limits, spec, image=spec.image or self.image,
                network=self.network, ttl_s=self.ttl_s,
            )  # fmt: skip
        opener = self.opener
        if opener is None:
            from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox

            opener = open_sandbox
        return opener(
            self.limits,
            rootfs=self.rootfs,
            workdir=spec.workdir,
            env=dict(spec.env),
            unsafe_no_limits=self.unsafe_no_limits,
        )
