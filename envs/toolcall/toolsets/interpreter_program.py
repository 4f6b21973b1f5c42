"""The program of the interpreter inside the sandbox: `LIMIT_S TOKEN BASE64` in, `ok TOKEN` out.

`late` says that the code was interrupted. Runs as `python3 -I -S -c`, imports next to nothing to
start fast, and belongs to the code that it runs: whatever that does to it, the sandbox holds.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import binascii
import builtins
import os
import sys
from _ast import Expr, Expression

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

TREE_ONLY = 0x400
"""`ast.PyCF_ONLY_AST`."""
_FRAMES_SHOWN = 4


class TookTooLong(BaseException):
    """Raised in the code when its time is over."""


def main() -> None:
    pid = os.getpid()
    calls = open(os.dup(0), "rb")  # noqa: SIM115, PTH123
    answers, out = os.dup(1), os.dup(2)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    scope = _scope()
    os.write(answers, b"ready\n")
    for number, line in enumerate(calls, 1):
        limit_s, token, encoded = line.split(b" ")
        _streams(out)
        name, code = f"<code {number}>", binascii.a2b_base64(encoded).decode()
        answer = _call(name, code, float(limit_s), scope)
        if os.getpid() != pid:  # a fork of the code came back
            os._exit(0)
        try:
            os.write(answers, answer + b" " + token + b"\n")
        except OSError:  # nobody waits any more
            os._exit(0)


def _scope() -> dict[str, object]:
    """The variables of the code: those of a module named __main__."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    vars(module)["__builtins__"] = builtins
    vars(sys).update(argv=[""], stdin=open(0, closefd=False))  # noqa: SIM115
    sys.path[:] = ["", *(path for path in sys.path if path), *_libraries()]
    return vars(module)


def _libraries() -> Iterator[str]:
    """Where packages are; `-S` leaves these out."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in (
        f"/usr/local/lib/{version}/dist-packages",
        f"{sys.prefix}/lib/{version}/site-packages",
        "/usr/lib/python3/dist-packages",
    ):
        if path not in sys.path and os.path.isdir(path):  # noqa: PTH112
            yield path


def _streams(out: int) -> None:
    """Have standard output and error again, whatever the last code did to them."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(out, number)
        stream = open(  # noqa: SIM115
            number, "w", 1, encoding="utf-8", errors="replace", closefd=False
        )
        vars(sys).update({name: stream, f"__{name}__": stream})


def _call(name: str, code: str, limit_s: float, scope: dict[str, object]) -> bytes:
    try:
        _signal.signal(_signal.SIGALRM, _late)
        _signal.setitimer(_signal.ITIMER_REAL, limit_s)
        try:
            _run(name, code, scope)
        finally:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
    except TookTooLong:
        return b"late"
    except SystemExit as end:
        if end.code not in (None, 0):
            _show(name, code, end)
    except BaseException as error:  # noqa: BLE001
        _show(name, code, error)
    return b"ok"


def _late(*_: object) -> None:
    raise TookTooLong


def _run(name: str, code: str, scope: dict[str, object]) -> None:
    """Run the statements; print the value when the last one is an expression."""
    tree: Any = compile(code, name, "exec", TREE_ONLY, dont_inherit=True)
    last = None
    if tree.body and isinstance(tree.body[-1], Expr):
        expression: Any = Expression(tree.body.pop().value)
        last = compile(expression, name, "eval", dont_inherit=True)
    exec(compile(tree, name, "exec", dont_inherit=True), scope)
    value = None if last is None else eval(last, scope)
    if value is not None:
        sys.stdout.write(repr(value) + "\n")


def _show(name: str, code: str, error: BaseException) -> None:
    """The end of the traceback, without the frames of this program."""
    import linecache
    import traceback

    lines = [line + "\n" for line in code.splitlines()]
    linecache.cache[name] = (len(code), None, lines, name)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != name:
        frames = frames.tb_next
    trace = traceback.format_exception(type(error), error, frames, limit=-_FRAMES_SHOWN)
    text = "".join(trace)
    if not text.startswith("Traceback"):
        text = "Traceback (most recent call last):\n" + text
    sys.stderr.write(text)


if __name__ == "__main__":
    main()
