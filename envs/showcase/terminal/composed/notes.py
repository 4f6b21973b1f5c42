"""Files that say what a request does not: settings, pointers to other files, a README."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text

_SETTINGS = ("settings.ini", "project.cfg", "job.conf", "options.ini")
_README = "README.md"
_KEYS: Mapping[str, str] = MappingProxyType(
    {"n": "limit", "w": "word", "v": "replacement", "k": "field", "l": "level", "m": "mode",
     "x": "ending"}
)  # fmt: skip
"""Keys of the settings, by the argument that they stand for."""
_OTHERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"n": ("12", "15"), "l": ("TRACE", "FATAL"), "m": ("644", "400"), "x": ("tmp", "bak")}
)
"""Former values; words for all others."""

_WORDS: Mapping[str, Mapping[Split, tuple[str, ...]]] = MappingProxyType(
    {
        "setting": {
            "train": (
                "the {noun} that {file} gives as {key}",
                "the {noun} named under {key} in {file}",
            ),
            "heldout": ("the {noun} set as {key} in {file}",),
        },
        "pointer": {
            "train": ("the {noun} that {file} names", "the {noun} whose name is in {file}"),
            "heldout": ("the {noun} that {file} points to",),
        },
        "readme": {
            "train": (
                "the file that {file} wants results in",
                "the file for results according to {file}",
            ),
            "heldout": ("the file where {file} says that results go",),
        },
        "largest": {
            "train": ("the largest file in {file}", "the file in {file} that has the most bytes"),
            "heldout": ("the biggest of the files in {file}",),
        },
        "value": {
            "train": (
                ", where {letter} is the {key} in {file}",
                ", with {letter} as it stands in {file} under {key}",
            ),
            "heldout": (", {letter} being what {file} calls {key}",),
        },
    }
)


class Notes:
    """The notes of one task, while they are written."""

    def __init__(self, draw: Draw, split: Split, name: Callable[[str], str]) -> None:
        self._draw, self._split, self._name = draw, split, name
        self._settings_file = draw.pick(_SETTINGS)
        self._settings: dict[str, str] = {}
        self._pointers: dict[str, str] = {}
        self._results = ""
        self._former: dict[str, str] = {}
        """Values that were valid once, by key or pointer: decoys."""

    def mark(self) -> tuple[dict[str, str], dict[str, str], str]:
        """State that `rewind` returns to."""
        return dict(self._settings), dict(self._pointers), self._results

    def rewind(self, mark: tuple[dict[str, str], dict[str, str], str]) -> None:
        self._settings, self._pointers, self._results = mark

    def name_of(self, path: str, other: str, noun: str) -> tuple[str, str]:
        """A phrase for a path that stands in a note, and the command that shows it.

        `other`: of the same kind; the note may have it as a former one.
        """
        if self._draw.below(2):
            key = self._set("input", path, other)
            return self._say("setting", self._settings_file, noun=noun, key=key)
        pointer = self._name("txt")
        self._pointers[pointer] = path
        self._former[f"{pointer}?"] = other
        return self._say("pointer", pointer, noun=noun)

    def target(self, path: str) -> tuple[str, str]:
        """Likewise of a file that is to be made."""
        former = f"{self._draw.pick(STEMS)}-1.{path.rpartition('.')[2]}"
        if self._results or self._draw.below(2):
            key = self._set("output", path, former)
            return self._say("setting", self._settings_file, noun="file", key=key)
        self._results = path
        self._former["results?"] = former
        return self._say("readme", _README)

    def value(self, argument: str, value: str) -> tuple[str, str, str]:
        """A letter for a value that stands in the settings, what is said of it, and the command."""
        others = _OTHERS.get(argument, WORDS)
        former = self._draw.pick([other for other in others if other != value])
        key = self._set(_KEYS[argument], value, former)
        letter = argument.upper()
        tail, look = self._say("value", self._settings_file, letter=letter, key=key)
        return letter, tail, look

    def largest_of(self, folder: str) -> str:
        """A phrase for the largest file of a folder."""
        return self._say("largest", folder)[0]

    def add_decoy(self) -> bool:
        """One note says what was valid before, too; False where each does."""
        written = {*self._settings, *self._pointers, *(["results"] if self._results else [])}
        left = [key for key in self._former if key.endswith("?") and key[:-1] in written]
        if left:
            key = self._draw.pick(left)
            self._former[key[:-1]] = self._former.pop(key)
        return bool(left)

    def files(self) -> Iterator[tuple[str, bytes]]:
        if self._settings:
            yield self._settings_file, text(["[job]", *self._lines()])
        for pointer, path in self._pointers.items():
            before = [f"# was {self._former[pointer]}"] if pointer in self._former else []
            yield pointer, text([*before, path])
        if self._results:
            former = self._former.get("results")
            before = [f"Until last spring results went into {former}."] if former else []
            now = f"Results go into {self._results}."
            yield _README, text(["# About this folder", "", *before, now])

    def _lines(self) -> Iterator[str]:
        for key, value in self._settings.items():
            if key in self._former:
                yield f"# {key} = {self._former[key]}"
            yield f"{key} = {value}"

    def _set(self, key: str, value: str, former: str) -> str:
        """A new key of the settings."""
        taken = sum(known.startswith(key) for known in self._settings)
        key = f"{key}_{taken + 1}" if taken else key
        self._settings[key] = value
        self._former[f"{key}?"] = former
        return key

    def _say(self, way: str, file: str, **fields: str) -> tuple[str, str]:
        words = self._draw.pick(_WORDS[way][self._split]).format(file=file, **fields)
        return words, f"cat {file}"
