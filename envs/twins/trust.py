"""Whether what a program grades can talk it into passing: by the program's text alone.

A program that runs none of the policy's code meets plain values only, and is trusted. One that does
may be handed values that are equal to anything: it is trusted where each of its decisions is one
that a twin asks for another value, and is met in every run that passes (`programs.py`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator

from clawrl_gym.envs.twins.python import name_of_call

_RUNS_CODE = frozenset(
    ("exec", "eval", "compile", "__import__", "importlib", "import_module", "runpy", "run_path",
     "run_module", "pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "ctypes",
     "FunctionType", "CodeType", "ModuleType", "SourceFileLoader", "spec_from_file_location",
     "load_source", "code", "InteractiveInterpreter", "sys.path", "path_hooks", "addsitedir",
     "joblib", "torch", "yaml", "jsonpickle", "multiprocessing", "doctest", "timeit")
)  # fmt: skip
"""Names of what can run other code than the program's own, in its process."""


def runs_code(tree: ast.AST) -> bool:
    """Whether a program may run code that it does not hold itself; a process of its own is none."""
    return any(_RUNS_CODE.intersection(_names_in(node)) for node in ast.walk(tree))


def _names_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name():
            yield node.id
        case ast.Attribute():
            yield node.attr
            yield ast.unparse(node)
        case ast.Import():
            yield from (alias.name.split(".")[0] for alias in node.names)
        case ast.ImportFrom():
            yield (node.module or "").split(".")[0]
            yield from (alias.name for alias in node.names)
        case ast.Constant(value=str() as text) if text.isidentifier():
            yield text  # as in getattr(builtins, "exec")


def decisions(tree: ast.AST) -> Iterator[ast.expr]:
    """Every expression on which it may depend whether a program passes."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                if not _is_identity(node) and "__name__" not in ast.unparse(node):
                    yield node
            case ast.Assert() | ast.If() | ast.While() | ast.IfExp():
                yield from _atoms(node.test)
            case ast.comprehension():
                yield from (atom for test in node.ifs for atom in _atoms(test))
            case ast.Match():
                yield node.subject
            case ast.Call() if _is_assertion(node):
                yield node
            case ast.BoolOp():
                yield from _atoms(node)


def _atoms(test: ast.expr) -> Iterator[ast.expr]:
    """Parts of a condition, less comparisons, which stand for themselves."""
    match test:
        case ast.BoolOp():
            for value in test.values:
                yield from _atoms(value)
        case ast.UnaryOp(op=ast.Not()):
            yield from _atoms(test.operand)
        case ast.Compare() | ast.Constant():
            return
        case _:
            yield test


def _is_identity(node: ast.Compare) -> bool:
    """`is None` and the like, which no value can pretend to be."""
    return all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) and all(
        isinstance(side, ast.Constant) for side in node.comparators
    )


def _is_assertion(call: ast.Call) -> bool:
    name = name_of_call(call)
    return name.lower().startswith("assert") or name in ("fail", "raises", "warns")


def tells_by_truth(atom: ast.expr) -> bool:
    """Whether the opposite of a condition shows what a value is: nobody but who made the value
    says what it is worth. A method, or a function of Python's, may ask a value that lies."""
    if isinstance(atom, ast.Call):
        called = atom.func
        is_own = isinstance(called, ast.Name) and called.id not in vars(builtins)
        return (is_own or isinstance(called, ast.Subscript)) and not atom.keywords
    return isinstance(atom, ast.Name | ast.Subscript)


def collects_values(tree: ast.AST) -> bool:
    """Whether a program puts what the policy's code gave into a list, dictionary or set of its own,
    which is then plain whatever it holds."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[*targets], value=value):
                holds = isinstance(value, _DISPLAYS) or any(
                    isinstance(target, ast.Subscript) for target in targets
                )
                if holds and _has_given(value):
                    return True
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                if isinstance(value, _DISPLAYS) and _has_given(value):
                    return True
            case ast.Call(args=[*arguments]) if name_of_call(node) in _COLLECTORS:
                if any(map(_has_given, arguments)):
                    return True
    return False


def _has_given(value: ast.AST) -> bool:
    """Whether there is a call of what a scope holds: `scope["add"](2, 3)`."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
        for node in ast.walk(value)
    )


_DISPLAYS = (
    ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip
_COLLECTORS = frozenset(("append", "add", "extend", "insert", "update", "setdefault", "appendleft"))


def is_covered(tree: ast.AST, covered: Collection[ast.expr]) -> bool:
    """Whether all decisions are among those that twins ask for another value."""
    known = set(map(id, covered))
    return all(id(decision) in known for decision in decisions(tree))
