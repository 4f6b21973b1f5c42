"""Twins of programs that check: they fail wherever the program itself would pass.

Code of the policy that a check runs in its own process can leave it as if it had passed, or give
it values that are equal to anything. Two twins find that out: one whose every way out is a failure,
and one that expects other values. Which of the three runs, nothing in its sandbox tells.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

from clawrl_gym.envs.twins.met import Walk
from clawrl_gym.envs.twins.other_values import OtherValues
from clawrl_gym.envs.twins.python import EXITS, Expectations, name_of_call, span_of
from clawrl_gym.envs.twins.text import Change, applied
from clawrl_gym.envs.twins.trust import collects_values, decisions, is_covered, runs_code

MOST = 64
"""Twins of one program that expect something else."""


def twins_of_program(program: str, random: Random) -> tuple[str, ...]:
    """Programs that no outcome passes which passes this one."""
    tree = ast.parse(program)
    ending = "" if program.endswith("\n") else "\n"
    stopped = f"{applied(program, _without_ways_out(program, tree))}{ending}raise AssertionError\n"
    expectations = Expectations(program, random, _called(tree))
    changes = [one.change for one in expectations.within(tree.body) if one.is_sure]
    changes += [change for test in _deciding(tree) for change in expectations.of_truth(test)]
    twins = [applied(program, [change]) for change in changes]
    twins += [applied(program, [asked.change]) for asked in _asked(program, tree, expectations)]
    twins = list(dict.fromkeys(twins))
    return (stopped, *random.sample(twins, min(MOST, len(twins))))


def is_trusted(program: str) -> bool:
    """Whether no value that the policy's code makes can pass a program that another one could not:
    it runs no such code, or its twins ask for another value in each of its decisions."""
    tree = ast.parse(program)
    if not runs_code(tree):
        return True
    if collects_values(tree) and not all(map(_has_literal_side, decisions(tree))):
        return False  # an entry is equal to whatever stands in its place: no twin asks for others
    asked = _asked(program, tree, Expectations(program, Random(0)))
    covered = [one.decision for one in asked if one.is_once]
    return 0 < len(asked) <= MOST and is_covered(tree, [*covered, *_exit_tests(tree)])


def _has_literal_side(decision: ast.expr) -> bool:
    if not isinstance(decision, ast.Compare):
        return True
    for side in (decision.left, *decision.comparators):
        with contextlib.suppress(ValueError, TypeError):
            ast.literal_eval(side)
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Asked:
    """A decision, and what makes it decide otherwise, in one round of its loops."""

    decision: ast.expr
    change: Change
    is_once: bool


def _asked(program: str, tree: ast.Module, expectations: Expectations) -> list[_Asked]:
    """Twins of all decisions that every passing run comes to."""
    other, walk = OtherValues(expectations), Walk(tree)
    found = list[_Asked]()
    for met in walk.met():
        for node, change in other.of_statement(met.statement):
            rounds = [range(walk.entries(loop.iter)) for loop in met.loops]
            is_inside = all(_holds(program, loop, change) for loop in met.loops)
            for choice in product(*rounds) if is_inside else ():
                changed = _in_one_round(program, change, list(zip(met.loops, choice, strict=True)))
                found.append(_Asked(node, changed, met.is_once))
                if len(found) > MOST:
                    return found
    for test in _deciding(tree):
        found += [_Asked(node, one, is_once=True) for node, one in other.of_truth(test)]
    return found


def _holds(program: str, loop: ast.For, change: Change) -> bool:
    """Whether a change stands in the body of a loop, and not in a function that is called there."""
    start, end = span_of(program, loop)
    return start < change.start and change.end <= end and not loop.orelse


def _in_one_round(program: str, change: Change, rounds: list[tuple[ast.For, int]]) -> Change:
    """The same change in one round of each loop, before and after which all is as it was: who is
    right in the others and lies in this one is found, too."""
    for loop, at in reversed(rounds):
        start, end = span_of(program, loop)
        before, after = program[start : change.start], program[change.end : end]
        as_it_was, changed = program[start:end], f"{before}{change.text}{after}"
        first, last = (offset - start for offset in span_of(program, loop.iter))
        pieces = [
            f"{text[:first]}list({text[first:last]})[{part}]{text[last:]}"
            for text, part in (
                (as_it_was, f":{at}"),
                (changed, f"{at}:{at + 1}"),
                (as_it_was, f"{at + 1}:"),
            )
        ]
        change = Change(start, end, f"\n{' ' * loop.col_offset}".join(pieces))
    return change


def _exit_tests(tree: ast.AST) -> Iterator[ast.expr]:
    """`right` of `sys.exit(0 if right else 1)`: what decides is what the name holds."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(args=[ast.IfExp() as choice]) if name_of_call(node) in EXITS:
                if _negated_name(choice) is not None:
                    yield choice.test


def _deciding(tree: ast.Module) -> Iterator[ast.expr]:
    """Values of names that decide about the exit: `right = ...`, `sys.exit(not right)`."""
    names = {
        inner.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of_call(node) in EXITS and node.args
        for inner in [_negated_name(node.args[0])]
        if inner is not None
    }
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name() as target]) if target.id in names:
                yield statement.value


def _negated_name(argument: ast.expr) -> ast.Name | None:
    """`right` of `0 if right else 1`, `not right` and `int(not right)`."""
    match argument:
        case ast.IfExp(test=ast.Name() as name, body=ast.Constant(value=0 | None)):
            return name
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name() as name):
            return name
        case ast.Call(args=[inner]) if name_of_call(argument) == "int":
            return _negated_name(inner)
    return None


def _without_ways_out(program: str, tree: ast.AST) -> Iterator[Change]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
            if node.exc.id == "SystemExit":
                end = span_of(program, node.exc)[1]
                yield Change(end, end, "(1)")
        elif isinstance(node, ast.Call) and name_of_call(node) in EXITS:
            yield from _as_failure(program, node)
        elif isinstance(node, ast.Call) and _is_main_of_unittest(node):
            end = span_of(program, node)[1] - 1
            yield Change(end, end, ", exit=False" if node.args or node.keywords else "exit=False")


def _as_failure(program: str, call: ast.Call) -> Iterator[Change]:
    """The same call as a failure; nothing for one that is a failure already."""
    if not call.args:
        end = span_of(program, call)[1] - 1
        yield Change(end, end, "1")
        return
    argument = call.args[0]
    if isinstance(argument, ast.JoinedStr) or (
        isinstance(argument, ast.Constant) and argument.value
    ):
        return
    start, end = span_of(program, argument)
    yield Change(start, end, f"(0 if ({program[start:end]}) else 1)")


def _called(tree: ast.AST) -> frozenset[str]:
    """Names of functions that are called; unittest calls what is named a test."""
    nodes = list(ast.walk(tree))
    calls = {name_of_call(node) for node in nodes if isinstance(node, ast.Call)}
    tests = {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and "main" in calls
    }
    return frozenset(calls | tests)


def _is_main_of_unittest(call: ast.Call) -> bool:
    """It leaves the program by itself."""
    return ast.unparse(call.func) == "unittest.main" and not any(
        keyword.arg == "exit" for keyword in call.keywords
    )
