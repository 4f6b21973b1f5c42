"""A program of the work folder, which refuses to run while its lock is there."""

from __future__ import annotations

from clawrl_gym.envs.draw import text

TOOL = "tidy.sh"
LOCK = "tidy.lock"
TOOL_TEXT = text(
    [
        "# sh tidy.sh FROM TO: the lines of FROM in order, each once",
        f"if [ -e {LOCK} ]; then",
        f'  echo "{LOCK} is there: tidy.sh runs, or broke off. Delete it if nothing runs." >&2',
        "  exit 1",
        "fi",
        'sort -u "$1" > "$2"',
    ]
)
