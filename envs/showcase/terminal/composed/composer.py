"""Draws a chain of skills in a folder: sources, targets, what is hidden, in the way, or misleading.

Later parts use what earlier parts made wherever that fits.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.showcase.terminal.composed.heldout import log_folder, messy_folder
from clawrl_gym.envs.showcase.terminal.composed.library import HELDOUT_SKILLS, SKILLS
from clawrl_gym.envs.showcase.terminal.composed.notes import Notes
from clawrl_gym.envs.showcase.terminal.composed.obstacles import OF_SOURCES, fits, put
from clawrl_gym.envs.showcase.terminal.composed.plan import Action, Part, Plan, played, same
from clawrl_gym.envs.showcase.terminal.composed.skill import TEXTS, Args, Kind, Skill
from clawrl_gym.envs.showcase.terminal.composed.sources import CONTENTS, ENDINGS, folder_files
from clawrl_gym.envs.showcase.terminal.composed.tables import VARIABLES
from clawrl_gym.envs.showcase.terminal.composed.world import World
from clawrl_gym.envs.showcase.terminal.families.files import packed_tar
from clawrl_gym.envs.task_ids import composition_split

_TRIES = 12
"""Tries for one part before the whole task is given up."""
_FOLDERS = frozenset({Kind.FOLDER, Kind.EMPTY, Kind.LOGS, Kind.MESS})
_BLIND: Mapping[str, str] = MappingProxyType(
    {"n": "10", "k": "name", "l": "ERROR", "m": "644", "x": "txt"}
)
"""Value that an agent takes without looking, by argument."""


class NotApplicable(Exception):
    """This draw gives no task; another one may."""


class Composer:
    """One plan while it is made."""

    def __init__(self, draw: Draw, split: Split) -> None:
        self._draw, self._split = draw, split
        self._start, self._now = World(), World()
        self._stems = list(STEMS)
        self._notes = Notes(draw, split, self.name)
        self._kinds: dict[str, Kind] = {}
        """Kinds of the paths that later parts can use."""
        self._words: dict[str, str] = {}
        """Phrases for paths whose name is hidden."""
        self._guesses: dict[str, str] = {}
        self._rules: dict[str, str] = {}
        self._parts: list[Part] = []
        self._before: list[Action] = []
        """Deeds before the part that is being made."""
        self.hidden = self.obstacles = self.decoys = 0
        for name in draw.some(VARIABLES, 3):
            self._now.env[name] = f"{draw.pick(WORDS)}{draw.between(10, 99)}"
        self._start.env = self._now.env

    def name(self, ending: str = "") -> str:
        """A new name, with a stem that no other has."""
        if not self._stems:
            raise NotApplicable
        stem = self._stems.pop(self._draw.below(len(self._stems)))
        return f"{stem}.{ending}" if ending else stem

    def add(self, hide: str = "", obstacle: str = "", *, last: bool = False) -> None:
        """One part more: mostly with what was made before. Raises NotApplicable where none comes
        about.

        `last`: of a composition that has to belong to the split.
        """
        before = self._parts[-1] if self._parts else None
        usable = [
            skill
            for skill in _usable(hide, obstacle)
            if (before is None or skill is not before.skill) and (not last or self._belongs(skill))
        ]
        made = None if before is None else self._kinds.get(_result(before))
        going_on = [skill for skill in usable if made in skill.takes]
        for _ in range(_TRIES if usable else 0):
            skill = self._draw.pick(going_on if going_on and self._draw.below(8) else usable)
            if self._try(skill, hide, obstacle):
                return
        raise NotApplicable

    def _belongs(self, skill: Skill) -> bool:
        """Whether the composition that ends with this skill is one of the split."""
        return composition_split([*(part.skill.name for part in self._parts), skill.name]) == (
            self._split
        )

    def add_heldout(self, name: str, hide: str = "", obstacle: str = "") -> None:
        """A part with this skill of a held-out family. Raises NotApplicable where none comes
        about."""
        skill = HELDOUT_SKILLS[name]
        for _ in range(_TRIES):
            if self._try(skill, hide, obstacle):
                return
        raise NotApplicable

    def add_file(self, path: str, content: bytes) -> None:
        """Add a file to the folder that the task begins with."""
        self._start.add(path, content)
        self._now.add(path, content)

    def distract(self) -> None:
        """One decoy: what looks like something that is needed, and is not. Raises NotApplicable."""
        sources = [path for path in self._start.files if path in self._kinds]
        if self._notes.add_decoy():
            self.decoys += 1
            return
        if not sources:
            raise NotApplicable
        stem, dot, ending = self._draw.pick(sources).rpartition(".")
        if not dot:
            raise NotApplicable
        name = self._draw.pick(("{s}-old.{e}", "{s}.{e}.bak", "{s}2.{e}", "copy-of-{s}.{e}"))
        folder, stem = posixpath.split(stem)
        decoy = posixpath.join(folder, name.format(s=stem, e=ending))
        if folder or decoy in self._start.files:
            raise NotApplicable
        self.add_file(decoy, text(self._draw.lines(3, 6)))
        self.decoys += 1

    def plan(self) -> Plan:
        """The whole. Raises NotApplicable where a near solution or leaving something out would
        pass."""
        for path, content in self._notes.files():
            self.add_file(path, content)
        plan = Plan(
            tuple(self._parts), self._start, self._now, self.hidden, self.obstacles, self.decoys
        )
        ends = (played(plan.start, actions) for actions in plan.near())
        if any(same(end, plan.end) for end in ends):
            raise NotApplicable
        return plan

    def _try(self, skill: Skill, hide: str, obstacle: str) -> bool:
        """Add a part with this skill; False where it did not come about."""
        kept = self._start.copy(), self._now.copy(), dict(self._kinds), self._notes.mark()
        self._before = []
        part = self._part(skill, hide, obstacle)
        if part is None:
            self._start, self._now, self._kinds, mark = kept
            self._notes.rewind(mark)
            return False
        self._parts.append(part)
        self.hidden += bool(hide)
        self.obstacles += bool(obstacle)
        return True

    def _part(self, skill: Skill, hide: str, obstacle: str) -> Part | None:
        given: dict[str, str] = {}
        needs_fresh = hide == "source" or obstacle in OF_SOURCES or skill.exact
        if skill.takes:
            given["a"] = self._source(
                skill, "source" if hide == "source" else "", obstacle, fresh=needs_fresh
            )
        if given.get("a") in self._rules:
            given["rules"] = self._rules[given["a"]]
            self._before.append(Action(f"cat {given['a']}/LAYOUT.md"))
        if skill.name == "file_away" and given["a"] in self._words:
            return None  # its new place would give its name away
        if skill.second is not None:
            given["c"] = self._second(skill.second, given["a"])
        if skill.makes is not None:
            given["b"] = self._target(skill, given, hide == "target", obstacle)
        if skill.tool is not None:
            self.add_file(*skill.tool)
        own = skill.own(self._draw, self._now, given)
        if own is None:
            return None
        args = {**given, **own[0]}
        words, tail, guessed = self._said(skill, args, hide == "value")
        self._put_in_the_way(skill, args, obstacle)
        follows = bool(self._parts) and given.get("a", "/") == self._parts[-1].args.get("b")
        part = Part(skill, args, own[1], words, tail, tuple(self._before), guessed, follows)
        before = self._now
        self._now = played(before, [part.action()])
        slips = (before, played(before, [part.action(**part.near)]))
        if any(same(slip, self._now) for slip in slips):
            return None
        self._know_what_was_made(skill, args)
        return part

    def _source(self, skill: Skill, hide: str, obstacle: str, *, fresh: bool) -> str:
        """Something that the skill takes: what was made last if that fits, or new."""
        made = [path for path, kind in self._kinds.items() if kind in skill.takes]
        if made and not fresh and self._draw.below(10):
            last = _result(self._parts[-1]) if self._parts else ""
            return last if last in made and self._draw.below(8) else self._draw.pick(made)
        kind = self._draw.pick(sorted(skill.takes))
        return self._fresh(kind, hide, obstacle)

    def _second(self, kind: Kind, first: str) -> str:
        made = [p for p, k in self._kinds.items() if k == kind and p != first]
        if made and self._draw.below(10) < 7:
            return made[-1]
        return self._fresh(kind, "", "")

    def _fresh(self, kind: Kind, hide: str, obstacle: str) -> str:
        """A new source in the folder that the task begins with."""
        if hide and kind in CONTENTS and self._draw.below(2):
            return self._among_others(kind)
        path = self._new_source(kind, obstacle)
        if hide:
            decoy = self._new_source(kind, "")
            self._hide(path, self._notes.name_of(path, decoy, _noun(kind)), decoy)
        self._kinds[path] = kind
        return path

    def _new_source(self, kind: Kind, obstacle: str) -> str:
        draw = self._draw
        path = self.name("" if kind in _FOLDERS else draw.pick(ENDINGS[kind]))
        if kind in _FOLDERS:
            for name, content in self._folder(kind, path).items():
                self.add_file(f"{path}/{name}", content)
            return path
        if kind is Kind.ARCHIVE:
            inner = self.name()
            files = folder_files(draw, draw.between(2, 4))
            contents = {f"{inner}/{name}": content for name, content in files.items()}
            self.add_file(path, packed_tar(contents))
            return path
        if obstacle == "spaces":
            path = f"{self.name()} {path}"
        self.add_file(path, CONTENTS[kind](draw))
        return path

    def _folder(self, kind: Kind, path: str) -> dict[str, bytes]:
        """Content of a new folder; rules that are written in it are known as an argument."""
        if kind is Kind.LOGS:
            return log_folder(self._draw)
        if kind is Kind.MESS:
            files, self._rules[path] = messy_folder(self._draw)
            return files
        return folder_files(self._draw, self._draw.between(4, 6))

    def _among_others(self, kind: Kind) -> str:
        """A source in a folder of its like, that something tells from the others."""
        draw = self._draw
        folder, ending = self.name(), draw.pick(ENDINGS[kind])
        contents = sorted((CONTENTS[kind](draw) for _ in range(4)), key=len)
        if len(contents[-1]) == len(contents[-2]):
            raise NotApplicable
        paths = [f"{folder}/{self.name(ending)}" for _ in contents]
        for path, content in zip(draw.some(paths, 4), contents, strict=True):
            self.add_file(path, content)
        path = next(p for p in paths if self._now.files[p].content == contents[-1])
        words = self._notes.largest_of(folder)
        self._before.append(Action(f"ls -lS {folder}"))
        self._words[path] = words
        self._guesses[path] = draw.pick(paths)
        self._kinds[path] = kind
        return path

    def _hide(self, path: str, note: tuple[str, str], guess: str) -> None:
        words, look = note
        self._before.append(Action(look))
        self._words[path] = words
        self._guesses[path] = guess

    def _target(self, skill: Skill, given: Args, hidden: bool, obstacle: str) -> str:
        if skill.takes == {Kind.ARCHIVE}:
            inner = packed_folder(self._now.read(given["a"]))
            self._kinds[inner] = Kind.FOLDER
            return inner
        kind = self._kinds[given["a"]] if skill.same or skill.makes is None else skill.makes
        if skill.name == "file_away":
            return f"{self.name()}/{posixpath.basename(given['a'])}"
        path = self.name("" if kind in _FOLDERS else self._draw.pick(ENDINGS[kind]))
        if hidden:
            self._hide(path, self._notes.target(path), f"output.{path.rpartition('.')[2]}")
        if obstacle == "missing_folder":
            path = f"{self.name()}/{path}"
        return path

    def _said(
        self, skill: Skill, args: Args, hidden: bool
    ) -> tuple[dict[str, str], str, dict[str, str]]:
        """The arguments in words, what the request adds, and what would be guessed."""
        words = {key: self._words.get(arg) or quoted(arg) for key, arg in args.items()}
        guessed = {k: self._guesses[v] for k, v in args.items() if v in self._guesses}
        if not hidden:
            return words, "", guessed
        key = skill.hideable
        letter, tail, look = self._notes.value(key, args[key])
        self._before.append(Action(look))
        words[key] = letter
        guessed[key] = _BLIND.get(key) or self._draw.pick(WORDS)
        return words, tail, guessed

    def _put_in_the_way(self, skill: Skill, args: Args, obstacle: str) -> None:
        if obstacle:
            commands = put(obstacle, args, self._start, self._now)
            for command, effect in commands:
                effect(self._now)
                self._before.append(Action(command, effect))

    def _know_what_was_made(self, skill: Skill, args: Args) -> None:
        if skill.makes is not None:
            source = self._kinds.get(args.get("a", ""), Kind.LINES)
            self._kinds[args["b"]] = source if skill.same else skill.makes
        there = self._now.files.keys() | self._now.folders
        self._kinds = {path: kind for path, kind in self._kinds.items() if path in there}


@cache
def _usable(hide: str, obstacle: str) -> tuple[Skill, ...]:
    """The skills that can be asked for with this to be found out, and this in the way."""
    return tuple(
        skill for skill in SKILLS.values() if _hides(skill, hide) and fits(obstacle, skill)
    )


def _hides(skill: Skill, what: str) -> bool:
    """Whether this of a skill can be left to be found out."""
    if what == "target":
        return skill.makes in (*TEXTS, Kind.VALUE) and not skill.same
    if what == "value":
        return bool(skill.hideable)
    return what == "" or (bool(skill.takes) and Kind.VALUE not in skill.takes)


def _result(part: Part) -> str:
    """The path that a part has made, or worked on."""
    return part.args.get("b") or part.args.get("c") or part.args.get("a", "")


def packed_folder(archive: bytes) -> str:
    """The folder that all files of an archive are in: its first file's name begins with it."""
    return archive.partition(b"/")[0].decode()


def quoted(name: str) -> str:
    """A name as a request says it: one with a space needs its bounds shown."""
    return f'"{name}"' if " " in name and not name.startswith('"') and "." in name else name


def _noun(kind: Kind) -> str:
    return {Kind.FOLDER: "folder", Kind.ARCHIVE: "archive"}.get(kind, "file")
