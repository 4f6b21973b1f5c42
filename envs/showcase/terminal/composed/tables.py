"""Skills on numbers, tables, JSON, logs and the environment."""

from __future__ import annotations

import json

from clawrl_gym.envs.draw import WORDS, Draw, text
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.terminal.composed.skill import (
    Args,
    Kind,
    Skill,
    fixed,
    turned,
)
from clawrl_gym.envs.showcase.terminal.composed.world import World

_NUMBERS, _TABLE = frozenset({Kind.NUMBERS}), frozenset({Kind.TABLE})
_RECORD, _LOG = frozenset({Kind.RECORD}), frozenset({Kind.LOG})
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
VARIABLES = ("CITY", "COLOR", "LEVEL", "OWNER", "PROJECT", "REGION", "STAGE", "TEAM")


def _by_value(lines: list[str], args: Args) -> list[str]:
    return sorted(lines, key=int) if args["flag"] else sorted(lines)


def _total(lines: list[str], args: Args) -> list[str]:
    return [str(len(lines) if args["sum"] == "NR" else sum(map(int, lines)))]


def _extreme(lines: list[str], args: Args) -> list[str]:
    return [max(lines, key=int) if args["end"] == "tail" else min(lines, key=int)]


def _cells(world: World, args: Args) -> list[list[str]]:
    return [line.split(",") for line in world.lines(args["a"])]


def _column(lines: list[str], args: Args) -> list[str]:
    return [line.split(",")[int(args["n"]) - 1] for line in lines]


