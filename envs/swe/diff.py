"""Patches in git's form between two trees of text, made without git."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from clawrl_gym.core.errors import TaskError


def git_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Output of `git diff` between two trees; `git apply` takes it. Every file ends a line."""
    return "".join(
        _file_diff(path, before.get(path), after.get(path))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    )


def _file_diff(path: str, old: str | None, new: str | None) -> str:
    for text in (old, new):
        if text is not None and not text.endswith("\n"):
            raise TaskError(f"got a file {path!r} without a line's end at its end")
    head = [f"diff --git a/{path} b/{path}\n"]
    if old is None:
        head.append("new file mode 100644\n")
    if new is None:
        head.append("deleted file mode 100644\n")
    body = difflib.unified_diff(
        _lines(old),
        _lines(new),
        "/dev/null" if old is None else f"a/{path}",
        "/dev/null" if new is None else f"b/{path}",
    )
    return "".join([*head, *body])


def _lines(text: str | None) -> list[str]:
    """Lines as git counts them: only a line feed ends one."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] if text else []
