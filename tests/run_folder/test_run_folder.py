"""The folder of a run: where its parts are, what is refused, and the key that it keeps."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import EvaluateConfig, GatewayConfig, RunConfig, ServeConfig
from clawrl_gym.config.run import RunFolderConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.folder_lock import LOCK_FILE
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.run.services import RunServices
from clawrl_gym.run_folder.folder import (
    MIN_FREE_BYTES,
    RunFolder,
    evaluation_folder,
    existing_parent,
    folder_of,
    free_bytes,
    read_config_values,
    serving_folder,
)
from clawrl_gym.serving.clients import key_of, key_place, write_snippet
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.ui.training import TRAINING
from clawrl_gym.ui.view import make_view


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@pytest.fixture
def begun(folder: RunFolder) -> RunFolder:
    """With a configuration."""
    folder.make(RunConfig(seed=7))
    return folder


def test_a_run_keeps_its_parts_in_their_places(begun: RunFolder) -> None:
    place = begun.path
    assert (begun.config_file, begun.checkpoints, begun.logs) == (
        place / "config.yaml", place / "checkpoints", place / "logs",
    )  # fmt: skip
    assert (begun.films, begun.serving) == (place / "films", place / "serving")
    assert begun.new_weights == place / "serving" / "next"
    assert begun.exists
    assert begun.checkpoints.is_dir()
    assert begun.logs.is_dir()
    assert begun.read_config(RunConfig) == RunConfig(seed=7)
    assert begun.way_on("train").startswith("resume with: python -m clawrl_gym.train resume=")
    spaced = RunFolder(Path("my runs/x")).way_on("serve")
    assert spaced == "resume with: python -m clawrl_gym.serve 'resume=my runs/x'"


async def test_a_run_that_was_lengthened_goes_on_so_without_being_told_again(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    folder.write(load_config(["env=terminal", "policy=tiny", "trainer.steps=20", "seed=7"]))
    folder.config_file.chmod(0o600)
    before = folder.config_file.read_text()
    await Store.open(tmp_path).close()
    longer = load_config([f"resume={tmp_path}", "trainer.steps=40", "ui=line"])
    assert folder.config_file.read_text() == before  # whoever only looks changes nothing
    async with AsyncExitStack() as stack:
        view = make_view("line", TRAINING, title="", total_steps=40)
        stack.callback(view.close)
        await RunServices(longer, folder, view).open(stack, resume=True)
    assert load_config([f"resume={tmp_path}"]).trainer.steps == 40
    assert folder.config_file.read_text() == before.replace("steps: 20\n", "steps: 40\n")
    assert stat.S_IMODE(folder.config_file.stat().st_mode) == 0o600


def test_a_folder_that_holds_a_run_is_no_place_for_a_new_one(begun: RunFolder) -> None:
    with pytest.raises(ConfigError, match="holds a run already; resume it: resume="):
        begun.check_new()
    with pytest.raises(ConfigError, match="holds a run already"):
        begun.make(RunConfig())
    begun.check_usable()
    begun.require_run()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match=rf"{file} is a file; choose another one: run.dir=PATH"):
        RunFolder(file / "run").check_new()
    with pytest.raises(ConfigError, match=r"cannot make the run's folder .*/file/run: "):
        RunFolder(file / "run").write(RunConfig())


def test_a_folder_in_which_another_process_writes_is_refused(begun: RunFolder) -> None:
    with (begun.path / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711")
        lock.flush()
        with pytest.raises(ConfigError, match="4711"):
            begun.check_usable()


def test_a_disk_that_is_nearly_full_is_refused(
    begun: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"free": MIN_FREE_BYTES}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), free)())
    assert free_bytes(begun.path / "not" / "there") == MIN_FREE_BYTES
    begun.check_usable()
    free["free"] -= 1
    least = MIN_FREE_BYTES >> 20
    with pytest.raises(ConfigError, match=rf"got {least - 1} MB free .* at least {least} MB"):
        begun.check_usable()
    with pytest.raises(ConfigError, match="MB free"):
        begun.write(RunConfig())


async def update(folder: RunFolder, version: int, checkpoint: str | None = None) -> None:
    store = Store.open(folder.path)
    try:
        await store.add_update(UpdateRow(version, tokens=1, duration_s=0.1), [], checkpoint)
    finally:
        await store.close()


async def test_a_run_goes_on_only_with_its_newest_checkpoint(begun: RunFolder) -> None:
    begun.check_resumable()  # interrupted before it had a database
    (begun.checkpoints / "000002").mkdir()
    (begun.checkpoints / "000002" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"it has checkpoints and no run\.db; restore that"):
        begun.check_resumable()
    await update(begun, 1)
    begun.check_resumable()
    for version in (2, 4):
        await update(begun, version, f"/elsewhere/{version:06}")
    with pytest.raises(ConfigError, match=r"its newest checkpoint .*/000004 is not there; restore"):
        begun.check_resumable()
    (begun.checkpoints / "000004").mkdir()
    begun.check_resumable()
    (begun.path / "run.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match=rf"cannot resume {begun.path}: "):
        begun.check_resumable()


def test_a_configuration_that_says_nothing_or_cannot_be_read_is_refused(folder: RunFolder) -> None:
    with pytest.raises(ConfigError, match=r"no config\.yaml, there is no such folder"):
        folder.read_values()
    folder.path.mkdir()
    with pytest.raises(ConfigError, match=r"holds no run \(no config\.yaml\); expected the folder"):
        folder.read_values()
    for content, message in (
        (b"a: [", "cannot read .*config.yaml: "),
        (b"\xff", "cannot read .*config.yaml: "),
        (b"- 1", "holds no configuration, expected the config.yaml of a run"),
    ):
        folder.config_file.write_bytes(content)
        with pytest.raises(ConfigError, match=message) as refused:
            read_config_values(folder.config_file)
        assert "\n" not in str(refused.value)


def test_a_run_is_named_by_what_it_is_and_when_unless_something_says(tmp_path: Path) -> None:
    def path(**run: Any) -> str:
        return str(folder_of(RunConfig(run=RunFolderConfig(root="here", **run))).path)

    assert re.fullmatch(r"here/terminal-tiny-\d{8}-\d{6}", path())
    assert path(name="mine") == "here/mine"
    assert path(name="mine", dir="there") == "there"
    named = EvaluateConfig(run=RunFolderConfig(root="here", name="mine"))
    assert evaluation_folder(named).path == Path("here/mine")
    usual = evaluation_folder(EvaluateConfig(run=RunFolderConfig(root="here"))).path
    assert re.fullmatch(r"here/evaluate-terminal-tiny-\d{8}-\d{6}", str(usual))
    with pytest.raises(ConfigError, match=r"got no run\.dir, expected the folder to serve in"):
        serving_folder(ServeConfig(run=RunFolderConfig()))
    assert existing_parent(tmp_path / "a" / "b") == tmp_path
    assert existing_parent(tmp_path) == tmp_path


@pytest.fixture
def serving(tmp_path: Path) -> ServeConfig:
    return ServeConfig(
        run=RunFolderConfig(dir=str(tmp_path / "serve")), gateway=GatewayConfig(port=8808)
    )


def test_the_key_of_a_folder_is_made_once_and_is_its_owners_alone(serving: ServeConfig) -> None:
    folder = serving_folder(serving)
    key = key_of(serving, folder)
    assert re.fullmatch(r"sk-[\w-]{43}", key)
    assert key_of(serving, folder) == key
    assert (folder.path / "gateway.key").stat().st_mode & 0o077 == 0
    assert key_place(serving, folder) == f"in {folder.path / 'gateway.key'}"
    own = serving.model_copy(update={"gateway": GatewayConfig(key="sk-of-my-own")})
    assert key_of(own, folder) == "sk-of-my-own"
    assert key_place(own, folder) == "gateway.key"
    nowhere = RunFolder(folder.path / "gateway.key")
    with pytest.raises(ConfigError, match=r"cannot keep the gateway's key in .*; choose another"):
        key_of(serving, nowhere)


def test_the_snippet_for_clients_says_where_and_with_what_key(serving: ServeConfig) -> None:
    told = write_snippet(serving)
    assert json.loads(told)
    assert '"http://127.0.0.1:8808' in told
    assert key_of(serving, serving_folder(serving)) in told
    for gateway, expected in (
        (GatewayConfig(port=0), "got gateway.port=0 with print_config=true"),
        (GatewayConfig(port=1, host="0.0.0.0"), "gateway.key"),
    ):
        with pytest.raises(ConfigError, match=expected):
            write_snippet(serving.model_copy(update={"gateway": gateway}))
    sixth = GatewayConfig(port=8808, host="::1")
    assert '"http://[::1]:8808' in write_snippet(serving.model_copy(update={"gateway": sixth}))
