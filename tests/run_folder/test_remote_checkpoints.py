"""A run's checkpoints elsewhere: what is finished comes, what goes from the run goes there, too."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawrl_gym.config import RunConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.remote_folder import RemoteFolder
from clawrl_gym.inference.weights.checkpoints import checkpoint_dir
from clawrl_gym.run_folder import remote_checkpoints
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.remote_checkpoints import (
    RemoteCheckpoints,
    check_place,
    copied_checkpoints,
)
from tests.support.remote_files import FaultyFileSystem, memory_address, register_faulty
from tests.support.waiting import until


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "first")
    folder.write(RunConfig.of({"gateway": {"key": "a-key-of-the-owner"}}))
    return folder


@pytest.fixture
def faulty() -> Iterator[type[FaultyFileSystem]]:
    register_faulty()
    FaultyFileSystem.store.clear()
    yield FaultyFileSystem
    FaultyFileSystem.fault = staticmethod(lambda method, path: None)


def checkpoint(run: RunFolder, version: int, weights: bytes = b"w" * 1000) -> Path:
    """As a learner leaves it."""
    partial = run.checkpoints / f".{version:06d}.partial"
    (partial / "learner").mkdir(parents=True)
    (partial / "config.json").write_text("{}")
    (partial / "learner/state.pt").write_bytes(b"optimizer")
    (partial / "model.safetensors").write_bytes(weights)
    return partial.rename(checkpoint_dir(run.checkpoints, version))


def whole(place: RemoteFolder) -> list[int]:
    there = place.below("checkpoints")
    return [int(name) for name in there.names() if there.manifest(name) is not None]


class Copying:
    """The thread, and what it says."""

    def __init__(self, run: RunFolder, address: str) -> None:
        self.place = RemoteFolder(address).below(run.path.name)
        self.said: list[str] = []
        self.copies = RemoteCheckpoints(run, self.place, self.said.append, first_pause_s=0.01)

    def __enter__(self) -> Copying:
        self.copies.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.copies.stop()


async def test_finished_checkpoints_come_and_those_that_go_go_there_too(
    run: RunFolder, tmp_path: Path
) -> None:
    first = checkpoint(run, 1)
    (run.checkpoints / ".000002.partial").mkdir()
    with Copying(run, f"file://{tmp_path}/there") as copying:
        await until(lambda: whole(copying.place) == [1])
        (run.checkpoints / ".000002.partial").rmdir()
        checkpoint(run, 2, b"other weights")
        await until(lambda: whole(copying.place) == [1, 2])
        shutil.rmtree(first)
        checkpoint(run, 3)
        await until(lambda: whole(copying.place) == [2, 3])
        there = tmp_path / "there/first/checkpoints/000002"
        assert (there / "model.safetensors").read_bytes() == b"other weights"
        assert (there / "learner/state.pt").read_bytes() == b"optimizer"
        assert json.loads((there / "manifest.json").read_text())["files"]
    assert copying.said == []
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["000002", "000003"]


async def test_what_export_reads_comes_along_without_secrets(run: RunFolder) -> None:
    (run.path / "metrics.jsonl").write_text('{"step": 1}\n')
    checkpoint(run, 1)
    with Copying(run, memory_address()) as copying:
        await until(lambda: whole(copying.place) == [1])
        (run.path / "metrics.000001.jsonl").write_text('{"step": 0}\n')
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 1, "heldout/success": 0.9}\n')
        await copying.copies.finish()
    config = copying.place.get_bytes("config.yaml")
    assert config is not None
    assert b"env:" in config
    assert b"a-key-of-the-owner" not in config
    metrics = copying.place.get_bytes("metrics.jsonl")
    assert metrics is not None
    assert metrics.endswith(b'"heldout/success": 0.9}\n'), "measured after the last checkpoint"
    assert copying.place.get_bytes("metrics.000001.jsonl") == b'{"step": 0}\n', "a full file"
    assert copying.place.get_bytes("run.db") is None


async def test_a_failure_is_told_once_and_tried_until_it_is_over(
    run: RunFolder, faulty: type[FaultyFileSystem]
) -> None:
    tries = []

    def refuse(method: str, path: str) -> None:
        if path.endswith("model.safetensors"):
            tries.append(path)
            raise ConnectionError("no route")

    faulty.fault = staticmethod(refuse)
    checkpoint(run, 1)
    with Copying(run, "faulty://bucket") as copying:
        await until(lambda: len(tries) >= 4)
        assert whole(copying.place) == []
        faulty.fault = staticmethod(lambda method, path: None)
        await until(lambda: whole(copying.place) == [1])
        await until(lambda: len(copying.said) == 2)
    assert "no checkpoint is copied for now, which is tried again: " in copying.said[0]
    assert "ConnectionError: no route" in copying.said[0]
    assert copying.said[1] == "checkpoints are copied to faulty://bucket/first again"


async def test_the_end_waits_for_the_last_one_and_gives_up_after_some_failures(
    run: RunFolder, faulty: type[FaultyFileSystem]
) -> None:
    checkpoint(run, 7)
    with Copying(run, "faulty://bucket") as copying:
        await copying.copies.finish()
        assert whole(copying.place) == [7]
    tries = []

    def refuse(method: str, path: str) -> None:
        tries.append(path)
        raise ConnectionError("no route")

    faulty.fault = staticmethod(refuse)
    checkpoint(run, 8)
    with Copying(run, "faulty://bucket") as copying:
        await copying.copies.finish()
    assert len(tries) in (3, 4), "one may have come before the end"
    assert copying.said[-1].startswith("checkpoint 8 is not at faulty://bucket/first (")
    assert f"resume={run.path} copies it" in copying.said[-1]


async def test_an_end_that_takes_long_says_why(
    run: RunFolder, faulty: type[FaultyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_checkpoints, "_UNTOLD_S", 0.0)
    may_go_on = threading.Event()

    def wait(method: str, path: str) -> None:
        may_go_on.wait(20)

    faulty.fault = staticmethod(wait)
    checkpoint(run, 1)
    with Copying(run, "faulty://bucket") as copying:
        ending = asyncio.create_task(copying.copies.finish())
        await until(lambda: copying.said)
        may_go_on.set()
        await ending
    assert copying.said == ["checkpoints are still being copied to faulty://bucket/first"]


async def test_a_checkpoint_that_goes_while_it_is_copied_arrives_whole(
    run: RunFolder, faulty: type[FaultyFileSystem]
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def wait(method: str, path: str) -> None:
        begun.set()
        may_go_on.wait(20)

    faulty.fault = staticmethod(wait)
    first = checkpoint(run, 1)
    with Copying(run, "faulty://bucket") as copying:
        await until(begun.is_set)
        shutil.rmtree(first)
        checkpoint(run, 30)
        may_go_on.set()
        await until(lambda: whole(copying.place) == [30])
    assert copying.said == []


async def test_nothing_is_copied_twice_but_what_was_made_again(
    run: RunFolder, faulty: type[FaultyFileSystem]
) -> None:
    for version in (1, 2):
        checkpoint(run, version)
    with Copying(run, "faulty://bucket") as copying:
        await copying.copies.finish()
    written: list[str] = []

    def note(method: str, path: str) -> None:
        if method == "put":
            written.append(path)

    faulty.fault = staticmethod(note)
    shutil.rmtree(run.checkpoints / "000001/learner")  # as the newest alone keeps it, when large
    with Copying(run, "faulty://bucket") as copying:
        await copying.copies.finish()
    assert written == []
    shutil.rmtree(run.checkpoints / "000002")
    checkpoint(run, 2, b"of the update that was repeated")
    with Copying(run, "faulty://bucket") as copying:
        await copying.copies.finish()
    assert {path.split("/")[4] for path in written if "/checkpoints/" in path} == {"000002"}


async def test_where_nothing_may_be_removed_the_old_ones_stay(
    run: RunFolder, faulty: type[FaultyFileSystem]
) -> None:
    def keep(method: str, path: str) -> None:
        if method == "remove":
            raise PermissionError("object lock")

    first = checkpoint(run, 1)
    with Copying(run, "faulty://bucket") as copying:
        await until(lambda: whole(copying.place) == [1])
        faulty.fault = staticmethod(keep)
        shutil.rmtree(first)
        for version in (2, 3):
            checkpoint(run, version)
        await copying.copies.finish()
    assert [line for line in copying.said if "old checkpoints stay" in line] == copying.said
    assert len(copying.said) == 1
    assert {2, 3} <= set(whole(copying.place))


async def test_an_interrupt_waits_for_no_copy(
    run: RunFolder, faulty: type[FaultyFileSystem]
) -> None:
    over = threading.Event()

    def hang(method: str, path: str) -> None:
        over.wait(20)

    faulty.fault = staticmethod(hang)
    checkpoint(run, 1)
    config = RunConfig.of({"learner": {"remote_checkpoints": "faulty://bucket"}})
    with pytest.raises(KeyboardInterrupt):
        async with copied_checkpoints(config, run, print):
            raise KeyboardInterrupt
    assert not over.is_set()
    over.set()
    assert [path.name for path in run.checkpoints.iterdir()] == ["000001"]


def test_another_runs_checkpoints_are_not_mixed_in(run: RunFolder, tmp_path: Path) -> None:
    address = f"{tmp_path}/there"
    config = RunConfig.of({"learner": {"remote_checkpoints": address}})
    check_place(config, run)
    (tmp_path / "there/first/checkpoints/000001").mkdir(parents=True)
    check_place(config, run)  # its own, from before it was resumed
    new = RunFolder(tmp_path / "elsewhere" / "first")
    with pytest.raises(ConfigError, match="holds checkpoints of another run: choose another"):
        check_place(config, new)
    assert not [path for path in (tmp_path / "there").rglob("*") if path.is_file()]
