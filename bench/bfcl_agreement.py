"""Do our rewards for BFCL agree with its own checker, on right calls and on changed ones?

    python -m venv /tmp/bfcl && /tmp/bfcl/bin/pip install --no-deps bfcl-eval
    python bench/bfcl_agreement.py /tmp/bfcl/bin/python [--cases 20000] [--seed 0] [--show 10]

Two lists, made in different ways: `changes` edits a right reply in ways that have names (case,
types, order, missing and spare arguments), `random` puts values of anywhere into any place. A case
is one reply, graded by a step of `ClawRL/ToolCall-v0` here and by `ast_checker` there, in a process
of that Python. Only its table of models is replaced, whose import needs every client that there is:
by one that names functions without dots. A case on which the checker itself fails is wrong.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.envs.toolcall.benchmarks.bfcl import open_bfcl
from clawrl_gym.envs.toolcall.benchmarks.bfcl_grading import BfclCallsGoal
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.task import ToolTask

_CHECKER = """\
import json, sys, types
stub = types.ModuleType("bfcl_eval.constants.model_config")
stub.MODEL_CONFIG_MAPPING = {"any": types.SimpleNamespace(underscore_to_dot=True)}
sys.modules[stub.__name__] = stub
from bfcl_eval.constants.enums import Language
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
rows = {}
for path in json.loads(sys.argv[1]):
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        rows.setdefault(row["id"], {}).update(row)
for line in sys.stdin:
    case = json.loads(line)
    row, category = rows[case["task"]], case["category"]
    try:
        calls = [{name: json.loads(text)} for name, text in case["calls"]]
        shaped = all(isinstance(arguments, dict) for call in calls for arguments in call.values())
        if "relevance" in category:
            valid = bool(calls and shaped) != ("irrelevance" in category)
        else:
            valid = shaped and ast_checker(
                row["function"], calls, row["ground_truth"], Language.PYTHON, category, "any"
            )["valid"]
    except Exception as error:
        valid = type(error).__name__
    print(json.dumps(valid))
"""
_DATA = "import bfcl_eval, pathlib; print(pathlib.Path(bfcl_eval.__file__).parent / 'data')"


Made = list[tuple[str, Any]]
"""Calls: a function's name and its arguments, as JSON or as a text."""


@dataclass(frozen=True, slots=True)
class Case:
    """One reply to one task."""

    task: str
    category: str
    change: str
    calls: tuple[tuple[str, str], ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="Python of an environment with bfcl-eval")
    parser.add_argument("--cases", type=int, default=20_000, help="cases of each list")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="disagreements to print")
    args = parser.parse_args()
    data = Path(_output(args.python, "-c", _DATA).strip())
    table = open_bfcl(data)
    print(table.selection.summary, flush=True)
    tasks = list(table.tasks.values())
    for title, draw in (("changes", changed), ("random", randomized)):
        cases = _sample(draw(tasks, random.Random(f"{title}/{args.seed}")), args.cases, args.seed)
        _compare(title, cases, data, args.python, args.show)


def _compare(title: str, cases: Sequence[Case], data: Path, python: str, show: int) -> None:
    theirs, ours = _theirs(cases, data, python), _ours(cases, data)
    wrong = [
        (case, mine, other)
        for case, mine, other in zip(cases, ours, theirs, strict=True)
        if (mine == 1.0) != (other is True)
    ]
    failed = sum(isinstance(other, str) for other in theirs)
    share = 1 - len(wrong) / len(cases)
    print(
        f"{title}: {share:.3%} of {len(cases):,} cases agree; {sum(v is True for v in theirs):,} "
        f"are right by bfcl-eval, on {failed:,} its checker fails"
    )
    for change, count in Counter(case.change for case, _, _ in wrong).most_common():
        print(f"  {count:,}: {change}")
    for case, mine, other in wrong[:show]:
        print(f"  {case.task} [{case.change}]: here {mine:g}, there {other}: {case.calls}")


def _ours(cases: Sequence[Case], data: Path) -> list[float]:
    env = ToolCallEnv(tasks=str(data))
    rewards = []
    for case in cases:
        env.reset(options={"task": case.task})
        calls = tuple(Call(f"c{at}", *call) for at, call in enumerate(case.calls))
        rewards.append(env.step(encode(Reply("" if calls else "I cannot do that.", calls)))[1])
    env.close()
    return rewards


def _theirs(cases: Sequence[Case], data: Path, python: str) -> list[bool | str]:
    files = [*data.glob("BFCL_v*.json"), *(data / "possible_answer").glob("BFCL_v*.json")]
    used = {case.category for case in cases}
    wanted = [str(f) for f in files if re.sub(r"BFCL_v\d+_|\.json", "", f.name) in used]
    with tempfile.TemporaryFile("w+") as lines:
        for case in cases:
            row = {"task": case.task, "category": case.category, "calls": case.calls}
            lines.write(json.dumps(row) + "\n")
        lines.seek(0)
        output = _output(python, "-c", _CHECKER, json.dumps(wanted), stdin=lines)
    return [json.loads(line) for line in output.splitlines()]


