"""The systemd unit starts a command that is there, with keys that are there."""

from __future__ import annotations

import shlex
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

from clawrl_gym.config import ServeConfig

UNIT = Path(__file__).parent.parent / "docker" / "clawrl-gym.service"


def test_the_unit_serves_and_gives_up_on_a_refused_configuration() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    python, dash_m, module, *overrides = shlex.split(service["ExecStart"])
    assert python.startswith(f"{service['WorkingDirectory']}/.venv/")
    assert dash_m == "-m"
    assert find_spec(module) is not None
    assert {override.partition("=")[0] for override in overrides} <= set(ServeConfig.dotted_keys())
    assert service["RestartPreventExitStatus"] == "2"
    assert service["SuccessExitStatus"].split() == ["130", "143"]
    assert service["KillMode"] == "mixed", "its children are ended by it"
