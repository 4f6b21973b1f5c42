"""Skills of the families that are held out as a whole: an audit of logs, and a migration by rules.

Nobody trains on them, and their words are nobody's but theirs.
"""

from __future__ import annotations

import posixpath

from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.terminal.composed.skill import Args, Kind, Skill
from clawrl_gym.envs.showcase.terminal.composed.world import World

LAYOUT = "LAYOUT.md"


def _facts(world: World, args: Args) -> dict[str, tuple[int, bool]]:
    """For each log by name: its lines of the level, and whether it has the word."""
    logs = {
        name: world.lines(f"{args['a']}/{name}")
        for name in world.names(args["a"])
        if name.endswith(".log")
    }
    return {
        name: (
            sum(f" {args['l']} " in line for line in lines),
            any(args["w"] in line for line in lines),
        )
        for name, lines in logs.items()
    }


def _audit(world: World, args: Args) -> None:
    least, both = int(args["n"]), bool(args["and"])
    rows = [
        f"{name},{count}"
        for name, (count, has_word) in _facts(world, args).items()
        if count >= least and (has_word or not both)
    ]
    world.write(args["b"], text(rows))


def _conditions(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    """Such that some logs meet both, and more meet each of them."""
    level = draw.pick(("ERROR", "WARN"))
    words = {
        word
        for name in world.names(args["a"])
        for line in world.lines(f"{args['a']}/{name}")
        for word in line.split()[2:]
    }
    for word in draw.some(sorted(words), min(4, len(words))):
        asked = {**args, "l": level, "w": word}
        facts = _facts(world, asked).values()
        for least in (3, 2, 4):
            many = [has_word for count, has_word in facts if count >= least]
            if any(many) and not all(many) and sum(many) < sum(has for _, has in facts):
                asked |= {"n": str(least), "and": f' && grep -q {word} "$f"', "weight": "3"}
                return {k: v for k, v in asked.items() if k not in args}, {"and": ""}
    return None


def log_folder(draw: Draw) -> dict[str, bytes]:
    """Files by name: logs, and a file or two of other kinds that look alike."""
    words = draw.some(WORDS, 5)
    files: dict[str, bytes] = {}
    stems = draw.some(STEMS, 7)
    for i, stem in enumerate(stems):
        lines = [
            f"{hour}:{draw.between(10, 59)} {draw.pick(('ERROR', 'WARN', 'INFO'))} "
            f"{draw.pick(words)}"
            for hour in range(10, 10 + draw.between(4, 9))
        ]
        files[f"{stem}.{'log' if i < 5 else draw.pick(('txt', 'old'))}"] = text(lines)
    return files


AUDIT = Skill(
    "audit", frozenset({Kind.LOGS}), Kind.LINES,
    Phrasings(
        (),
        (
            "{put} a report {into}: for every .log file in {a} that has at least {n} {l} lines and "
            "mentions {w}, a line with its name, a comma and the number of its {l} lines, in "
            "alphabetical order",
            "audit the .log files of {a}: those with {n} or more {l} lines that also say {w} "
            "somewhere are to be listed in {b}, alphabetically, as NAME,NUMBER (NUMBER being the "
            "count of {l} lines)",
            "find the .log files in {a} which log {l} {n} times or more and contain {w}, and {put} "
            "their names {into}, sorted, each followed by a comma and how many {l} lines it has",
            "list in {b} by name, one a line, as file name, comma, number of {l} lines, the .log "
            "files of {a} that meet two conditions: at least {n} lines of level {l}, and {w} "
            "somewhere in the text",
            "make {b} a sorted table NAME,COUNT of the .log files in {a} where COUNT, the number "
            "of {l} lines, is {n} or higher and where {w} occurs",
            "go through the .log files in {a} and give each that has {n} {l} lines or more, and "
            "{w} in it, a row in {b}: name, comma, number of {l} lines; rows in alphabetical order",
        ),
    ),
    'for f in {a}/*.log; do c=$(grep -c \' {l} \' "$f"); if [ "$c" -ge {n} ]{and}; '
    'then echo "$(basename "$f"),$c"; fi; done > {b}',
    _audit, _conditions, hideable="n",
)  # fmt: skip

_RULES = {
    "move": (
        "Files that end in .{x} belong into the folder {y}.",
        "Everything that ends in .{x} is kept in a folder {y}.",
    ),
    "rename": (
        "Files that end in .{x} shall end in .{y} instead.",
        "We write .{y} where the name of a file ends in .{x}.",
    ),
    "delete": ("Files that end in .{x} are deleted.", "There are no .{x} files: remove them."),
    "prefix": (
        "The names of .{x} files begin with {y}-.",
        "Put {y}- before the name of each file that ends in .{x}.",
    ),
}
_COMMANDS = {
    "move": "mkdir {a}/{y} && mv {a}/*.{x} {a}/{y}",
    "rename": 'for f in {a}/*.{x}; do mv "$f" "${{f%.{x}}}.{y}"; done',
    "delete": "rm {a}/*.{x}",
    "prefix": 'for f in {a}/*.{x}; do mv "$f" "{a}/{y}-${{f##*/}}"; done',
}
_ENDINGS = ("log", "txt", "tmp", "csv", "cfg")


def messy_folder(draw: Draw) -> tuple[dict[str, bytes], str]:
    """Files of five endings by name, with the rules by which they are to be laid out; and these
    rules as an argument, `KIND:ENDING:VALUE ...`."""
    files: dict[str, bytes] = {}
    for i, stem in enumerate(draw.some(STEMS, draw.between(7, 9))):
        ending = _ENDINGS[i] if i < len(_ENDINGS) else draw.pick(_ENDINGS)
        files[f"{stem}.{ending}"] = text(draw.lines(1, 3))
    kinds = draw.some(tuple(_RULES), draw.between(2, 4))
    lines, rules = ["# How this folder is laid out", ""], list[str]()
    for kind, ending in zip(kinds, draw.some(_ENDINGS, len(kinds)), strict=True):
        value = draw.pick(("old", "md", "orig")) if kind == "rename" else draw.pick(WORDS)
        lines.append(f"- {draw.pick(_RULES[kind]).format(x=ending, y=value)}")
        rules.append(f"{kind}:{ending}:{value}")
    files[LAYOUT] = text([*lines, "- All else stays as it is, this file too."])
    return files, " ".join(rules)


def _migrate(world: World, args: Args) -> None:
    for kind, ending, value in _split(args["todo"]):
        folder = args["a"]
        if kind == "move":
            world.add_folder(f"{folder}/{value}")
        for name in [n for n in world.names(folder) if n.endswith(f".{ending}")]:
            path = f"{folder}/{name}"
            if kind == "delete":
                world.remove(path)
                continue
            new = {
                "move": f"{value}/{name}",
                "rename": f"{name.removesuffix(ending)}{value}",
                "prefix": f"{value}-{name}",
            }[kind]
            world.move(path, posixpath.join(folder, new))


def _split(rules: str) -> list[tuple[str, str, str]]:
    parts = (rule.split(":") for rule in rules.split())
    return [(kind, ending, value) for kind, ending, value in parts]


def _all_rules(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    """All of them, and all but the last."""
    rules = args["rules"].split()
    right, near = (
        {
            "todo": " ".join(chosen),
            "commands": "; ".join(
                _COMMANDS[kind].format(a=args["a"], x=ending, y=value)
                for kind, ending, value in _split(" ".join(chosen))
            ),
        }
        for chosen in (rules, rules[:-1])
    )
    return {**right, "weight": str(len(rules) + 1)}, near


MIGRATE = Skill(
    "migrate", frozenset({Kind.MESS}), None,
    Phrasings(
        (),
        (
            "bring the folder {a} into the layout that {a}/LAYOUT.md describes",
            "{a}/LAYOUT.md says how the files of {a} are to be named and placed: see to it",
            "the folder {a} is a mess; follow the rules in its LAYOUT.md for all that is in it",
            "migrate {a} to what {a}/LAYOUT.md asks for",
            "apply every rule of {a}/LAYOUT.md to the files of that folder",
            "make the files of {a} comply with the conventions written down in {a}/LAYOUT.md",
        ),
    ),
    "{commands}", _migrate, _all_rules,
)  # fmt: skip
