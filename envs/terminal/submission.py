"""`submit` as a command of the shell: bash itself says whether an action ran it.

Where the word stands in an action says little: it may be quoted, in a comment, a file's contents or
behind a condition. So the shell gets a function of this name for the one action, and is asked
afterwards whether it was called. What stands behind `submit` in the action still runs.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import Self

from clawrl_gym.envs.terminal.task import SUBMIT

_WORD = re.compile(rf"(?<![\w./-]){SUBMIT}(?![\w./-])")


@dataclass(frozen=True, slots=True)
class Submission:
    """One action that may run `submit`."""

    action: str
    _mark: str = field(default_factory=lambda: f"submitted_{secrets.token_hex(8)}")
    """A variable of the shell, and the name of a file, because a subshell's variables are lost."""

    @classmethod
    def of(cls, action: str) -> Self | None:
        """The submission; None for an action without the word: it is run as it is."""
        return cls(action.rstrip()) if _WORD.search(action) else None

    @property
    def is_bare(self) -> bool:
        """Whether nothing else is to be run."""
        return self.action.strip() == SUBMIT

    @property
    def command(self) -> str:
        """The action, in a shell that knows `submit`. It begins in the same line, so that bash
        counts lines as ever."""
        function = f"{SUBMIT}() {{ {self._mark}=1; \\builtin : 2>/dev/null >|{self._path}; }}"
        return f"{function}; {self.action}"

    @property
    def question(self) -> str:
        """A command that succeeds where `submit` was run, and leaves nothing behind."""
        return (
            f"\\builtin unset -f {SUBMIT}; "
            f'if \\builtin [ -n "${{{self._mark}-}}" ] || \\builtin [ -e {self._path} ]; then '
            f"\\builtin unset {self._mark}; \\builtin command -p rm -f {self._path}; "
            "else (\\builtin exit 1); fi"
        )

    @property
    def _path(self) -> str:
        return f"/tmp/.{self._mark}"
