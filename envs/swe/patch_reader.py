"""Reads patches in two stages: what each file's part says, and which of them can be applied.

What is applied is made from what was understood: text between hunks, headers that name other
files than the hunks' own, and whatever else two programs could read in two ways is gone. A part
that is understood and never applied (a symbolic link, a nested repository, a binary file, a name
with a control character) is left out and named; it is read to its end, so that it hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from clawrl_gym.envs.swe.patch import (
    DEV_NULL,
    HUNK_HEAD,
    FilePatch,
    NotApplicable,
    Patch,
    PatchRefused,
    index_of,
    mode_of,
    name_of,
    path_of,
    without_prefixes,
)

MAX_PATCH_BYTES = 10_000_000
MAX_BLANKS_LOST = 3
"""Empty context lines at the end of a patch that trimming may have cut."""
_RETURNED_HEAD = re.compile(r"^(?:diff --git .*|--- .*\r\n\+\+\+ .*)\r$", re.M)
_COMBINED = re.compile(r"diff --(?:cc|combined) ")
_COLOURED_HEAD = re.compile(r"^\x1b\[[\d;]*mdiff --git ", re.M)
_COLOUR = re.compile(r"\x1b\[[\d;]*[mK]")
_HEAD = re.compile(r"^(?:diff --git |--- )", re.M)
_INDENTED_HEAD = re.compile(r"^([ \t]+)diff --git ", re.M)
_EMPTY_BLOB = "e69de29"
_OF_BINARY = re.compile(r"(?:literal|delta) \d+|[A-Za-z][0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]+|")
_FIRST = frozenset(("a", "b", "."))
_PREFIXES = frozenset(("a", "b", "c", "i", "o", "w", "1", "2"))
_BINARY = re.compile(r"Binary files (?P<old>.+) and (?P<new>.+) differ\r?")


def parse_patch(text: str) -> Patch:
    """Read git's or plain unified form. Raises PatchRefused for what no patch of text files is."""
    patch = read_patch(text)
    if patch.left_out:
        raise NotApplicable(patch.left_out[0])
    return patch


def read_patch(text: str) -> Patch:
    """The same, less the files that cannot be applied, which it names."""
    try:
        size = len(text.encode(errors="surrogateescape"))
    except UnicodeEncodeError as error:
        raise PatchRefused("the patch is not text") from error
    if size > MAX_PATCH_BYTES:
        raise PatchRefused(f"the patch has {size} bytes, at most {MAX_PATCH_BYTES} are taken")
    if "\0" in text:
        raise PatchRefused("the patch holds a NUL, expected text")
    text = _without_frame(_without_returns(text))
    reader = _PatchLines(text.removesuffix("\n").split("\n") if text.strip() else [])
    read = list(reader.files())
    files = tuple(file for file in read if file.paths.isdisjoint(reader.paths_left_out))
    names = [path for file in files for path in file.paths]
    if len(set(names)) != len(names):
        raise PatchRefused("the patch names a file twice")
    if text.strip() and not files and not reader.left_out:
        reader.left_out.append("the text holds no change in the form of git diff")
    return Patch(files, tuple(reader.left_out))


def _without_returns(text: str) -> str:
    """A patch whose headers end as lines of Windows do went through a program that made all lines
    so; in one whose hunks alone do, the files are so."""
    return text.replace("\r\n", "\n") if _RETURNED_HEAD.search(text) else text


def _without_frame(text: str) -> str:
    """A patch without the colours of a terminal, or the indentation of a quotation."""
    if _COLOURED_HEAD.search(text):
        text = _COLOUR.sub("", text)
    indented = _INDENTED_HEAD.search(text)
    if indented is None or _HEAD.search(text):
        return text
    return "\n".join(line.removeprefix(indented.group(1)) for line in text.split("\n"))


