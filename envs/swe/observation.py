"""The observation after a command, in mini-swe-agent's form."""

from __future__ import annotations

LONGEST = 10_000
"""Characters of output that are shown whole."""
_WARNING = (
    "The output is too long: its middle is left out. Print less, for example with head, tail, sed "
    "or grep, or write the output to a file and look for what you need."
)


def observation_text(returncode: int, output: str, note: str = "") -> str:
    """The observation of a command that ended with `returncode`; -1 when it was stopped."""
    parts = [f"<exception>{note}</exception>"] if note else []
    parts.append(f"<returncode>{returncode}</returncode>")
    if len(output) <= LONGEST:
        output = output.rstrip("\n")
        parts += ["<output>", output, "</output>"] if output else ["<output>", "</output>"]
        return "\n".join(parts)
    half = LONGEST // 2
    return "\n".join(
        [
            *parts,
            f"<warning>\n{_WARNING}\n</warning>",
            f"<output_head>\n{output[:half]}\n</output_head>",
            f"<elided_chars>\n{len(output) - LONGEST} characters left out\n</elided_chars>",
            f"<output_tail>\n{output[-half:]}\n</output_tail>",
        ]
    )
