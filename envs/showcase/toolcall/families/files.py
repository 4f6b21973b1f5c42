"""Families about a store of files: append, copy, look, save, trail."""

from __future__ import annotations

from collections.abc import Mapping

from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec, TaskContent, replies
from clawrl_gym.envs.showcase.toolcall.families.sums import calculate
from clawrl_gym.envs.toolcall.goals import MentionGoal, StateGoal

FILES = ("files",)
READ_AND_WRITE = ("read_file", "write_file")
CONFIRMATION = "Done."


def read_file(path: str) -> CallSpec:
    """The call that reads a file."""
    return "read_file", {"path": path}


def write_file(path: str, content: str) -> CallSpec:
    """The call that replaces a file."""
    return "write_file", {"path": path, "content": content}


def append(draw: Draw) -> TaskContent:
    """One more item of a list: what the file held before has to be written again."""
    name = draw.name()
    before, item = f"- {_line(draw)}", _line(draw)
    whole = f"{before}\n- {item}"  # a dash apart: in JSON a bare word would run into the n of \\n
    form = draw.pick(("Add {w} to the list {a}.", "Add {w} as the last item of the list {a}."))
    return _stored(
        {name: before},
        form.format(a=name, w=item),
        [read_file(name)],
        [write_file(name, whole)],
        goal={name: whole},
        key=f"append {item} {name}",
    )


def copy(draw: Draw) -> TaskContent:
    """A file with the content of another one."""
    source, target = draw.names(2)
    content = _line(draw)
    form = draw.pick(("Copy {a} to {b}.", "Make a copy of {a} called {b}."))
    return _stored(
        {source: content},
        form.format(a=source, b=target),
        [read_file(source)],
        [write_file(target, content)],
        goal={source: content, target: content},
        key=f"copy {source} {target}",
    )


def look(draw: Draw) -> TaskContent:
    """A file whose name was not told in full: the first call fails and is mended."""
    target, distractor = draw.names(2)
    stem = target.partition(".")[0]
    contents = [_line(draw), _line(draw)]
    form = draw.pick(("What does the file {a} say?", "Read the file {a} to me."))
    return TaskContent(
        instruction=form.format(a=stem),
        solution=replies(
            [read_file(stem)],
            [("list_files", {})],
            [read_file(target)],
            f"It says: {contents[0]}",
        ),
        goals=(MentionGoal((contents[0],)),),
        toolsets=FILES,
        tools=("list_files", "read_file"),
        state={"files": dict(zip((target, distractor), contents, strict=True))},
        key=f"look {stem}",
    )


def save(draw: Draw) -> TaskContent:
    """A calculation whose result goes to a file: two toolsets."""
    a, b, name = draw.between(11, 99), draw.between(11, 99), draw.name()
    value = str(a * b)
    form = draw.pick(("Write {a} * {b} to {f}.", "Save the result of {a} * {b} in {f}."))
    return TaskContent(
        instruction=form.format(a=a, b=b, f=name),
        solution=replies([calculate(f"{a} * {b}")], [write_file(name, value)], CONFIRMATION),
        goals=(StateGoal("files", {name: value}),),
        toolsets=("calculator", "files"),
        tools=("calculate", "write_file"),
    )


def trail(draw: Draw) -> TaskContent:
    """A file that names the file that holds the answer."""
    first, second = draw.names(2)
    word = draw.pick(WORDS)
    form = draw.pick(
        ("Which word is at the end of the trail that starts in {a}?", "Follow the trail from {a}.")
    )
    return TaskContent(
        instruction=form.format(a=first),
        solution=replies([read_file(first)], [read_file(second)], f"The word is {word}."),
        goals=(MentionGoal((word,)),),
        toolsets=FILES,
        tools=("read_file",),
        state={"files": {first: f"Look into {second}.", second: f"The word is {word}."}},
        key=f"trail {first}",
    )


def _stored(
    files: Mapping[str, str],
    instruction: str,
    *turns: list[CallSpec],
    goal: Mapping[str, str],
    key: str,
) -> TaskContent:
    return TaskContent(
        instruction=instruction,
        solution=replies(*turns, CONFIRMATION),
        goals=(StateGoal("files", goal),),
        toolsets=FILES,
        tools=READ_AND_WRITE,
        state={"files": dict(files)},
        key=key,
    )


def _line(draw: Draw) -> str:
    return " ".join(draw.some(WORDS, draw.between(1, 2)))
