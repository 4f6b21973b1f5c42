"""Reads patches strictly.

What is applied is made from what was understood: text between hunks, headers that name other
files than the hunks' own, and whatever else two programs could read in two ways is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clawrl_gym.envs.swe.patch import (
    DEV_NULL,
    HUNK_HEAD,
    FilePatch,
    Patch,
    PatchRefused,
    index_of,
    mode_of,
    path_of,
)

MAX_PATCH_BYTES = 10_000_000
MAX_BLANKS_LOST = 3
"""Empty context lines at the end of a patch that whoever trimmed the text may have cut."""


def parse_patch(text: str) -> Patch:
    """Read git's or plain unified form. Raises PatchRefused for what no patch of text files is."""
    try:
        size = len(text.encode(errors="surrogateescape"))
    except UnicodeEncodeError as error:
        raise PatchRefused("the patch is not text") from error
    if size > MAX_PATCH_BYTES:
        raise PatchRefused(f"the patch has {size} bytes, at most {MAX_PATCH_BYTES} are taken")
    if "\0" in text:
        raise PatchRefused("the patch holds a NUL, expected text")
    reader = _PatchLines(text.removesuffix("\n").split("\n") if text.strip() else [])
    files = tuple(reader.files())
    names = [path for file in files for path in file.paths]
    if len(set(names)) != len(names):
        raise PatchRefused("the patch names a file twice")
    return Patch(files)


@dataclass(slots=True)
class _Header:
    """What the lines before a file's hunks say."""

    old: str | None = None
    new: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    created: bool = False
    deleted: bool = False
    copied: bool = False
    index: str = ""

    def take(self, line: str) -> bool:
        """Read one of git's extended lines; False when it is none."""
        word, _, rest = line.partition(" ")
        subject, _, value = rest.partition(" ")
        match word, subject:
            case ("old", "mode"):
                self.old_mode = mode_of(value)
            case ("new", "mode"):
                self.new_mode = mode_of(value)
            case ("new", "file"):
                self.created, self.new_mode = True, mode_of(value.removeprefix("mode "))
            case ("deleted", "file"):
                self.deleted, self.old_mode = True, mode_of(value.removeprefix("mode "))
            case ("rename" | "copy", "from"):
                self.old, self.copied = path_of(value, ""), word == "copy"
            case ("rename" | "copy", "to"):
                self.new = path_of(value, "")
            case ("index", _):
                self.index = index_of(rest)
            case ("similarity" | "dissimilarity", "index"):
                pass
            case _:
                return False
        return True


class _PatchLines:
    """Goes through a patch's lines once."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def files(self) -> Iterator[FilePatch]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                self._at += 1
                yield self._git_file(line.removeprefix("diff --git "))
            elif line.startswith("--- ") and self._ahead(1).startswith("+++ "):
                yield self._file(_Header(), None)
            elif HUNK_HEAD.match(line):
                raise PatchRefused(f"line {self._at + 1} of the patch: a hunk of no file")
            else:
                self._at += 1  # words before or between files

    def _ahead(self, lines: int) -> str:
        at = self._at + lines
        return self._lines[at] if at < len(self._lines) else ""

    def _git_file(self, names: str) -> FilePatch:
        header = _Header()
        while self._at < len(self._lines) and header.take(self._lines[self._at]):
            self._at += 1
        line = self._ahead(0)
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise PatchRefused(f"the patch changes the binary file {names.split()[-1][:200]!r}")
        return self._file(header, names)

    def _file(self, header: _Header, names: str | None) -> FilePatch:
        hunks: tuple[str, ...] = ()
        if self._ahead(0).startswith("--- ") and self._ahead(1).startswith("+++ "):
            old, new = self._ahead(0)[4:], self._ahead(1)[4:]
            self._at += 2
            self._agree(header, _side(old, "a/"), _side(new, "b/"))
            hunks = tuple(self._hunks())
            if not hunks:
                raise PatchRefused(f"line {self._at} of the patch: a file without a hunk")
        elif header.old is None and header.new is None:
            path = _both(names or "")
            header.old = None if header.created else path
            header.new = None if header.deleted else path
        return FilePatch(
            header.old, header.new, header.old_mode, header.new_mode, header.copied,
            header.index, hunks,
        )  # fmt: skip

    def _agree(self, header: _Header, old: str | None, new: str | None) -> None:
        """Both ways of naming a file must name the same."""
        renamed = header.old is not None or header.new is not None
        if renamed and (header.old, header.new) != (old, new):
            raise PatchRefused("the patch names one file in two ways")
        if not renamed and old is not None and new is not None and old != new:
            raise PatchRefused(f"the patch changes {old!r} into {new!r} without saying rename")
        if (header.created and old is not None) or (header.deleted and new is not None):
            raise PatchRefused(f"the patch both makes or removes {new or old!r} and changes it")
        if old is None and new is None:
            raise PatchRefused("the patch changes /dev/null")
        header.old, header.new = old, new

    def _hunks(self) -> Iterator[str]:
        while match := HUNK_HEAD.fullmatch(self._ahead(0)):
            first = self._at
            old, new = (1 if count is None else int(count) for count in match.group(2, 4))
            self._at += 1
            body = list(self._body(old, new, first))
            yield "\n".join([self._lines[first], *body])

    def _body(self, old: int, new: int, first: int) -> Iterator[str]:
        """A hunk's lines, as many as its head says."""
        while old > 0 or new > 0:
            if self._at >= len(self._lines):
                if old != new or old > MAX_BLANKS_LOST:
                    raise PatchRefused(f"the hunk at line {first + 1} of the patch is cut short")
                yield from [" "] * old
                return
            line = self._lines[self._at] or " "
            old -= line[0] in " -"
            new -= line[0] in " +"
            if line[0] not in " +-\\" or old < 0 or new < 0:
                raise PatchRefused(
                    f"line {self._at + 1} of the patch is not as the hunk's head says"
                )
            self._at += 1
            yield line
        if self._ahead(0).startswith("\\"):
            self._at += 1
            yield "\\ No newline at end of file"


def _side(text: str, prefix: str) -> str | None:
    """The path of a --- or +++ line, without the time that diff writes after a tab."""
    name = text if text.startswith('"') else text.split("\t")[0]
    return None if name.rstrip() == DEV_NULL else path_of(name, prefix)


def _both(names: str) -> str:
    """The path of a `diff --git` line that names one file twice."""
    if names.startswith('"'):
        end = names.find('" "')
        first, second = names[: end + 1], names[end + 2 :]
    else:
        half = len(names) // 2
        first, second = names[:half], names[half + 1 :]
    old, new = path_of(first, "a/"), path_of(second, "b/")
    if old != new:
        raise PatchRefused(f"cannot tell which file the patch means by {names[:200]!r}")
    return old
