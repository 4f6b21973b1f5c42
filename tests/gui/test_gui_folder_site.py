"""A folder as a site: what lies in it is served, and nothing else."""

from pathlib import Path

import pytest

from clawrl_gym.envs.gui.folder_site import MAX_FILE_BYTES, FolderSite
from clawrl_gym.envs.gui.site import Request


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "index.html").write_text("<p>front</p>")
    (root / "sub" / "index.html").write_text("<p>sub</p>")
    (root / "sub" / "code.js").write_text("let a = 1;")
    (root / "picture.png").write_bytes(b"\x89PNG")
    (root / "no suffix").write_bytes(b"\x00")
    return root


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        ("/", b"<p>front</p>", "text/html; charset=utf-8"),
        ("/sub", b"<p>sub</p>", "text/html; charset=utf-8"),
        ("/sub/code.js", b"let a = 1;", "text/javascript; charset=utf-8"),
        ("/picture.png", b"\x89PNG", "image/png"),
        ("/no suffix", b"\x00", "application/octet-stream"),
        ("//sub/../index.html", b"<p>front</p>", "text/html; charset=utf-8"),
    ],
)
def test_files_are_served_with_their_type(
    folder: Path, path: str, body: bytes, content_type: str
) -> None:
    answer = FolderSite(folder).handle(Request("GET", path))
    assert (answer.status, answer.body, answer.content_type) == (200, body, content_type)


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/..\\secret.txt",
        "//secret.txt",
        "/sub/\x00",
        "/" + "a" * 5000,
        "/nothing",
        "/link/secret.txt",
        "/loop",
        "/large",
    ],
)
def test_what_is_not_in_the_folder_is_not_there(folder: Path, path: str) -> None:
    (folder / "link").symlink_to(folder.parent)
    (folder / "loop").symlink_to(folder / "loop")
    with (folder / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    answer = FolderSite(folder).handle(Request("GET", path))
    assert answer.status == 404
    assert b"secret" not in str(answer.body).replace(path, "").encode()


def test_an_absolute_path_of_the_machine_is_looked_for_in_the_folder(folder: Path) -> None:
    secret = folder.parent / "secret.txt"
    assert FolderSite(folder).handle(Request("GET", str(secret))).status == 404
    assert FolderSite(folder).handle(Request("GET", f"/{secret}")).status == 404


def test_nothing_can_be_written(folder: Path) -> None:
    answer = FolderSite(folder).handle(Request("POST", "/index.html", form={"a": "b"}))
    assert answer.status == 405
    assert (folder / "index.html").read_text() == "<p>front</p>"