@dataclass(slots=True)
class _Header:
    """Content of the lines before a file's hunks."""

    old: str | None = None
    new: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    created: bool = False
    deleted: bool = False
    copied: bool = False
    index: str = ""
    problem: str = ""
    """Why the file is not applied; empty for one that is."""

    @property
    def changes_something(self) -> bool:
        """Whether it changes a file without a hunk; a file deleted this way was empty."""
        if self.deleted and self.index and not self.index.startswith(_EMPTY_BLOB):
            return False
        is_moved = self.old != self.new
        has_modes = self.old_mode is not None and self.new_mode is not None
        return self.created or self.deleted or is_moved or has_modes

    def take(self, line: str) -> bool:
        """Read one of git's extended lines; False when it is none."""
        word, _, rest = line.partition(" ")
        subject, _, value = rest.partition(" ")
        match word, subject:
            case ("old", "mode"):
                self.old_mode = self.read(mode_of, value)
            case ("new", "mode"):
                self.new_mode = self.read(mode_of, value)
            case ("new", "file"):
                self.created, self.new_mode = True, self.read(mode_of, value.removeprefix("mode "))
            case ("deleted", "file"):
                self.deleted, self.old_mode = True, self.read(mode_of, value.removeprefix("mode "))
            case ("rename" | "copy", "from"):
                self.old, self.copied = self.read(path_of, name_of(value)), word == "copy"
            case ("rename" | "copy", "to"):
                self.new = self.read(path_of, name_of(value))
            case ("index", _):
                self.index = self.read(index_of, rest) or ""
            case ("similarity" | "dissimilarity", "index"):
                pass
            case _:
                return False
        return True

    def read(self, read: Callable[[str], str], text: str) -> str | None:
        """The text that is read; None, and the problem recorded, where it cannot be applied."""
        try:
            return read(text)
        except NotApplicable as problem:
            self.problem = self.problem or str(problem)
            return None


class _PatchLines:
    """Goes through a patch's lines once."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self.left_out: list[str] = []
        """Parts of the files so far that are not applied."""
        self.paths_left_out: set[str] = set()
        """A later part of such a file cannot be applied either."""
        self._has_prefixes = _has_prefixes(lines)

    def files(self) -> Iterator[FilePatch]:
        """Files that can be applied."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            header, file = _Header(), None
            if line.startswith("diff --git "):
                self._at += 1
                file = self._git_file(line.removeprefix("diff --git "), header)
            elif line.startswith("--- ") and self._ahead(1).startswith("+++ "):
                file = self._file(header, None)
            elif _COMBINED.match(line):
                self._pass_combined(line, header)
            elif HUNK_HEAD.match(line):
                raise PatchRefused(f"line {self._at + 1} of the patch: a hunk of no file")
            else:
                self._take_words(line, header)
            if header.problem:
                self.left_out.append(header.problem)
            elif file is not None:
                yield file

    def _take_words(self, line: str, header: _Header) -> None:
        """Pass a line before or between files, unless it tells of a binary one."""
        self._at += 1
        if binary := _BINARY.fullmatch(line):
            header.problem = f"the patch changes the binary file {binary['new'][:200]!r}"

    def _pass_combined(self, line: str, header: _Header) -> None:
        """Pass a merge that is compared with both its parents, up to the next file."""
        header.problem = f"the patch shows a merge of {line.split(' ', 2)[2][:200]!r}"
        self._at += 1
        while self._at < len(self._lines) and not self._lines[self._at].startswith("diff --"):
            self._at += 1

    def _ahead(self, lines: int) -> str:
        at = self._at + lines
        return self._lines[at] if at < len(self._lines) else ""

    def _git_file(self, names: str, header: _Header) -> FilePatch | None:
        while self._at < len(self._lines) and header.take(self._lines[self._at]):
            self._at += 1
        line = self._ahead(0)
        if line.startswith("GIT binary patch") or _BINARY.fullmatch(line):
            header.problem = f"the patch changes the binary file {names.split()[-1][:200]!r}"
            self._pass_binary()
            return None
        return self._file(header, names)

    def _pass_binary(self) -> None:
        """Pass what git writes of a binary file: letters and figures, and blank lines."""
        self._at += 1
        while self._at < len(self._lines) and _OF_BINARY.fullmatch(self._lines[self._at]):
            self._at += 1

    def _file(self, header: _Header, names: str | None) -> FilePatch | None:
        hunks: tuple[str, ...] = ()
        if self._ahead(0).startswith("--- ") and self._ahead(1).startswith("+++ "):
            sides = _side(self._ahead(0)[4:]), _side(self._ahead(1)[4:])
            self._at += 2
            first = self._at
            hunks = tuple(self._hunks())
            if not header.problem:
                self._agree(header, *self._paths(header, *sides, names))
            if not hunks:
                raise PatchRefused(f"line {first} of the patch: a file without a hunk")
        elif header.old is None and header.new is None and not header.problem:
            path = header.read(path_of, self._both(names or ""))
            header.old = None if header.created else path
            header.new = None if header.deleted else path
        if not hunks and not header.problem and not header.changes_something:
            header.problem = "the patch does not show what it changes"
        if header.problem:
            self._leave_out(header, names)
            return None
        return FilePatch(
            header.old, header.new, header.old_mode, header.new_mode, header.copied,
            header.index, hunks,
        )  # fmt: skip

    def _leave_out(self, header: _Header, names: str | None) -> None:
        name = (names or "").split(" ")[-1] or "a file"
        header.problem = f"{header.problem} ({name[:200]})"
        halves = _halves(names or "")
        sides = self._stripped(*halves) if halves is not None else (header.old, header.new)
        self.paths_left_out |= {path for path in sides if path is not None}

    def _stripped(self, old: str, new: str) -> tuple[str, str]:
        return without_prefixes(old, new) if self._has_prefixes else (old, new)

    def _agree(self, header: _Header, old: str | None, new: str | None) -> None:
        """Both ways of naming a file must name the same."""
        if header.problem:
            return
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

    def _paths(
        self, header: _Header, old: str | None, new: str | None, names: str | None
    ) -> tuple[str | None, str | None]:
        """The paths that both lines name; None for a side that is /dev/null, or is not applied."""
        if old is not None and new is not None:
            if (old, new) != (header.old, header.new):
                old, new = self._stripped(old, new)
        elif names is not None and (both := _halves(names)) is not None:
            # a side alone does not tell what is in front of it
            for name, wanted in zip((old, new), both, strict=True):
                if name is not None and name != wanted:
                    raise PatchRefused(
                        f"the patch names {name!r} and {wanted!r}, expected one file"
                    )
            stripped = self._stripped(*both)
            old = None if old is None else stripped[0]
            new = None if new is None else stripped[1]
        elif self._has_prefixes:
            old, new = _without_first(old), _without_first(new)
        return (
            None if old is None else header.read(path_of, old),
            None if new is None else header.read(path_of, new),
        )

    def _both(self, names: str) -> str:
        """The path of a `diff --git` line that names one file twice."""
        halves = _halves(names)
        old, new = self._stripped(*halves) if halves is not None else ("", " ")
        if old != new:
            raise PatchRefused(f"cannot tell which file the patch means by {names[:200]!r}")
        return old

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


