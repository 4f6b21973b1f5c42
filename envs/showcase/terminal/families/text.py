"""Families about lines and words: sort, replace, upper, lines, count, grep, logs, find."""

from __future__ import annotations

from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.showcase.terminal.families.family import TaskContent
from clawrl_gym.envs.terminal.checks import FileIs, NamesPath

LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")


def sort(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    words = draw.some(WORDS, draw.between(4, 9))
    # A list that is in order already could be "sorted" by a copy.
    if words in (sorted(words), sorted(words, reverse=True)):
        words = [words[1], words[0], *words[2:]]
    backwards = draw.below(3) == 0
    order = " in reverse order" if backwards else ""
    template = draw.pick(("Sort {a} into {b}{o}.", "Write the sorted lines of {a} to {b}{o}."))
    flag = "-r " if backwards else ""
    return TaskContent(
        instruction=template.format(a=source, b=target, o=order),
        solution=(f"sort {flag}{source} > {target}",),
        checks=(FileIs(target, text(sorted(words, reverse=backwards))),),
        files={source: text(words)},
    )


def replace(draw: Draw) -> TaskContent:
    name = draw.name()
    old, new, *fillers = draw.some(WORDS, 8)
    lines = [f"{old} {fillers[0]}", f"{fillers[1]} {fillers[2]}", f"{fillers[3]} {old}", fillers[4]]
    lines = draw.some(lines, len(lines))
    template = draw.pick(("Replace {o} by {n} in {a}.", "In {a}, change every {o} to {n}."))
    return TaskContent(
        instruction=template.format(a=name, o=old, n=new),
        solution=(f"sed -i s/{old}/{new}/g {name}",),
        checks=(FileIs(name, text([line.replace(old, new) for line in lines])),),
        files={name: text(lines)},
    )


def upper(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    content = text(draw.lines(1, 5))
    template = draw.pick(("Write {a} in upper case to {b}.", "Turn {a} into capitals in {b}."))
    return TaskContent(
        instruction=template.format(a=source, b=target),
        solution=(f"tr a-z A-Z < {source} > {target}",),
        checks=(FileIs(target, content.upper()),),
        files={source: content},
    )


def lines(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    words = draw.some(WORDS, draw.between(10, 14))
    count = draw.between(2, 9)
    first = draw.below(2) == 0
    template = draw.pick(
        ("Write the {w} {n} lines of {a} to {b}.", "Put the {w} {n} lines of {a} into {b}.")
    )
    selected = words[:count] if first else words[-count:]
    command = "head" if first else "tail"
    return TaskContent(
        instruction=template.format(w="first" if first else "last", n=count, a=source, b=target),
        solution=(f"{command} -n {count} {source} > {target}",),
        checks=(FileIs(target, text(selected)),),
        files={source: text(words)},
    )


def count(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    content = draw.lines(3, 40)
    unit, flag = draw.pick((("lines", "l"), ("words", "w")))
    number = len(content) if flag == "l" else sum(len(line.split()) for line in content)
    template = draw.pick(
        ("Count the {u} of {a} into {b}.", "Write the number of {u} in {a} to {b}.")
    )
    return TaskContent(
        instruction=template.format(u=unit, a=source, b=target),
        solution=(f"wc -{flag} < {source} > {target}",),
        checks=(FileIs(target, str(number).encode()),),
        files={source: text(content)},
    )


def grep(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    word, *fillers = draw.some(WORDS, 12)
    matching = [f"{word} {fillers[0]}", f"{fillers[1]} {word}", f"{word} {fillers[2]}"]
    matching = matching[: draw.between(1, 3)]
    content = [*matching, fillers[3], f"{fillers[4]} {fillers[5]}", fillers[6]]
    content = draw.some(content, len(content))
    template = draw.pick(
        ("Write the lines of {a} with {w} to {b}.", "Find {w} in {a} and write its lines to {b}.")
    )
    return TaskContent(
        instruction=template.format(a=source, b=target, w=word),
        solution=(f"grep {word} {source} > {target}",),
        checks=(FileIs(target, text([line for line in content if word in line])),),
        files={source: text(content)},
    )


def logs(draw: Draw) -> TaskContent:
    stem, target_stem = draw.some(STEMS, 2)
    source, target = f"{stem}.log", f"{target_stem}.txt"
    level = draw.pick(LEVELS)
    rows = [
        f"{draw.between(10, 23)}:{draw.between(10, 59)} {draw.pick(LEVELS)} {draw.pick(WORDS)}"
        for _ in range(draw.between(12, 40))
    ]
    rows.append(f"23:59 {level} {draw.pick(WORDS)}")
    template = draw.pick(
        ("Count the {v} lines of {a} into {b}.", "Write how many {v} lines {a} has to {b}.")
    )
    number = sum(f" {level} " in row for row in rows)
    return TaskContent(
        instruction=template.format(v=level, a=source, b=target),
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
    template = draw.pick(
        ("Find {a} below {d} and write its path to {b}.", "Write the path of {a} in {d} to {b}.")
    )
    return TaskContent(
        instruction=template.format(a=name, d=top, b=target),
        solution=(f"find {top} -name {name} > {target}",),
        checks=(NamesPath(target, f"{where}/{name}"),),
        files={**files, f"{where}/{name}": b"\n"},
    )
