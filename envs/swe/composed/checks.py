"""What a hidden test does, as somebody would send it in: its code without its name."""

from __future__ import annotations

import ast
import textwrap


def code_of(tests: str) -> str:
    """The body of the first test of a text of tests, as a block of Markdown."""
    test = next(node for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.FunctionDef))
    statements = test.body[1:] if ast.get_docstring(test) is not None else test.body
    last = statements[-1].end_lineno
    body = "\n".join(tests.split("\n")[statements[0].lineno - 1 : last])
    return f"```python\n{textwrap.dedent(body)}\n```"
