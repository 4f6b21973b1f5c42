"""The tasks of `envs/showcase/`, imported when a configuration names them.

They were generated for the small shipped policies. The kinds of environments know none of them, so
that a run with tasks of its own loads none.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_SHOWCASE = "clawrl_gym.envs.showcase"


def shipped(path: str) -> Any:
    """An object of the showcase by `MODULE:NAME`, such as `terminal.generated:generated_tasks`."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"{_SHOWCASE}.{module}"), name)
