"""The behaviour that a hidden test checks, as somebody would report it: its code without its name.

Only of bugs that have another test beside it, or a patch for what is shown alone would do.
"""

from __future__ import annotations

import ast
import textwrap


def code_of(tests: str) -> str | None:
    """The body of the first test of a text of tests, as a block of Markdown; None where there is
    one test alone."""
    functions = [node for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.FunctionDef)]
    test, *others = [function for function in functions if function.name.startswith("test")]
    if not others:
        return None
    statements = test.body[1:] if ast.get_docstring(test) is not None else test.body
    last = statements[-1].end_lineno
    body = "\n".join(tests.split("\n")[statements[0].lineno - 1 : last])
    return f"```python\n{textwrap.dedent(body)}\n```"
