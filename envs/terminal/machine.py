"""How the sandboxes of one environment are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from clawrl_gym.envs.sandbox.base import Limits, Sandbox
from clawrl_gym.envs.tasks import Task
from clawrl_gym.errors import ConfigError

Opener = Callable[..., Sandbox]
"""Called as `open_sandbox(limits, rootfs=, workdir=, env=, unsafe_no_limits=)`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """An environment's sandbox options, checked, and what opens them."""

    limits: Limits
    rootfs: str | None
    unsafe_no_limits: bool
    opener: Opener | None

    @classmethod
    def of(cls, options: Mapping[str, Any], opener: Opener | None) -> Machine:
        limits = {field.name for field in fields(Limits)}
        unknown = sorted(set(options) - limits - {"rootfs", "unsafe_no_limits"})
        if unknown:
            raise ConfigError(
                f"got sandbox options {unknown}, expected some of "
                f"{sorted(limits | {'rootfs', 'unsafe_no_limits'})}"
            )
        return cls(
            limits=Limits(**{name: options[name] for name in limits if name in options}),
            rootfs=options.get("rootfs"),
            unsafe_no_limits=bool(options.get("unsafe_no_limits", False)),
            opener=opener,
        )

    def open(self, task: Task) -> Sandbox:
        """A fresh sandbox; a task that builds its machine starts at / and goes on from there."""
        opener = self.opener
        if opener is None:
            from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox

            opener = open_sandbox
        return opener(
            self.limits,
            rootfs=self.rootfs,
            workdir="/" if task.build else task.workdir,
            env=dict(task.env),
            unsafe_no_limits=self.unsafe_no_limits,
        )