def _words_column(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    """A column of words, and another."""
    row = _cells(world, args)[0]
    columns = [i for i, cell in enumerate(row, 1) if not cell.isdigit()]
    one, other = draw.some(columns, 2)
    return _numbered(one), _numbered(other)


def _numbered(column: int) -> dict[str, str]:
    return {"n": str(column), "nth": _ORDINALS[column - 1]}


def _number_column(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    row = _cells(world, args)[0]
    column = next(i for i, cell in enumerate(row, 1) if cell.isdigit())
    return {**_numbered(column), "sum": "s"}, {"sum": "NR"}


def _column_total(lines: list[str], args: Args) -> list[str]:
    return [str(len(lines))] if args["sum"] == "NR" else _total(_column(lines, args), args)


def _row_value(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    rows = _cells(world, args)
    column, _ = _words_column(draw, world, args)
    values = [row[int(column["n"]) - 1] for row in rows]
    some = [value for value in dict.fromkeys(values) if values.count(value) < len(values)]
    return ({**column, "w": draw.pick(some), "is": "=="}, {"is": "!="}) if some else None


def _rows(lines: list[str], args: Args) -> list[str]:
    column = int(args["n"]) - 1
    return [x for x in lines if (x.split(",")[column] == args["w"]) is (args["is"] == "==")]


def _two_keys(draw: Draw, world: World, args: Args) -> tuple[str, str]:
    one, other = draw.some(sorted(json.loads(world.read(args["a"]))), 2)
    return one, other


def _key(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    one, other = _two_keys(draw, world, args)
    return {"k": one}, {"k": other}


def _get(world: World, args: Args) -> None:
    world.write(args["b"], text([json.loads(world.read(args["a"]))[args["k"]]]))


def _key_and_value(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    one, other = _two_keys(draw, world, args)
    return {"k": one, "v": f"{draw.pick(WORDS)}{draw.between(10, 99)}"}, {"k": other}


def _set(world: World, args: Args) -> None:
    record = json.loads(world.read(args["a"])) | {args["k"]: args["v"]}
    world.add(args["a"], record_text(record), world.files[args["a"]].mode)


def record_text(record: dict[str, str]) -> bytes:
    """A JSON file as they come in these tasks: a key a line."""
    return json.dumps(record, indent=2).encode() + b"\n"


def _level(draw: Draw, world: World, args: Args) -> tuple[Args, Args] | None:
    levels = sorted({line.split()[1] for line in world.lines(args["a"])})
    if len(levels) < 2:
        return None
    one, other = draw.some(levels, 2)
    return {"l": one}, {"l": other}


def _messages(lines: list[str], args: Args) -> list[str]:
    return [line.split(" ", 2)[2] for line in lines if f" {args['l']} " in line]


def _level_count(lines: list[str], args: Args) -> list[str]:
    return [str(sum(f" {args['l']} " in line for line in lines))]


def _variable(draw: Draw, world: World, args: Args) -> tuple[Args, Args]:
    name = draw.pick(sorted(world.env))
    return {"x": name, "dollar": "$"}, {"dollar": ""}


def _print_variable(world: World, args: Args) -> None:
    name = args["x"]
    world.write(args["b"], text([world.env.get(name, "") if args["dollar"] else name]))


TABLE_SKILLS = (
    Skill(
        "numeric", _NUMBERS, Kind.NUMBERS,
        Phrasings(
            (
                "sort the numbers of {a} from small to large and {put} them {into}",
                "{put} the numbers in {a} {into}, the smallest first",
                "order {a} by numeric value, smallest first, and {put} that {into}",
                "{put} the numbers of {a} in ascending order {into}",
            ),
            (
                "make {b} the numbers of {a} in rising order",
                "{put} the numbers of {a} {into} so that they grow from line to line",
            ),
        ),
        "sort {flag}{a} > {b}", turned(_by_value), fixed({"flag": "-n "}, {"flag": ""}),
    ),
    Skill(
        "total", _NUMBERS, Kind.VALUE,
        Phrasings(
            (
                "add up the numbers in {a} and {put} the sum {into}",
                "{put} the sum of all numbers in {a} {into}",
                "sum {a} up and {put} the total {into}",
                "{put} what the numbers of {a} add up to {into}",
            ),
            (
                "make {b} hold the total of the numbers in {a}",
                "work out how much the numbers of {a} come to, and {put} it {into}",
            ),
        ),
        "awk '{{s+=$1}} END {{print {sum}}}' {a} > {b}", turned(_total),
        fixed({"sum": "s"}, {"sum": "NR"}),
    ),
    Skill(
        "greatest", _NUMBERS, Kind.VALUE,
        Phrasings(
            (
                "{put} the largest number of {a} {into}",
                "find the highest number in {a} and {put} it {into}",
                "{put} the maximum of the numbers in {a} {into}",
                "look for the biggest number of {a}; {put} just that number {into}",
            ),
            (
                "make {b} hold the greatest number that {a} has",
                "{put} the top value among the numbers of {a} {into}",
            ),
        ),
        "sort -n {a} | {end} -n 1 > {b}", turned(_extreme), fixed({"end": "tail"}, {"end": "head"}),
    ),
    Skill(
        "column", _TABLE, Kind.LINES,
        Phrasings(
            (
                "{put} the {nth} column of {a} {into}",
                "cut the {nth} column out of the table in {a} and {put} it {into}",
                "{put} the values in column {n} of {a} {into}, one a line",
                "take column {n} of the comma-separated {a} and {put} it {into}",
            ),
            (
                "make {b} a list of what stands in the {nth} column of {a}",
                "{put} field number {n} of every row of {a} {into}",
            ),
        ),
        "cut -d, -f{n} {a} > {b}", turned(_column), _words_column,
    ),
    Skill(
        "column_total", _TABLE, Kind.VALUE,
        Phrasings(
            (
                "add up the {nth} column of {a} and {put} the sum {into}",
                "{put} the total of column {n} of {a} {into}",
                "sum the numbers in the {nth} column of {a}; {put} the result {into}",
                "{put} what column {n} of {a} adds up to {into}",
            ),
            (
                "make {b} hold the sum of the {nth} column of {a}",
                "total field {n} over all rows of {a} and {put} the number {into}",
            ),
        ),
        "awk -F, '{{s+=${n}}} END {{print {sum}}}' {a} > {b}", turned(_column_total),
        _number_column,
    ),
    Skill(
        "rows", _TABLE, Kind.TABLE,
        Phrasings(
            (
                "{put} the rows of {a} whose {nth} column is {w} {into}",
                "pick the rows with {w} in column {n} out of {a} and {put} them {into}",
                "{put} all rows of {a} that have {w} as their {nth} value {into}",
                "select from {a} the rows in which column {n} says {w}, and {put} them {into}",
            ),
            (
                "make {b} the part of {a} where the {nth} column equals {w}",
                "{put} each row of {a} {into} that has {w} in its {nth} field",
            ),
        ),
        "awk -F, '${n} {is} \"{w}\"' {a} > {b}", turned(_rows), _row_value, hideable="w",
    ),
    Skill(
        "get", _RECORD, Kind.VALUE,
        Phrasings(
            (
                "{put} the value of {k} in {a} {into}",
                "read the field {k} of {a} and {put} its value, without quotes, {into}",
                "look up {k} in {a} and {put} what it is {into}",
                "{put} what {a} says under {k} {into}",
            ),
            (
                "make {b} hold the {k} of {a}",
                "{put} the text that stands for {k} in the JSON of {a} {into}",
            ),
        ),
        "grep '\"{k}\"' {a} | cut -d'\"' -f4 > {b}", _get, _key, hideable="k",
    ),
    Skill(
        "set", _RECORD, None,
        Phrasings(
            (
                "set {k} to {v} in {a}",
                "change the value of {k} in {a} to {v}",
                "in {a}, make {k} be {v}",
                "update {a} so that its field {k} is {v}",
            ),
            (
                "let {k} in the JSON of {a} read {v}",
                "give the field {k} of {a} the new value {v}",
            ),
        ),
        "sed -i 's/\"{k}\": \"[^\"]*\"/\"{k}\": \"{v}\"/' {a}", _set, _key_and_value, hideable="v",
    ),
    Skill(
        "messages", _LOG, Kind.LINES,
        Phrasings(
            (
                "{put} the messages of the {l} lines of {a}, without time and level, {into}",
                "extract what the {l} lines of {a} say (not the time, not the level) {into}",
                "from {a}, take the {l} entries and {put} only their message texts {into}",
                "{put} the text that comes after {l} in each {l} line of {a} {into}",
            ),
            (
                "make {b} a list of the {l} messages of {a}: no times, no levels",
                "{put} the bare messages that {a} logged as {l} {into}",
            ),
        ),
        "grep ' {l} ' {a} | cut -d' ' -f3- > {b}", turned(_messages), _level, hideable="l",
    ),
    Skill(
        "level", _LOG, Kind.VALUE,
        Phrasings(
            (
                "count the {l} lines of {a} and {put} the number {into}",
                "{put} how many {l} entries {a} has {into}",
                "{put} the number of {l} lines in {a} {into}",
                "find out how often {a} logs {l}, and {put} the number {into}",
            ),
            (
                "make {b} hold the count of {l} entries in {a}",
                "tell in {b}, as a bare number, how many lines of {a} are {l}",
            ),
        ),
        "grep -c ' {l} ' {a} > {b}", turned(_level_count), _level, hideable="l",
    ),
    Skill(
        "entries", _LOG, Kind.LOG,
        Phrasings(
            (
                "{put} the {l} lines of {a} {into}",
                "copy all {l} entries of {a}, as they are, to {b}",
                "pick the {l} lines out of the log {a} and {put} them {into}",
                "{put} whatever {a} logged as {l} {into}, whole lines",
            ),
            (
                "make {b} the log of just the {l} entries in {a}",
                "{put} each complete line of {a} with the level {l} {into}",
            ),
        ),
        "grep ' {l} ' {a} > {b}",
        turned(lambda lines, args: [line for line in lines if f" {args['l']} " in line]),
        _level, hideable="l",
    ),
    Skill(
        "variable", frozenset(), Kind.VALUE,
        Phrasings(
            (
                "{put} the value of the environment variable {x} {into}",
                "{put} what ${x} is set to {into}",
                "look at the environment variable {x} and {put} its value {into}",
                "{put} the content of the shell variable {x} {into}",
            ),
            (
                "make {b} hold what {x} is in the environment",
                "{put} the present value of ${x} {into}",
            ),
        ),
        'echo "{dollar}{x}" > {b}', _print_variable, _variable,
    ),
)  # fmt: skip
