"""The repository's pages as tests read them: links, headings, code and commands.

Two conventions, readable in plain Markdown: a Python block after a comment that begins with
`<!-- needs a server` is composed and not run; one whose first line is `# my_pkg/say.py` is the
content of that file.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = (".", ".github", "docs", "docs/grounds", "docker", "agents/openclaw")
_COMMAND = re.compile(r"(?<![\w./-])(?:(?:\.venv/bin/)?python |make )")
_NOT_LINKED = ("http://", "https://", "mailto:")


@dataclass(frozen=True)
class Block:
    """A block of Python."""

    page: str
    line: int
    code: str
    needs_server: bool

    @property
    def file(self) -> str | None:
        """The file that it is the content of."""
        first = self.code.partition("\n")[0]
        return first.removeprefix("# ") if re.fullmatch(r"# [\w/]+\.py", first) else None


@dataclass(frozen=True)
class Page:
    """One Markdown file of the repository."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def _tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.path.read_text())

    def _inline(self) -> Iterator[Token]:
        for token in self._tokens:
            yield from token.children or ()

    @property
    def links(self) -> list[str]:
        """Targets within the repository, of links and pictures."""
        targets = [token.attrGet("href") or token.attrGet("src") for token in self._inline()]
        return [str(t) for t in targets if t and not str(t).startswith(_NOT_LINKED)]

    @property
    def anchors(self) -> set[str]:
        """What a link to a heading says after `#`, made as GitHub does."""
        seen: Counter[str] = Counter()
        anchors = set()
        for before, token in zip(self._tokens, self._tokens[1:], strict=False):
            if before.type != "heading_open":
                continue
            text = "".join(child.content for child in token.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        return anchors

    @property
    def inline_code(self) -> list[str]:
        """What stands between backticks."""
        codes = (token.content for token in self._inline() if token.type == "code_inline")
        return [code.replace("\\|", "|") for code in codes]

    @property
    def python(self) -> list[Block]:
        blocks = []
        for before, token in zip([None, *self._tokens], self._tokens, strict=False):
            if token.type == "fence" and token.info == "python":
                comment = before.content if before and before.type == "html_block" else ""
                line = token.map[0] + 2 if token.map else 0
                server = comment.startswith("<!-- needs a server")
                blocks.append(Block(self.name, line, token.content, server))
        return blocks

    @property
    def commands(self) -> list[list[str]]:
        """Our commands, split into words: of blocks that are no Python, and of inline code."""
        blocks = [t.content for t in self._tokens if t.type in ("code_block", "fence")]
        python = {block.code for block in self.python}
        lines = [line for block in blocks if block not in python for line in block.splitlines()]
        parts = (part for text in [*lines, *self.inline_code] for part in _parts(text))
        return [words for words in parts if words]


def pages() -> list[Page]:
    """Every page of the repository."""
    files = [file for folder in _FOLDERS for file in sorted((ROOT / folder).glob("*.md"))]
    return [Page(file) for file in files]


def _parts(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell line that are ours."""
    text = text.strip().removeprefix("$ ")
    if not _COMMAND.match(text):
        return
    text = re.sub(r"(?<=\w)(\|\w+)+", "", text)  # one of several: the first
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;>"):
            yield words
            words = []
        else:
            words.append(word)
