from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from clawrl_gym.core.errors import TransferError
from clawrl_gym.core.files.transfer import Manifest, manifest_of, send
from clawrl_gym.inference.weights.cache import ModelCache


class Head:
    """The machine that has the models."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chunks: list[bytes] = []
        self.fetched = 0

    def model(self, name: str, size: int = 100) -> Manifest:
        path = self._folder / name
        path.write_bytes(name.encode() * size)
        return manifest_of({"model.safetensors": path})

    def put(self, chunk: bytes) -> int:
        self._chunks.append(chunk)
        return len(self._chunks) - 1

    def fetch(self, handle: object) -> bytes:
        assert isinstance(handle, int)
        self.fetched += 1
        return self._chunks[handle]


@pytest.fixture
def head(tmp_path: Path) -> Head:
    (tmp_path / "head").mkdir()
    return Head(tmp_path / "head")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_model_is_fetched_once_and_found_afterwards(head: Head, root: Path) -> None:
    model = head.model("a")
    assert ModelCache(root).find(model) is None
    for _ in range(2):
        with ModelCache(root).take(send(model, head.put), head.fetch) as cached:
            assert (cached.folder / "model.safetensors").read_bytes() == b"a" * 100
    assert head.fetched == 1
    found = ModelCache(root).find(model)
    assert found is not None
    assert found.folder == root / model.digest
    assert root.stat().st_mode & 0o777 == found.folder.stat().st_mode & 0o777 == 0o700


def test_a_model_that_lost_a_part_is_fetched_again(head: Head, root: Path) -> None:
    model = head.model("a")
    with ModelCache(root).take(send(model, head.put), head.fetch) as cached:
        (cached.folder / "model.safetensors").write_bytes(b"a")
    assert ModelCache(root).find(model) is None
    with ModelCache(root).take(send(model, head.put), head.fetch) as cached:
        assert (cached.folder / "model.safetensors").stat().st_size == 100


def test_a_model_that_breaks_on_its_way_can_be_fetched_again(head: Head, root: Path) -> None:
    model = head.model("a")
    with pytest.raises(TransferError, match="not what was sent"):
        ModelCache(root).take(send(model, head.put), lambda handle: b"b" * 100)
    assert not [path for path in root.iterdir() if path.is_dir()]
    ModelCache(root).take(send(model, head.put), head.fetch).close()


def test_over_its_limit_the_one_unused_for_longest_goes_and_one_in_use_stays(
    head: Head, root: Path
) -> None:
    cache = ModelCache(root, limit_bytes=250)
    models = [head.model(name) for name in "abc"]
    for age, model in enumerate(models[:2]):
        cache.take(send(model, head.put), head.fetch).close()
        os.utime(root / model.digest, (1000 + age, 1000 + age))
    in_use = cache.find(models[0])
    assert in_use is not None
    os.utime(root / models[0].digest, (1, 1))
    cache.take(send(models[2], head.put), head.fetch).close()
    assert [cache.find(model) is not None for model in models] == [True, False, True]


def test_what_a_cut_off_fetch_left_goes_unless_somebody_fetches_it_now(
    head: Head, root: Path
) -> None:
    cache = ModelCache(root, limit_bytes=150)
    left, fetching = root / f".{'0' * 64}.partial", root / f".{'1' * 64}.partial"
    for folder in (left, fetching):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x" * 60)
    descriptor = os.open(root / f"{'1' * 64}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    cache.take(send(head.model("a"), head.put), head.fetch).close()
    assert (left.exists(), fetching.exists()) == (False, True)
    os.close(descriptor)
