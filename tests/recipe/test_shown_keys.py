"""No command shows a key that it was given, wherever it was given and however the command ends."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

import clawrl_gym as cg
from clawrl_gym.core import redact
from clawrl_gym.core.metrics import Metrics
from clawrl_gym.core.redact import HIDDEN, is_secret
from clawrl_gym.run.help import keys_of
from clawrl_gym.ui.serving import SERVING
from clawrl_gym.ui.view import make_view

KEY = "marigold-77-teapot-31"
COMMANDS = {"train": "env=toolcall", "serve": "", "evaluate": "env=toolcall"}


@pytest.fixture(autouse=True)
def _factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


def _secret_keys(command: str) -> list[str]:
    config: BaseModel = cg.load_config(COMMANDS[command].split(), command)  # type: ignore[call-overload]
    return [key for key, _, _ in keys_of(config) if is_secret(key)]


KEYS = [
    ("train", "gateway.key"),
    ("train", "judge.key"),
    ("train", "env.user_key"),
    ("train", "env.judge_key"),
    ("serve", "gateway.key"),
    ("serve", "judge.key"),
    ("evaluate", "endpoint.key"),
    ("evaluate", "gateway.key"),
    ("evaluate", "env.user_key"),
    ("evaluate", "env.judge_key"),
]


def test_these_are_all_keys_that_are_secret() -> None:
    assert [(command, key) for command in COMMANDS for key in _secret_keys(command)] == KEYS


@pytest.mark.parametrize("end", ["dry_run=true", "--help", "trainer.stepz=3", "seed=many"])
@pytest.mark.parametrize(("command", "key"), KEYS)
def test_no_command_shows_a_key(
    command: str, key: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*COMMANDS[command].split(), f"{key}={KEY}", f"run.dir={tmp_path / 'run'}", end]
    if command == "serve":
        arguments.append("gateway.port=0")
    module = importlib.import_module(f"clawrl_gym.{command}")
    module.main(arguments)
    shown = "".join(capsys.readouterr())
    assert shown, "it says something"
    assert KEY not in shown


def test_a_traceback_of_a_defect_shows_none(tmp_path: Path) -> None:
    program = (
        "import sys, clawrl_gym.run.command as c\n"
        "def broken(arguments): raise RuntimeError('cannot use ' + arguments[0])\n"
        "sys.exit(c.command('train', '', broken, None, None, ['judge.key=" + KEY + "']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"RuntimeError: cannot use judge.key={HIDDEN}" in done.stderr
    assert KEY not in done.stderr + done.stdout


def test_a_view_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    redact.install([KEY])
    view = make_view("line", SERVING, title="runs/x")
    view.message(f"asked with {KEY}")
    view.phase("judge", f"at http://me:{KEY}@host")
    view.close()
    assert KEY not in capsys.readouterr().out


def test_a_logger_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key_logger.py").write_text(
        "configs = []\n"
        "class Log:\n"
        "    def __init__(self, folder, config): configs.append(config)\n"
        "    def log(self, step, values): pass\n"
        "    def close(self): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    Metrics(tmp_path, "key_logger:Log", {"judge": {"key": KEY}}).close()
    assert importlib.import_module("key_logger").configs == [{"judge": {"key": HIDDEN}}]