def _output(*command: str, stdin: Any = None) -> str:
    return subprocess.run(
        command, stdin=stdin, stdout=subprocess.PIPE, check=True, text=True, timeout=1800
    ).stdout


def _sample(cases: Iterator[Case], count: int, seed: int) -> list[Case]:
    """Different ones, drawn evenly."""
    every = list(dict.fromkeys(cases))
    print(f"{len(every):,} cases", flush=True)
    return random.Random(seed).sample(every, min(count, len(every)))


def _case(task: ToolTask, change: str, made: Made) -> Case:
    calls = tuple((n, a if isinstance(a, str) else json.dumps(a)) for n, a in made)
    return Case(task.id, task.family, change, calls)


def _solution(task: ToolTask) -> Made:
    return [(call.name, json.loads(call.arguments)) for call in task.solution[0].calls]


# The first list: a right reply, changed in a way that has a name.


def changed(tasks: Sequence[ToolTask], chance: random.Random) -> Iterator[Case]:
    for task in tasks:
        made = _solution(task)
        yield _case(task, "as it is", made)
        yield _case(task, "no call", [])
        for change, calls in _of_calls(made, task, chance):
            yield _case(task, change, calls)
        for at, (name, arguments) in enumerate(made):
            for change, other in _of_arguments(arguments, _allowed(task, at)):
                yield _case(task, change, [*made[:at], (name, other), *made[at + 1 :]])


def _allowed(task: ToolTask, at: int) -> dict[str, list[Any]]:
    goal = task.goals[0]
    answers = goal.answers if isinstance(goal, BfclCallsGoal) else ()
    return dict(answers[at].allowed) if at < len(answers) else {}


def _of_calls(made: Made, task: ToolTask, chance: random.Random) -> Iterator[tuple[str, Made]]:
    functions = [one["function"]["name"] for one in task.state["bfcl"]["functions"]]
    yield "calls in the other order", made[::-1]
    yield "calls in any order", chance.sample(made, len(made))
    yield "a call twice", [*made, *made[-1:]]
    yield "a call left out", made[1:]
    yield "a further call without arguments", [*made, ((functions or ["any"])[0], {})]
    yield "an unknown function", [("does_not_exist", {})]
    for at, (name, arguments) in enumerate(made):
        for other in {*functions, name.upper(), name.replace("_", "."), f"{name}_2"} - {name}:
            change = "another of its functions" if other in functions else "a name written wrong"
            yield change, [*made[:at], (other, arguments), *made[at + 1 :]]


def _of_arguments(
    arguments: dict[str, Any], allowed: dict[str, list[Any]]
) -> Iterator[tuple[str, Any]]:
    yield "a spare argument", {**arguments, "spare": 1}
    yield "a list for arguments", [arguments]
    yield "text that is no JSON", json.dumps(arguments)[:-1]
    for name, values in allowed.items():
        for value in values:
            yield "another listed value", {**arguments, name: _written(value)}
            yield "a listed value as it stands", {**arguments, name: value}
        yield "null", {**arguments, name: None}
    for name, value in arguments.items():
        rest = {other: part for other, part in arguments.items() if other != name}
        yield "a missing argument", rest
        yield "a renamed argument", {**rest, name.upper(): value}
        twice = json.dumps(rest)[:-1] + (", " if rest else "")
        yield (
            "an argument given twice",
            f"{twice}{json.dumps(name)}: 0, {json.dumps(name)}: {json.dumps(value)}}}",
        )
        for change, other in _of_value(value):
            yield change, {**arguments, name: other}


def _written(value: Any) -> Any:
    """A listed object or list of objects with one value a key."""
    if isinstance(value, dict):
        return {k: v[0] if isinstance(v, list) and v else v for k, v in value.items()}
    return [_written(part) for part in value] if isinstance(value, list) else value


def _of_value(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool):
        yield from (("not", not value), ("bool as text", str(value)), ("bool as int", int(value)))
        yield "bool as a JSON text", json.dumps(value)
    elif isinstance(value, int | float):
        yield from (("number as text", str(value)), ("one more", value + 1))
        yield (
            "int as float" if isinstance(value, int) else "float as int",
            (float(value) if isinstance(value, int) else int(value)),
        )
        yield from (("number in a list", [value]), ("a little more", value + 0.1))
    elif isinstance(value, str):
        yield from _of_text(value)
    elif isinstance(value, list):
        yield from _of_list(value)
    elif isinstance(value, dict):
        yield from _of_object(value)


