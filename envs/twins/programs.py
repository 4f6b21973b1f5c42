"""Twins of programs that check: they fail wherever the program itself would pass.

Code of the policy that a check runs in its own process can leave it as if it had passed, or give
it values that are equal to anything. Two twins find that out: one whose every way out is a failure,
and one that expects other values. Which of the three runs, nothing in its sandbox tells.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from clawrl_gym.envs.twins.python import EXITS, Expectations, name_of_call, span_of
from clawrl_gym.envs.twins.text import Change, applied

MOST = 6
"""Twins of one program that expect something else."""


def twins_of_program(program: str, random: Random) -> tuple[str, ...]:
    """Programs that no outcome passes which passes this one."""
    tree = ast.parse(program)
    ending = "" if program.endswith("\n") else "\n"
    stopped = f"{applied(program, _without_ways_out(program, tree))}{ending}raise AssertionError\n"
    expectations = Expectations(program, random, _called(tree))
    changes = [one.change for one in expectations.within(tree.body) if one.is_sure]
    changes += [change for test in _deciding(tree) for change in expectations.of_truth(test)]
    chosen = random.sample(changes, min(MOST, len(changes)))
    return (stopped, *(applied(program, [change]) for change in chosen))


def _deciding(tree: ast.Module) -> Iterator[ast.expr]:
    """What names hold that decide about the way out: `right = ...`, `sys.exit(not right)`."""
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
