"""Families about lines and words: sort, replace, upper, lines, count, grep, logs, find."""

from __future__ import annotations

from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.terminal.checks import FileIs, NamesPath
from clawrl_gym.envs.terminal.families.family import TaskContent

LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")


def sort(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    words = draw.some(WORDS, draw.between(4, 9))
    # A list that is in order already could be "sorted" by a copy.
    if words in (sorted(words), sorted(words, reverse=True)):
        words = [words[1], words[0], *words[2:]]
    backwards = draw.below(3) == 0
    order = " in reverse order" if backwards else ""
    asked = draw.pick(("Sort {a} into {b}{o}.", "Write the sorted lines of {a} to {b}{o}."))
    flag = "-r " if backwards else ""
    return TaskContent(
        instruction=asked.format(a=source, b=target, o=order),
        solution=(f"sort {flag}{source} > {target}",),
        checks=(FileIs(target, text(sorted(words, reverse=backwards))),),
        files={source: text(words)},
    )


def replace(draw: Draw) -> TaskContent:
    name = draw.name()
    old, new, *others = draw.some(WORDS, 8)
    lines = [f"{old} {others[0]}", f"{others[1]} {others[2]}", f"{others[3]} {old}", others[4]]
    lines = draw.some(lines, len(lines))
    asked = draw.pick(("Replace {o} by {n} in {a}.", "In {a}, change every {o} to {n}."))
    return TaskContent(
        instruction=asked.format(a=name, o=old, n=new),
        solution=(f"sed -i s/{old}/{new}/g {name}",),
        checks=(FileIs(name, text([line.replace(old, new) for line in lines])),),
        files={name: text(lines)},
    )


def upper(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    content = text(draw.lines(1, 5))
    asked = draw.pick(("Write {a} in upper case to {b}.", "Turn {a} into capitals in {b}."))
    return TaskContent(
        instruction=asked.format(a=source, b=target),
        solution=(f"tr a-z A-Z < {source} > {target}",),
        checks=(FileIs(target, content.upper()),),
        files={source: content},
    )


def lines(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    words = draw.some(WORDS, draw.between(10, 14))
    count = draw.between(2, 9)
    first = draw.below(2) == 0
    asked = draw.pick(
        ("Write the {w} {n} lines of {a} to {b}.", "Put the {w} {n} lines of {a} into {b}.")
    )
    kept = words[:count] if first else words[-count:]
    command = "head" if first else "tail"
    return TaskContent(
        instruction=asked.format(w="first" if first else "last", n=count, a=source, b=target),
        solution=(f"{command} -n {count} {source} > {target}",),
        checks=(FileIs(target, text(kept)),),
        files={source: text(words)},
    )


def count(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    content = draw.lines(3, 40)
    unit, flag = draw.pick((("lines", "l"), ("words", "w")))
    number = len(content) if flag == "l" else sum(len(line.split()) for line in content)
    asked = draw.pick(("Count the {u} of {a} into {b}.", "Write the number of {u} in {a} to {b}."))
    return TaskContent(
        instruction=asked.format(u=unit, a=source, b=target),
        solution=(f"wc -{flag} < {source} > {target}",),
        checks=(FileIs(target, str(number).encode()),),
        files={source: text(content)},
    )


def grep(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    wanted, *others = draw.some(WORDS, 12)
    found = [f"{wanted} {others[0]}", f"{others[1]} {wanted}", f"{wanted} {others[2]}"]
    found = found[: draw.between(1, 3)]
    content = [*found, others[3], f"{others[4]} {others[5]}", others[6]]
    content = draw.some(content, len(content))
    asked = draw.pick(
        ("Write the lines of {a} with {w} to {b}.", "Find {w} in {a} and write its lines to {b}.")
    )
    return TaskContent(
        instruction=asked.format(a=source, b=target, w=wanted),
        solution=(f"grep {wanted} {source} > {target}",),
        checks=(FileIs(target, text([line for line in content if wanted in line])),),
        files={source: text(content)},
    )


def logs(draw: Draw) -> TaskContent:
    stem, other = draw.some(STEMS, 2)
    source, target = f"{stem}.log", f"{other}.txt"
    level = draw.pick(LEVELS)
    rows = [
        f"{draw.between(10, 23)}:{draw.between(10, 59)} {draw.pick(LEVELS)} {draw.pick(WORDS)}"
        for _ in range(draw.between(12, 40))
    ]
    rows.append(f"23:59 {level} {draw.pick(WORDS)}")
    asked = draw.pick(
        ("Count the {v} lines of {a} into {b}.", "Write how many {v} lines {a} has to {b}.")
    )
    number = sum(f" {level} " in row for row in rows)
    return TaskContent(
        instruction=asked.format(v=level, a=source, b=target),
        solution=(f"grep -c {level} {source} > {target}",),
        checks=(FileIs(target, str(number).encode()),),
        files={source: text(rows)},
    )


def find(draw: Draw) -> TaskContent:
    name, target, *decoys = draw.names(4)
    stems = [s for s in STEMS if all(not n.startswith(s) for n in (name, target, *decoys))]
    top, *inner = draw.some(stems, 5)
    where = f"{top}/{draw.pick(inner)}"
    files = {f"{top}/{sub}/{decoys[i % 2]}": b"\n" for i, sub in enumerate(inner)}
    asked = draw.pick(
        ("Find {a} below {d} and write its path to {b}.", "Write the path of {a} in {d} to {b}.")
    )
    return TaskContent(
        instruction=asked.format(a=name, d=top, b=target),
        solution=(f"find {top} -name {name} > {target}",),
        checks=(NamesPath(target, f"{where}/{name}"),),
        files={**files, f"{where}/{name}": b"\n"},
    )
