"""A folder of files as a web site: reads only, and only what lies in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.envs.gui.site import Request, Response

MAX_FILE_BYTES = 32 * 2**20
_INDEX = "index.html"
_UTF8 = "; charset=utf-8"
TYPES: Mapping[str, str] = {
    ".css": f"text/css{_UTF8}",
    ".csv": f"text/csv{_UTF8}",
    ".gif": "image/gif",
    ".htm": f"text/html{_UTF8}",
    ".html": f"text/html{_UTF8}",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": f"text/javascript{_UTF8}",
    ".json": f"application/json{_UTF8}",
    ".mjs": f"text/javascript{_UTF8}",
    ".mp4": "video/mp4",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": f"image/svg+xml{_UTF8}",
    ".ttf": "font/ttf",
    ".txt": f"text/plain{_UTF8}",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".xml": f"application/xml{_UTF8}",
}
"""Here and not from the machine's tables, which differ."""


@dataclass(frozen=True, slots=True)
class FolderSite:
    """Serves a folder; what a symbolic link leads out to is not there."""

    folder: Path

    def handle(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _refused(405, f"{request.method} is not answered here")
        file = self._file(request.path)
        if file is None:
            return _refused(404, f"there is no {request.path}")
        kind = TYPES.get(file.suffix.lower(), "application/octet-stream")
        return Response(file.read_bytes(), content_type=kind)

    def state(self) -> None:
        """Files do not change."""

    def _file(self, path: str) -> Path | None:
        """The file of a decoded path; None where there is none in the folder."""
        root = self.folder.resolve()
        try:
            file = (root / path.replace("\\", "/").lstrip("/")).resolve()
            if file.is_dir():
                file = (file / _INDEX).resolve()
            inside = file.is_relative_to(root) and file.is_file()
            return file if inside and file.stat().st_size <= MAX_FILE_BYTES else None
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
            return None


def _refused(status: int, why: str) -> Response:
    return Response(why, status, TYPES[".txt"])
