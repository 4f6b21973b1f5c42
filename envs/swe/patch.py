"""Patches, by the files that they touch: as text in git's form, and reversed.

Their paths and modes are those of regular files inside the repository only.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

DEV_NULL = "/dev/null"
HUNK_HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
MODES = ("100644", "100755")
_REGULAR = re.compile(r"100([0-7])[0-7]{2}")
_INDEX = re.compile(r"[0-9a-f]+\.\.[0-9a-f]+(?: \d+)?")
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


class PatchRefused(Exception):
    """A patch that is not applied, and why; the fault of who wrote it."""


class NotApplicable(PatchRefused):
    """A change to one file that is never applied, such as to a link; the rest of a patch may be."""


@dataclass(frozen=True, slots=True)
class FilePatch:
    """Changes of a patch to one file."""

    old: str | None
    """Path before; None for a file that is created."""
    new: str | None
    """Path after; None for a file that is deleted."""
    old_mode: str | None
    new_mode: str | None
    copied: bool
    index: str
    """Git's names of both contents, which a three-way merge needs; may be empty."""
    hunks: tuple[str, ...]

    @property
    def paths(self) -> frozenset[str]:
        """Files that it changes; what it copies from stays as it is."""
        old = None if self.copied else self.old
        return frozenset(path for path in (old, self.new) if path is not None)

    @property
    def text(self) -> str:
        """Git's form of it."""
        old, new = self.old or self.new or "", self.new or self.old or ""
        lines = [f"diff --git {quoted('a/' + old)} {quoted('b/' + new)}"]
        if self.old is None:
            lines.append(f"new file mode {self.new_mode or MODES[0]}")
        elif self.new is None:
            lines.append(f"deleted file mode {self.old_mode or MODES[0]}")
        elif self.old_mode and self.new_mode and self.old_mode != self.new_mode:
            lines += [f"old mode {self.old_mode}", f"new mode {self.new_mode}"]
        if old != new:
            operation = "copy" if self.copied else "rename"
            lines += [f"{operation} from {quoted(old)}", f"{operation} to {quoted(new)}"]
        if self.index:
            lines.append(f"index {self.index}")
        if self.hunks:
            lines.append(f"--- {quoted('a/' + old) if self.old is not None else DEV_NULL}")
            lines.append(f"+++ {quoted('b/' + new) if self.new is not None else DEV_NULL}")
        return "\n".join([*lines, *self.hunks]) + "\n"


@dataclass(frozen=True, slots=True)
class Patch:
    """A whole patch."""

    files: tuple[FilePatch, ...] = ()
    left_out: tuple[str, ...] = ()
    """Other changes in the text, which are not applied, each in words."""

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(path for file in self.files for path in file.paths)

    @property
    def old_paths(self) -> frozenset[str]:
        """Files that stood before."""
        return frozenset(file.old for file in self.files if file.old is not None)

    @property
    def new_paths(self) -> frozenset[str]:
        """Files that stand after."""
        return frozenset(file.new for file in self.files if file.new is not None)

    @property
    def text(self) -> str:
        return "".join(file.text for file in self.files)

    def reversed(self) -> Patch:
        """The patch that undoes it."""
        return Patch(tuple(_reversed(file) for file in self.files))


def _reversed(file: FilePatch) -> FilePatch:
    return FilePatch(
        file.new,
        file.old,
        file.new_mode,
        file.old_mode,
        file.copied,
        "",
        tuple(_reversed_hunk(hunk) for hunk in file.hunks),
    )


def _reversed_hunk(hunk: str) -> str:
    head, *body = hunk.split("\n")
    match = HUNK_HEAD.fullmatch(head)
    if match is None:
        raise PatchRefused(f"got {head!r}, expected the head of a hunk")
    ranges = re.match(r"@@ -(\S+) \+(\S+) @@", head)
    swapped = f"@@ -{ranges.group(2)} +{ranges.group(1)} @@{match.group(5)}" if ranges else head
    turn = {"+": "-", "-": "+"}
    return "\n".join([swapped, *(turn.get(line[:1], line[:1]) + line[1:] for line in body)])


def mode_of(text: str) -> str:
    """A regular file's mode as git keeps it; links and submodules lead out of the repository."""
    if regular := _REGULAR.fullmatch(text):
        return MODES[int(regular.group(1)) & 1]
    if text not in MODES:
        kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(text, f"mode {text!r}")
        raise NotApplicable(f"the patch makes or changes {kind}, expected regular files")
    return text


def index_of(text: str) -> str:
    match = _INDEX.fullmatch(text)
    if match is None:
        raise PatchRefused(f"got the index line {text[:200]!r}, expected two names of contents")
    names, _, mode = text.partition(" ")
    return f"{names} {mode_of(mode)}" if mode else text


def name_of(text: str) -> str:
    """A name as it stands in a patch, without git's quotes."""
    return _unquoted(text) if text.startswith('"') else text


def path_of(name: str) -> str:
    """A path inside the repository."""
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or posixpath.normpath(name) != name:
        raise PatchRefused(f"the path {name[:200]!r} leads out of the repository")
    if any(_is_git(part) for part in parts):
        raise PatchRefused(f"the path {name[:200]!r} is git's own")
    if any(ord(letter) < 32 or letter == "\x7f" for letter in name):
        raise NotApplicable(f"the path {name[:200]!r} holds a control character")
    return name


def without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Both names of a file without what stands in front of them: `a/` and `b/`, `i/` and `w/`, or
    whatever differs. Where both begin alike nothing does, but for `a/`, `b/` and `./`."""
    old_first, _, old_rest = old.partition("/")
    new_first, _, new_rest = new.partition("/")
    is_prefixed = old_first != new_first or old_first in ("a", "b", ".")
    return (old_rest, new_rest) if is_prefixed and old_rest and new_rest else (old, new)


def _is_git(part: str) -> bool:
    """Whether it is git's folder, also as other file systems could read it."""
    plain = part.casefold().rstrip(". ").replace("\u200c", "").replace("\u200d", "")
    return plain in (".git", "git~1")


def _unquoted(text: str) -> str:
    """Git's C-like quoting of unusual paths."""
    if len(text) < 2 or not text.endswith('"'):
        raise PatchRefused(f"got the path {text[:200]!r}, expected its closing quote")
    unquoted = bytearray()
    for piece in re.finditer(r"\\([0-7]{3})|\\(.)|([^\\]+)", text[1:-1]):
        octal, escape, plain = piece.groups()
        if octal is not None:
            unquoted.append(int(octal, 8) & 255)
        elif escape is not None:
            unquoted.append(_ESCAPES.get(escape, ord("?")))
        else:
            unquoted += plain.encode(errors="surrogateescape")
    return unquoted.decode(errors="surrogateescape")


def quoted(path: str) -> str:
    """Quoted where git would: a quote, a backslash, or anything but ASCII."""
    if path.isascii() and not re.search(r'["\\]', path):
        return path
    data = path.encode(errors="surrogateescape")
    letters = (chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in data)
    return f'"{"".join(letters)}"'