def _side(text: str) -> str | None:
    """The name on a --- or +++ line, without the time that diff writes after a tab."""
    if not text.startswith('"'):  # git ends a name that has a space with a tab
        text = text.split("\t")[0] if "\t" in text else text.rstrip()
    name = text
    return None if name.rstrip() == DEV_NULL else name_of(name)


def _has_prefixes(lines: Iterable[str]) -> bool:
    """False for a patch of `--no-prefix`: one file at least has two names that are the same, and
    none begins with a/ and b/."""
    heads = [line.removeprefix("diff --git ") for line in lines if line.startswith("diff --git ")]
    pairs = [pair for head in heads if (pair := _halves(head)) is not None]
    if any(old[:2] == "a/" and new[:2] == "b/" and old[2:] == new[2:] for old, new in pairs):
        return True
    return not any(old == new and old.split("/")[0] not in _FIRST for old, new in pairs)


def _without_first(name: str | None) -> str | None:
    """The name without a prefix that git is known to write."""
    first, _, rest = (name or "").partition("/")
    return rest if name is not None and first in _PREFIXES and rest else name


def _halves(names: str) -> tuple[str, str] | None:
    """Both names of a `diff --git` line; None where it is not clear where the second begins."""
    if names.startswith('"'):
        end = names.find('" ')
        first, second = names[: end + 1], names[end + 2 :]
    elif names.endswith('"'):
        begin = names.find(' "')
        first, second = names[:begin], names[begin + 1 :]
    elif names.count(" ") == 1:
        first, second = names.split(" ")
    else:
        half = len(names) // 2
        first, second = names[:half], names[half + 1 :]
        if names[half : half + 1] != " ":
            return None
    return name_of(first), name_of(second)
