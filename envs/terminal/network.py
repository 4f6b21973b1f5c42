"""Test scripts that fetch what they need: without a network they can only fail.

A task whose tests cannot pass would earn 0 whatever is done, so it is refused before it is played.
"""

from __future__ import annotations

import re

from clawrl_gym.core.errors import TaskError

_FETCHES = re.compile(
    r"\b(apt|apt-get|apk|dnf|yum)\s+(-\S+\s+)*(update|install|add)\b"
    r"|\b(curl|wget)\b.*\bhttps?://(?!localhost|127\.|0\.0\.0\.0|\[::1\])[\w.]"
    r"|\bpip3?\s+(-\S+\s+)*install\s+(?!.*--no-index)"
    r"|\buv\s+(add|sync|init|pip|tool|python)\b|\buvx\b"
    r"|\b(npm|pnpm|yarn)\s+(i|install|ci|add)\b|\bcargo\s+install\b|\bgit\s+clone\s+https?:"
)


def fetching_line(script: str) -> str | None:
    """The first line that fetches something and has no alternative; None for an offline script."""
    for raw in script.splitlines():
        line = raw.partition(" #")[0].strip()
        if not line.startswith("#") and "||" not in line and _FETCHES.search(line):
            return line
    return None


def refuse_fetching(script: str, where: str) -> None:
    """Raises TaskError naming the line and what to do."""
    line = fetching_line(script)
    if line is not None:
        raise TaskError(
            f"{where} fetches from the network ({line[:100]!r}), which a sandbox does not have: "
            "let it use what is in the image, or set env.sandbox.network=true (sandbox=docker)"
        )
