"""The systemd unit that serves as this command would: this Python, this folder, these overrides."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from clawrl_gym.config import ServeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.redact import hidden_argument
from clawrl_gym.run_folder.folder import serving_folder

_VARIABLES = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "HF_HOME", "XDG_CACHE_HOME")
"""Variables that a service does not inherit from the shell that printed its unit."""
_OF_PRINTING = ("print_unit", "run.dir", "dry_run")
_UNIT = """\
# ~/.config/systemd/user/clawrl-gym.service: starts at boot and after a crash.
# For /etc/systemd/system instead: add User={user} to [Service], and WantedBy=multi-user.target.
[Unit]
Description=clawrl_gym: a policy that learns from its conversations
After=network.target
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
WorkingDirectory={folder}
{environment}ExecStart={command}
# SIGTERM ends it in order: replies that are nearly done are sent, the report is written.
KillMode=mixed
TimeoutStopSec=180
SuccessExitStatus=130 143
Restart=on-failure
RestartSec=10
# A configuration that is refused stays refused.
RestartPreventExitStatus=2
UMask=0077
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""


def service_unit(
    config: ServeConfig, arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> str:
    """`arguments`: of the command that prints it. Raises ConfigError for a secret among them, and
    for a line break, which no unit can hold."""
    run = serving_folder(config).path.resolve()
    overrides = [one for one in arguments if one.partition("=")[0].lstrip("+") not in _OF_PRINTING]
    if not any(one.startswith("ui=") for one in overrides):
        overrides.append("ui=line")
    set_here = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    folder = Path.cwd()
    for text in (*overrides, *set_here.values(), str(folder), str(run), sys.executable):
        _check(text)
    command = [sys.executable, "-m", "clawrl_gym.serve", *overrides, f"run.dir={run}"]
    program, *others = map(_word, command)
    lines = [f"Environment={_word(f'{name}={value}')}\n" for name, value in set_here.items()]
    return _UNIT.format(
        user=getpass.getuser(),
        folder=_specifiers(str(folder)),
        environment="".join(lines),
        command=" ".join([program, *(word.replace("$", "$$") for word in others)]),
    )


def _check(text: str) -> None:
    if hidden_argument(text) != text:
        raise ConfigError(
            f"got {hidden_argument(text)} for a unit, which others can read, expected no secret: "
            "leave it out (without gateway.key the key in the run's folder is used), or give it by "
            "a variable of the environment (EnvironmentFile=)"
        )
    if not text.isprintable():
        raise ConfigError(f"got {text[:80]!a} for a unit, expected printable text in one line")


def _word(text: str) -> str:
    """One word of a command or of a list, as systemd reads it."""
    if text == shlex.quote(text) and "%" not in text:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_specifiers(escaped)}"'


def _specifiers(text: str) -> str:
    """`%` begins what systemd fills in."""
    return text.replace("%", "%%")
