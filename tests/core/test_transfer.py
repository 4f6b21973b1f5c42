"""Files that travel: in chunks, checked, whole or not at all. A dictionary carries them here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawrl_gym.core.errors import TransferError
from clawrl_gym.core.files.transfer import Transfer, manifest_of, receive, send


class Chunks(dict[int, bytes]):
    """Carries chunks by number."""

    def put(self, chunk: bytes) -> int:
        self[len(self)] = chunk
        return len(self) - 1

    def fetch(self, handle: object) -> bytes:
        assert isinstance(handle, int)
        return self[handle]


@pytest.fixture
def chunks() -> Chunks:
    return Chunks()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    source = tmp_path / "source"
    source.mkdir()
    contents = {"empty": b"", "small.json": b"{}", "learner/state.pt": os.urandom(1000)}
    for at, content in enumerate(contents.values()):
        (source / str(at)).write_bytes(content)
    return {name: source / str(at) for at, name in enumerate(contents)}


def test_files_arrive_as_they_were_under_their_names(
    files: dict[str, Path], chunks: Chunks, tmp_path: Path
) -> None:
    transfer = send(manifest_of(files), chunks.put, chunk_bytes=300)
    assert sorted(map(len, chunks.values())) == [2, 100, 300, 300, 300]
    receive(transfer, tmp_path / "there", chunks.fetch)
    for name, source in files.items():
        assert (tmp_path / "there" / name).read_bytes() == source.read_bytes()
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o700
    assert manifest_of({n: tmp_path / "there" / n for n in files}).digest == (
        transfer.manifest.digest
    )


def test_a_digest_is_of_contents_and_names(files: dict[str, Path], tmp_path: Path) -> None:
    whole = manifest_of(files)
    assert manifest_of(dict(reversed(files.items()))).digest == whole.digest
    assert manifest_of({f"{name}x": path for name, path in files.items()}).digest != whole.digest
    files["small.json"].write_bytes(b"[]")
    assert manifest_of(files).digest != whole.digest


@pytest.mark.parametrize("harm", ["other bytes", "too few", "too many"])
def test_what_breaks_on_its_way_leaves_nothing(
    files: dict[str, Path], chunks: Chunks, tmp_path: Path, harm: str
) -> None:
    transfer = send(manifest_of(files), chunks.put)
    last = max(chunks)
    chunks[last] = {
        "other bytes": b"\0" * len(chunks[last]),
        "too few": chunks[last][:-1],
        "too many": chunks[last] + b"x",
    }[harm]
    with pytest.raises(TransferError, match="is not what was sent"):
        receive(transfer, tmp_path / "there", chunks.fetch)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_file_that_is_written_again_while_it_is_sent_is_noticed(
    files: dict[str, Path], chunks: Chunks, tmp_path: Path
) -> None:
    manifest = manifest_of(files)
    files["small.json"].write_bytes(b'{"a": 1}')
    with pytest.raises(TransferError, match=r"small\.json .* changed while it was sent"):
        receive(send(manifest, chunks.put), tmp_path / "there", chunks.fetch)


def test_a_disk_without_room_is_said_before_anything_is_written(
    files: dict[str, Path], chunks: Chunks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = send(manifest_of(files), chunks.put)
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage())
    with pytest.raises(TransferError, match=r"do not fit .* 1 MiB are free"):
        receive(transfer, tmp_path / "there", chunks.fetch)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


class _Usage:
    free = 1 << 20


def test_a_disk_that_fills_up_on_the_way_is_one_line_and_leaves_nothing(
    files: dict[str, Path], chunks: Chunks, tmp_path: Path
) -> None:
    transfer = send(manifest_of(files), chunks.put)

    def full(handle: object) -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(TransferError, match=r"cannot be put into .*No space left on device"):
        receive(transfer, tmp_path / "there", full)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ""])
def test_no_file_lies_outside_of_the_folder(
    name: str, files: dict[str, Path], chunks: Chunks, tmp_path: Path
) -> None:
    with pytest.raises(TransferError, match="a place below the folder"):
        manifest_of({name: files["empty"]})
    honest = send(manifest_of({"empty": files["empty"]}), chunks.put)
    (entry,) = honest.manifest.files
    forged = type(honest.manifest)((type(entry)(name, 0, entry.sha256),), {})
    with pytest.raises(TransferError, match="a place below the folder"):
        receive(Transfer(forged, {name: ()}), tmp_path / "there", chunks.fetch)
