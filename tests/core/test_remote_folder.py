"""A folder elsewhere is seen whole or not at all, and what comes from there is what was put."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from clawrl_gym.core.errors import ConfigError, TransferError
from clawrl_gym.core.files.remote_folder import MANIFEST, RemoteFolder
from clawrl_gym.core.files.transfer import manifest_of
from tests.support.remote_files import FaultyFileSystem, memory_address, register_faulty


@pytest.fixture(params=["file", "path", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteFolder:
    addresses = {
        "file": f"file://{tmp_path}/there",
        "path": f"{tmp_path}/there",
        "memory": memory_address(),
    }
    return RemoteFolder(addresses[request.param])


@pytest.fixture
def faulty() -> Iterator[type[FaultyFileSystem]]:
    register_faulty()
    yield FaultyFileSystem
    FaultyFileSystem.fault = staticmethod(lambda method, path: None)


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Path]:
    files = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "learner/state.pt": b"s"}
    for name, content in files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return {name: tmp_path / "source" / name for name in files}


def everything(name: str) -> bool:
    return True


def test_what_is_put_comes_back_and_says_what_it_is(
    place: RemoteFolder, source: dict[str, Path], tmp_path: Path
) -> None:
    place.check_writable()
    assert place.names() == []
    assert place.manifest("000001") is None
    manifest = manifest_of(source)
    place.put("000001", manifest)
    assert place.names() == ["000001"]
    there = place.manifest("000001")
    assert there is not None
    assert there.digest == manifest.digest
    place.get("000001", tmp_path / "back", lambda name: not name.startswith("learner/"))
    assert {path.name for path in (tmp_path / "back").iterdir()} == {
        "config.json",
        "model.safetensors",
    }
    assert (tmp_path / "back/model.safetensors").read_bytes() == b"w" * 5000
    place.remove("000001")
    place.remove("000001")
    assert place.names() == []


def test_what_is_put_again_replaces_all_that_was_there(
    place: RemoteFolder, source: dict[str, Path], tmp_path: Path
) -> None:
    place.put("000001", manifest_of(source))
    source["config.json"].write_bytes(b"[]")
    del source["learner/state.pt"]
    place.put("000001", manifest_of(source))
    place.get("000001", tmp_path / "back", everything)
    names = {path.name for path in (tmp_path / "back").rglob("*")}
    assert names == {"config.json", "model.safetensors"}
    assert (tmp_path / "back/config.json").read_bytes() == b"[]"


def test_a_copy_that_was_cut_off_is_not_there(
    faulty: type[FaultyFileSystem], source: dict[str, Path], tmp_path: Path
) -> None:
    place = RemoteFolder("faulty://cut")
    place.put("000001", manifest_of(source))

    def cut(method: str, path: str) -> None:
        if path.endswith("model.safetensors"):
            raise ConnectionResetError("cut")

    faulty.fault = staticmethod(cut)
    with pytest.raises(TransferError, match="writing faulty://cut/000001: ConnectionResetError"):
        place.put("000001", manifest_of(source))
    assert place.manifest("000001") is None, "and the older one was gone from the first moment on"
    with pytest.raises(TransferError, match="is not there, or not whole"):
        place.get("000001", tmp_path / "back", everything)
    assert not (tmp_path / "back").exists()


def test_a_file_that_broke_there_is_refused_and_leaves_nothing(
    place: RemoteFolder, source: dict[str, Path], tmp_path: Path
) -> None:
    place.put("000001", manifest_of(source))
    files, path = fsspec.url_to_fs(f"{place.address}/000001/model.safetensors")
    files.pipe_file(path, b"w" * 4999 + b"x")
    with pytest.raises(TransferError, match=r"model.safetensors is not what was sent"):
        place.get("000001", tmp_path / "back", everything)
    assert [path.name for path in tmp_path.iterdir() if "back" in path.name] == []


def test_a_manifest_names_nothing_outside_of_the_folder(
    place: RemoteFolder, source: dict[str, Path], tmp_path: Path
) -> None:
    place.put("000001", manifest_of(source))
    files, path = fsspec.url_to_fs(f"{place.address}/000001/{MANIFEST}")
    files.pipe_file(path, files.cat_file(path).replace(b'"config.json"', b'"../../evil.json"'))
    with pytest.raises(TransferError, match="expected a place below the folder"):
        place.get("000001", tmp_path / "back", everything)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere://bucket/x", "Protocol not known: nowhere"),
        ("abfs://bucket/x", "a package is missing.*of the same version as fsspec"),
        ("sftp://me:secret@host/x", "got an address with a password, expected one without"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(address: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refusal:
        RemoteFolder(address)
    assert "\n" not in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_where_nothing_can_be_written_that_is_said(
    tmp_path: Path, faulty: type[FaultyFileSystem]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"where nothing can be written .*(NotADir|FileExists)"):
        RemoteFolder(f"file://{tmp_path}/file/below").check_writable()

    def forbid(method: str, path: str) -> None:
        raise PermissionError("AccessDenied")

    faulty.fault = staticmethod(forbid)
    with pytest.raises(ConfigError, match=r"PermissionError: AccessDenied.*credentials"):
        RemoteFolder("faulty://forbidden").check_writable()


def test_a_bucket_is_never_made() -> None:
    class Bucket(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
        protocol = "oss"

        def makedirs(self, path: str, exist_ok: bool = False) -> None:
            raise AssertionError(f"made {path}")

    fsspec.register_implementation("oss", Bucket, clobber=True)
    RemoteFolder("oss://bucket/runs").check_writable()


def test_an_address_that_never_answers_is_given_up(faulty: type[FaultyFileSystem]) -> None:
    over = threading.Event()

    def hang(method: str, path: str) -> None:
        over.wait(20)

    faulty.fault = staticmethod(hang)
    with pytest.raises(ConfigError, match=r"did not answer within 0.2 s"):
        RemoteFolder("faulty://silent").check_writable(0.2)
    over.set()
