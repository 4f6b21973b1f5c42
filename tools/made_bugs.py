"""Makes the table of small bugs that composed repositories have beside the corpus's own.

    python -m tools.made_bugs     # two minutes; writes envs/showcase/swe/composed/made_bugs.yaml

Every wrong change that `make-bugs` would try is tried in each repository in Python, under several
draws of its names, alone and with every set of the repository's own bugs. What is kept makes the
same tests that stand in the repository fail each time, never all of them, and hides no other bug.
"""

from __future__ import annotations

import hashlib
import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, combinations
from types import FrameType

import yaml

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.swe.composed.ground import Ground, clash, draw_ground, repositories
from clawrl_gym.envs.showcase.swe.composed.made_bugs import TABLE, MadeBug
from clawrl_gym.envs.showcase.swe.corpus.repository import repository_family
from clawrl_gym.envs.swe.bugs.mutations import NOTHING_RETURNED, Mutation, mutations_of
from tests.support.repository_runs import failing_in_python

MOST = 12
"""Most bugs of one repository."""
_DRAWS = 4
_LONGEST_S = 1.0
"""Most CPU seconds for all tests of a repository, which take some milliseconds: others hang."""
_MOST_BYTES = 4 << 30
_NUMBERS_FROM = 900_001
_PYTHON = ("pytest", "unittest")


class _Dumper(yaml.SafeDumper):
    """Writes lines of code as lines."""


def _lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _lines)


def main() -> None:
    """Write the table again."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    signal.signal(signal.SIGPROF, _stop)
    table = {
        name: [bug.model_dump(mode="json") for bug in _kept(name)]
        for name in (*repositories(_PYTHON, "train"), *repositories(_PYTHON, "heldout"))
    }
    head = "# Made by `python -m tools.made_bugs`.\n"
    body = yaml.dump(table, Dumper=_Dumper, default_flow_style=None, allow_unicode=True, width=100)
    TABLE.write_text(head + body)


def _kept(name: str) -> list[MadeBug]:
    """So many of the bugs that hold, those in functions with few of them first."""
    found: list[MadeBug] = []
    taken: Counter[str] = Counter()
    candidates = sorted(_candidates(name), key=lambda each: _digest(each[1]))
    grounds = [draw_ground(Draw(f"{number}"), name) for number in range(_DRAWS)]
    seen = set[tuple[str, str]]()
    while candidates and len(found) < MOST:
        candidates.sort(key=lambda each: taken[each[0].place])
        mutation, bug = candidates.pop(0)
        if (bug.right, bug.wrong) in seen:
            continue
        seen.add((bug.right, bug.wrong))
        if (tried := _tried(bug, grounds)) is not None:
            found.append(tried)
            taken[mutation.place] += 1
    return found


def _candidates(name: str) -> Iterator[tuple[Mutation, MadeBug]]:
    """Wrong changes, written with the placeholders of the corpus."""
    family = repository_family(name)
    names = _marks(family.names)
    back = {mark: f"@{key}@" for key, mark in names.items()}
    back |= {mark.capitalize(): f"@{key[0].upper()}{key[1:]}@" for key, mark in names.items()}
    own = [(bug.path, bug.wrong.strip()) for bug in family.bugs]
    ground = Ground(name, names)
    for path, text in ground.right().items():
        if path in ground.visible() or not path.endswith(".py"):
            continue
        for mutation in mutations_of(path, text):
            changed = mutation.applied(text)
            if changed is None or mutation.kind == NOTHING_RETURNED:
                continue
            right, wrong = (_restored(part, back) for part in _difference(text, changed))
            bug = MadeBug(
                path=_restored(path, back), right=right, wrong=wrong, breaks=("?",), beside=()
            )
            is_own = any(bug.path == place and spoilt in wrong for place, spoilt in own)
            if str(_NUMBERS_FROM)[:4] not in right + wrong and not is_own:
                yield mutation, bug


def _marks(kinds: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    """Names that are found again wherever they stand."""
    marks = {}
    for number, (name, kind) in enumerate(kinds.items()):
        is_number = isinstance(kind, str) and ".." in kind
        marks[name] = str(_NUMBERS_FROM + number) if is_number else f"qz{chr(97 + number)}zq"
    return marks


def _restored(text: str, back: Mapping[str, str]) -> str:
    return re.sub("|".join(map(re.escape, back)), lambda match: back[match[0]], text)


def _difference(text: str, changed: str) -> tuple[str, str]:
    """The lines that differ, with as many before them as make them stand just once."""
    before, after = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    start = next(i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    same = 0
    while same < min(len(before), len(after)) - start and before[-1 - same] == after[-1 - same]:
        same += 1
    while True:
        right = "".join(before[start : len(before) - same])
        if right and text.count(right) == 1:
            return right, "".join(after[start : len(after) - same])
        start -= 1


def _tried(bug: MadeBug, grounds: list[Ground]) -> MadeBug | None:
    """The bug with what it breaks; None for one that is not kept."""
    breaks = {_visible_failures(ground, bug, ()) for ground in grounds}
    failing = next(iter(breaks))
    if len(breaks) > 1 or not failing or len(failing) == len(grounds[0].ids(grounds[0].visible())):
        return None
    bug = bug.model_copy(update={"breaks": tuple(sorted(failing))})
    numbers = range(len(grounds[0].family.bugs))
    beside = tuple(one for one in numbers if _holds(bug, grounds, (one,)))
    sets = chain.from_iterable(combinations(beside, size) for size in range(2, len(beside) + 1))
    if not beside or not all(
        _holds(bug, grounds, each) for each in sets if not clash(grounds[0].name, each)
    ):
        return None
    return bug.model_copy(update={"beside": beside})


def _holds(bug: MadeBug, grounds: list[Ground], bugs: tuple[int, ...]) -> bool:
    """Whether it breaks the same beside others, and each of those its own tests."""
    return all(_visible_failures(ground, bug, bugs) == set(bug.breaks) for ground in grounds)


def _visible_failures(ground: Ground, bug: MadeBug, bugs: tuple[int, ...]) -> frozenset[str]:
    """Failures of the visible tests; empty when one of the hidden tests passes."""
    tests = ground.tests(bugs)
    try:
        files = {**ground.wrong(bugs, bug), **tests}
    except TaskError:
        return frozenset()
    failing = frozenset[str]()
    start = time.process_time()
    with suppress(TimeoutError, MemoryError, SyntaxError), _limited():
        failing = failing_in_python(files, tuple(tests))
    if time.process_time() - start > _LONGEST_S:
        return frozenset()
    visible = frozenset(ground.ids(ground.visible()))
    return failing & visible if failing >= set(ground.ids(tests)) - visible else frozenset()


@contextmanager
def _limited() -> Iterator[None]:
    """Each test that hangs ends by an error, which may pass for its failure."""
    signal.setitimer(signal.ITIMER_PROF, _LONGEST_S, _LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _digest(bug: MadeBug) -> str:
    return hashlib.sha256(f"{bug.path}\0{bug.right}\0{bug.wrong}".encode()).hexdigest()


if __name__ == "__main__":
    main()