def _of_text(text: str) -> Iterator[tuple[str, Any]]:
    yield from (("upper case", text.upper()), ("lower case", text.lower()))
    yield from (("spaces", f" {' '.join(text)} "), ("no spaces", text.replace(" ", "")))
    yield from (("a full stop", f"{text}."), ("no marks", re.sub(r"\W", "", text)))
    yield from (("dashes for spaces", text.replace(" ", "-")), ("a spare letter", f"{text}x"))
    yield from (("half of a text", text[: len(text) // 2]), ("an empty text", ""))
    yield from (("a text in a list", [text]), ("quotes", f'"{text}"'), ("a comma", f"{text},"))
    yield from (("an exclamation", f"{text}!"), ("other quotes", text.replace("'", '"')))
    yield from (("underscores", text.replace(" ", "_")), ("a number for a text", 1))


def _of_list(values: list[Any]) -> Iterator[tuple[str, Any]]:
    yield from (("list reversed", values[::-1]), ("list shorter", values[1:]))
    yield from (("list longer", values + values[:1]), ("list as text", json.dumps(values)))
    yield from (("an empty list", []), ("list of texts", [str(value) for value in values]))
    yield from (("a list in a list", [values]), ("parts as floats", _floats(values)))
    yield "list as object", {str(at): value for at, value in enumerate(values)}
    for at, value in enumerate(values[:3]):
        for change, other in _of_value(value):
            yield f"inside a list: {change}", [*values[:at], other, *values[at + 1 :]]


def _floats(values: list[Any]) -> list[Any]:
    return [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]


def _of_object(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from (("an empty object", {}), ("object as text", json.dumps(value)))
    yield from (("object in a list", [value]), ("a spare key", {**value, "spare": 1}))
    yield "keys in upper case", {key.upper(): part for key, part in value.items()}
    for key, part in value.items():
        yield "a missing key", {k: v for k, v in value.items() if k != key}
        yield "null in an object", {**value, key: None}
        for change, other in _of_value(part):
            yield f"inside an object: {change}", {**value, key: other}


# The second list: values of anywhere, put anywhere.


def randomized(tasks: Sequence[ToolTask], chance: random.Random) -> Iterator[Case]:
    pool: list[Any] = [None, True, False, 0, 1, -1, 2.0, 0.5, "", "true", "1", [], {}, [1], ["a"]]
    for task in tasks:
        pool += [value for _, arguments in _solution(task) for value in arguments.values()]
    edits: tuple[Callable[..., None], ...] = (_put, _swap, _graft, _drop, _put)
    for task in tasks:
        for _ in range(12):
            made = copy.deepcopy(_solution(task))
            for _ in range(chance.choice((1, 1, 2))):
                chance.choice(edits)(made, task, pool, chance)
            yield _case(task, "random", made)


def _place(made: Made, chance: random.Random) -> tuple[Any, Any] | None:
    """A container inside of some call's arguments, and a key in it."""
    containers = [arguments for _, arguments in made if arguments]
    if not containers:
        return None
    container = chance.choice(containers)
    while True:
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        key = chance.choice(keys)
        inner = container[key]
        if not (isinstance(inner, dict | list) and inner and chance.random() < 0.7):
            return container, key
        container = inner


def _put(made: Made, task: ToolTask, pool: list[Any], chance: random.Random) -> None:
    """Some value of the data in some place; often a listed one."""
    place = _place(made, chance)
    listed = [v for at in range(len(made)) for vs in _allowed(task, at).values() for v in vs]
    if place is not None:
        container, key = place
        values = listed if listed and chance.random() < 0.5 else pool
        container[key] = copy.deepcopy(chance.choice(values))


def _swap(made: Made, task: ToolTask, pool: list[Any], chance: random.Random) -> None:
    """Two places exchange their values."""
    one, other = _place(made, chance), _place(made, chance)
    if one is not None and other is not None:
        (a, i), (b, j) = one, other
        a[i], b[j] = copy.deepcopy(b[j]), copy.deepcopy(a[i])


def _graft(made: Made, task: ToolTask, pool: list[Any], chance: random.Random) -> None:
    """A further argument, one that the function knows or any; or a further call."""
    functions = [one["function"] for one in task.state["bfcl"]["functions"]]
    if made and chance.random() < 0.7:
        name, arguments = chance.choice(made)
        known = [
            k for one in functions if one["name"] == name for k in one["parameters"]["properties"]
        ]
        if isinstance(arguments, dict):
            arguments[chance.choice([*known, "other"])] = copy.deepcopy(chance.choice(pool))
    else:
        made.append(((chance.choice(functions)["name"] if functions else "any"), {}))


def _drop(made: Made, task: ToolTask, pool: list[Any], chance: random.Random) -> None:
    """Something less: a call, or a value in some place."""
    place = _place(made, chance)
    if made and (place is None or chance.random() < 0.2):
        made.pop(chance.randrange(len(made)))
    elif place is not None:
        container, key = place
        container.pop(key)


if __name__ == "__main__":
    main()
