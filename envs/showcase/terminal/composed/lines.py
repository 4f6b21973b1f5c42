"""Skills on files of lines: sort, filter, cut, count, replace, join."""

from __future__ import annotations

import hashlib
from collections import Counter

from clawrl_gym.envs.draw import WORDS, Draw, text
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.terminal.composed.skill import (
    TEXTS,
    Args,
    Kind,
    Skill,
    fixed,
    turned,
)
from clawrl_gym.envs.showcase.terminal.composed.tool import LOCK, TOOL, TOOL_TEXT
from clawrl_gym.envs.showcase.terminal.composed.world import Refused, World

_LINES = frozenset({Kind.LINES})


def _sorted(lines: list[str], args: Args) -> list[str]:
    kept = sorted(set(lines)) if "u" in args["flag"] else sorted(lines)
    return kept[::-1] if "r" in args["flag"] else kept


def _direction(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    up = {"flag": "", "o": "alphabetically"}
    down = {"flag": "-r ", "o": "in reverse alphabetical order"}
    return (down, up) if draw.below(3) == 0 else (up, down)


def _matching(lines: list[str], args: Args) -> list[str]:
    return [line for line in lines if (args["w"] in line) is (args["flag"] == "")]


def _word_of_some(draw: Draw, world: World, args: Args) -> dict[str, str] | None:
    """A word that some lines have and others have not."""
    lines = world.lines(args["a"])
    words = _whole_words("\n".join(lines))
    some = [w for w in words if 0 < sum(w in line for line in lines) < len(lines)]
    return {"w": draw.pick(some)} if some else None


def _whole_words(content: str) -> list[str]:
    """Words that are no part of another, so that there is no doubt which of them is meant."""
    counts = Counter(content.split())
    return [word for word in counts if word.isalpha() and content.count(word) == counts[word]]


def _word_to_keep(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    word = _word_of_some(draw, world, args)
    return None if word is None else ({**word, "flag": ""}, {"flag": "-v "})


def _word_to_drop(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    word = _word_of_some(draw, world, args)
    return None if word is None else ({**word, "flag": "-v "}, {"flag": ""})


def _cut(lines: list[str], args: Args) -> list[str]:
    count = int(args["n"])
    return lines[:count] if args["end"] == "head" else lines[-count:]


def _first(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    most = len(world.lines(args["a"])) - 1
    number = {"n": str(draw.between(2, most))} if most > 1 else None
    return None if number is None else ({**number, "end": "head"}, {"end": "tail"})


def _last(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    first = _first(draw, world, args)
    return None if first is None else ({**first[0], "end": "tail"}, {"end": "head"})


def _replace(world: World, args: Args) -> None:
    content = world.read(args["a"])
    if args["flag"]:
        changed = content.decode().replace(args["w"], args["v"]).encode()
        mode = world.files[args["a"]].mode
        world.add(args["a"], changed, mode)  # sed writes a new file, whatever the old one allows


def _two_words(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    content = world.read(args["a"]).decode()
    absent = [word for word in WORDS if word not in content.lower()]
    words = sorted(_whole_words(content))
    if not words or not absent:
        return None
    return {"w": draw.pick(words), "v": draw.pick(absent), "flag": "-i "}, {"flag": ""}


def _append(world: World, args: Args) -> None:
    before = world.read(args["a"]) if args["arrow"] == ">>" else b""
    world.write(args["a"], before + text([args["w"]]))


def _new_line(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    line = " ".join(draw.some(WORDS, draw.between(1, 2)))
    return {"w": line, "q": f'"{line}"', "arrow": ">>"}, {"arrow": ">"}


def _join(world: World, args: Args) -> None:
    world.write(args["b"], world.read(args["first"]) + world.read(args["then"]))


def _in_order(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    one, other = args["a"], args["c"]
    return {"first": one, "then": other}, {"first": other, "then": one}


def _unit(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    units: list[Args] = [{"u": "lines", "flag": "l"}, {"u": "words", "flag": "w"}]
    right = draw.below(2)
    return units[right], units[1 - right]


def _count(lines: list[str], args: Args) -> list[str]:
    return [str(len(lines) if args["flag"] == "l" else sum(len(x.split()) for x in lines))]


def _checksum(world: World, args: Args) -> None:
    name = args["tool"].removesuffix("sum")
    digest = hashlib.new(name, world.read(args["a"]), usedforsecurity=False).hexdigest()
    world.write(args["b"], text([digest]))


def _tidy(world: World, args: Args) -> None:
    lines = world.lines(args["a"])
    if args["tool"] == "cp ":
        world.write(args["b"], text(lines))
        return
    if LOCK in world.files:
        raise Refused(f"{LOCK} is there")
    world.write(args["b"], text(sorted(set(lines))))


def _stamp(world: World, args: Args) -> None:
    before = world.read(args["c"]) if args["arrow"] == ">>" else b""
    world.write(args["c"], before + world.read(args["a"]))


LINE_SKILLS = (
    Skill(
        "sort", _LINES, Kind.LINES,
        Phrasings(
            (
                "sort the lines of {a} {o} and {put} them {into}",
                "{put} the lines of {a}, sorted {o}, {into}",
                "take {a}, sort it line by line {o}, and {put} that {into}",
                "order the lines of {a} {o}; the ordered list goes into {b}",
            ),
            (
                "make {b} out of {a} by sorting its lines {o}",
                "{put} a copy of {a} whose lines are sorted {o} {into}",
            ),
        ),
        "sort {flag}{a} > {b}", turned(_sorted), _direction,
    ),
    Skill(
        "unique", _LINES, Kind.LINES,
        Phrasings(
            (
                "{put} the lines of {a}, sorted alphabetically and without repeats, {into}",
                "{put} every different line of {a} once, in alphabetical order, {into}",
                "list the lines of {a} alphabetically, each of them once, in {b}",
                "sort {a} alphabetically, skip duplicate lines, and {put} the outcome {into}",
            ),
            (
                "make {b} the alphabetical list of the distinct lines of {a}",
                "{put} what {a} says, each line a single time and sorted alphabetically, {into}",
            ),
        ),
        "sort {flag}{a} > {b}", turned(_sorted), fixed({"flag": "-u "}, {"flag": ""}),
    ),
    Skill(
        "filter", _LINES, Kind.LINES,
        Phrasings(
            (
                "{put} the lines of {a} that contain {w} {into}",
                "pick every line with {w} out of {a} and {put} those lines {into}",
                "search {a} for {w} and {put} the matching lines {into}",
                "{put} only those lines of {a} that have {w} in them {into}",
            ),
            (
                "make {b} hold just those lines of {a} in which {w} occurs",
                "collect from {a} whatever line mentions {w}, and {put} these lines {into}",
            ),
        ),
        "grep {flag}{w} {a} > {b}", turned(_matching), _word_to_keep, hideable="w",
    ),
    Skill(
        "without", _LINES, Kind.LINES,
        Phrasings(
            (
                "{put} the lines of {a} that do not contain {w} {into}",
                "{put} {a} without its lines that mention {w} {into}",
                "copy {a} to {b}, except for the lines with {w}",
                "{put} all lines of {a} but those with {w} {into}",
            ),
            (
                "make {b} from the lines of {a} in which {w} does not occur",
                "{put} {a} {into} and leave out each line that has {w}",
            ),
        ),
        "grep {flag}{w} {a} > {b}", turned(_matching), _word_to_drop, hideable="w",
    ),
    Skill(
        "head", frozenset({Kind.LINES, Kind.NUMBERS}), Kind.LINES,
        Phrasings(
            (
                "{put} the first {n} lines of {a} {into}",
                "take the top {n} lines of {a} and {put} them {into}",
                "copy the first {n} lines of {a} to {b}",
                "{put} just the beginning of {a}, {n} lines of it, {into}",
            ),
            (
                "make {b} from the {n} lines that {a} begins with",
                "{put} {n} lines from the start of {a} {into}",
            ),
        ),
        "{end} -n {n} {a} > {b}", turned(_cut), _first, hideable="n",
    ),
    Skill(
        "tail", frozenset({Kind.LINES, Kind.NUMBERS}), Kind.LINES,
        Phrasings(
            (
                "{put} the last {n} lines of {a} {into}",
                "take the bottom {n} lines of {a} and {put} them {into}",
                "copy the last {n} lines of {a} to {b}",
                "{put} just the end of {a}, {n} lines of it, {into}",
            ),
            (
                "make {b} from the {n} lines that {a} ends with",
                "{put} the closing {n} lines of {a} {into}",
            ),
        ),
        "{end} -n {n} {a} > {b}", turned(_cut), _last, hideable="n",
    ),
    Skill(
        "upper", _LINES, Kind.LINES,
        Phrasings(
            (
                "{put} {a} in capital letters {into}",
                "turn the text of {a} into upper case and {put} it {into}",
                "{put} an upper-case version of {a} {into}",
                "copy {a} to {b} with all letters in upper case",
            ),
            (
                "make {b} say what {a} says, all in capitals",
                "{put} the words of {a}, each letter a capital, {into}",
            ),
        ),
        "tr {ranges} < {a} > {b}",
        turned(lambda lines, args: [x.upper() if args["ranges"] == "a-z A-Z" else x.lower()
                                    for x in lines]),
        fixed({"ranges": "a-z A-Z"}, {"ranges": "A-Z a-z"}),
    ),
    Skill(
        "reverse", _LINES, Kind.LINES,
        Phrasings(
            (
                "{put} the lines of {a} {into}, last line first",
                "turn {a} upside down, line by line, and {put} that {into}",
                "copy {a} to {b} so that the last line comes first",
                "{put} the lines of {a} in the opposite order {into}",
            ),
            (
                "make {b} list the lines of {a} from bottom to top",
                "read {a} backwards, line by line, and {put} what you read {into}",
            ),
        ),
        "{tool} {a} > {b}",
        turned(lambda lines, args: lines[::-1] if args["tool"] == "tac" else lines),
        fixed({"tool": "tac"}, {"tool": "cat"}),
    ),
    Skill(
        "replace", _LINES, None,
        Phrasings(
            (
                "replace every {w} in {a} by {v}",
                "change {w} to {v} everywhere in {a}",
                "in {a}, write {v} wherever it says {w}",
                "swap all {w} in {a} for {v}",
            ),
            (
                "let {a} say {v} instead of {w} throughout",
                "edit {a} so that each {w} becomes {v}",
            ),
        ),
        "sed {flag}s/{w}/{v}/g {a}", _replace, _two_words, hideable="v",
    ),
    Skill(
        "append", _LINES, None,
        Phrasings(
            (
                "add the line {q} at the end of {a}",
                "append the line {q} to {a}",
                "give {a} one more line at its bottom: {q}",
                "end {a} with the extra line {q}",
            ),
            (
                "let {a} have {q} as a new last line",
                "after the last line of {a}, add {q} on a line of its own",
            ),
        ),
        "echo {w} {arrow} {a}", _append, _new_line,
    ),
    Skill(
        "tidy", _LINES, Kind.LINES,
        Phrasings(
            (
                "run tidy.sh on {a} so that what it makes lands in {b} (sh tidy.sh FROM TO)",
                "let tidy.sh (sh tidy.sh FROM TO) turn {a} into {b}",
                "use the script tidy.sh to make {b} of {a}: sh tidy.sh FROM TO",
                "call sh tidy.sh with {a} as its source and {b} as its target",
            ),
            (
                "have {b} made out of {a} by the script tidy.sh (sh tidy.sh FROM TO)",
                "start sh tidy.sh from {a} to {b}",
            ),
        ),
        "{tool}{a} {b}", _tidy, fixed({"tool": "sh tidy.sh "}, {"tool": "cp "}),
        tool=(TOOL, TOOL_TEXT),
    ),
    Skill(
        "join", _LINES, Kind.LINES,
        Phrasings(
            (
                "{put} {a} followed by {c} {into}",
                "join {a} and {c}, in this order, and {put} the whole {into}",
                "{put} the lines of {a} and after them those of {c} {into}",
                "concatenate {a} and {c} (in that order) into {b}",
            ),
            (
                "make {b} of {a} with {c} below it",
                "stack {a} on top of {c} and {put} the two together {into}",
            ),
        ),
        "cat {first} {then} > {b}", _join, _in_order, second=Kind.LINES,
    ),
    Skill(
        "count", frozenset({Kind.LINES, Kind.TABLE, Kind.LOG}), Kind.VALUE,
        Phrasings(
            (
                "count the {u} of {a} and {put} the number {into}",
                "{put} the number of {u} in {a} {into}",
                "find out how many {u} there are in {a} and {put} the number {into}",
                "{put} how many {u} {a} has, as a number, {into}",
            ),
            (
                "make {b} hold the count of {u} in {a}",
                "tell in {b}, as a bare number, how many {u} {a} has",
            ),
        ),
        "wc -{flag} < {a} > {b}", turned(_count), _unit,
    ),
    Skill(
        "checksum", TEXTS, Kind.VALUE,
        Phrasings(
            (
                "{put} the SHA-256 checksum of {a} (the digits alone) {into}",
                "compute the SHA-256 of {a} and {put} its hexadecimal digits, nothing else, {into}",
                "{put} the sha256sum of {a}, without the file's name, {into}",
                "work out the SHA-256 digest of {a}; {put} only the digest {into}",
            ),
            (
                "make {b} the fingerprint of {a}: its SHA-256 in hexadecimal digits, no name",
                "{put} the bare SHA-256 hash of {a} {into}",
            ),
        ),
        "{tool} {a} | cut -d' ' -f1 > {b}", _checksum,
        fixed({"tool": "sha256sum"}, {"tool": "md5sum"}), exact=True,
    ),
    Skill(
        "stamp", frozenset({Kind.VALUE}), None,
        Phrasings(
            (
                "add what is in {a} as a new line at the end of {c}",
                "append the content of {a} to {c}",
                "{c} gets what {a} holds as its last line",
                "put the line that {a} holds at the end of {c}, too",
            ),
            (
                "let {c} end with what {a} says",
                "copy the content of {a} below the last line of {c}",
            ),
        ),
        "cat {a} {arrow} {c}", _stamp, fixed({"arrow": ">>"}, {"arrow": ">"}), second=Kind.LINES,
    ),
)  # fmt: skip
