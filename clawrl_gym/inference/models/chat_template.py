"""Report on a model's chat template and its treatment of earlier turns, from rendering short chats.

Where a prompt continues the one before it and the reply, a conversation is one sequence to be
trained; else each turn is one of its own, and costs its whole prompt again. Whatever a template
does not show, such as tools, the model never sees.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from clawrl_gym.dialogue.delta import shared_prefix, shared_suffix

_THOUGHT, _REPLY = "a thought of its own", "a reply of its own"
_SYSTEM = "~ what is to be done ~"
_NO_THOUGHT = re.compile(r"\A\s*<think>\s*</think>\s*|<think>\s*(?:</think>\s*)?\Z")
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """Report on one template; texts, not tokens."""

    extends: bool
    """The prompt after a reply begins with the prompt before it, and the reply."""
    extends_with_tools: bool
    keeps_thoughts: bool
    """Whether thoughts stay in a reply that another message of a person follows."""
    ends: str
    """Text after a reply."""
    shows_tools: bool = True
    shows_thoughts: bool = True
    """Whether its models think before they speak, or their thoughts have a place."""
    takes_system: bool = True
    """False: it refuses a system message, or leaves it out."""
    own_system: str = ""
    """The system message that it writes where a conversation has none."""

    def ends_with(self, tokens: Iterable[str]) -> bool:
        """Whether it writes one of these tokens after a reply."""
        return self.ends.startswith(tuple(tokens))

    def notes(self, end_tokens: Collection[str]) -> Iterator[str]:
        """Notes for people before a run. `end_tokens`: those at which a reply ends."""
        if not self.extends:
            yield (
                "the chat template writes earlier turns otherwise than they were sampled: each "
                "turn is trained as a sequence of its own"
            )
        elif not self.extends_with_tools:
            yield (
                "the chat template moves the tools as a conversation grows: with tools, each turn "
                "is trained as a sequence of its own"
            )
        if not self.keeps_thoughts:
            yield (
                "the chat template leaves earlier thoughts out; policy.keep_thoughts=true (the "
                "default) keeps them, so that turns extend each other"
            )
        if self.extends and end_tokens and not self.ends_with(end_tokens):
            known = " and ".join(map(repr, end_tokens))
            yield (
                f"the chat template writes {self.ends[:20]!r} after a reply, and none of the "
                f"tokens that end one ({known}): each turn is trained as a sequence of its own"
            )


def read_template(folder: Path) -> TemplateReport | None:
    """Read a model's folder; None without a template, or where it cannot be rendered like this."""
    source = template_source(folder)
    return None if source is None else look_at(source, settings_of(folder))


def look_at(source: str, settings: Mapping[str, object]) -> TemplateReport | None:
    """`settings`: of the tokenizer, whose special tokens a template may name."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    failures = (TemplateError, TypeError, ValueError, KeyError, AttributeError)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals |= {"raise_exception": _refuse, "strftime_now": time.strftime}
    words = {name: token_text(settings, name) or "" for name in ("bos_token", "eos_token")}
    try:
        template = environment.from_string(source)

        def render(messages: list[dict[str, Any]], tools: object = None) -> str:
            return template.render(
                messages=messages, tools=tools, add_generation_prompt=True, **words
            )

        asked = {"role": "user", "content": "What is it?"}
        reply = {"role": "assistant", "content": _REPLY}
        thoughtful = {**reply, "reasoning_content": _THOUGHT}
        more = {"role": "user", "content": "And now?"}
        before, after = render([asked]), render([asked, reply, more])
        with_tools = [render(m, _TOOLS) for m in ([asked], [asked, reply, more])]
        in_line = render([asked, thoughtful])
        thought = render([asked, thoughtful, more])
    except failures:
        return None
    if _REPLY not in after:  # it reads contents of another form, those of pictures
        return None
    try:
        instructed = render([{"role": "system", "content": _SYSTEM}, asked])
    except failures:
        instructed = ""
    return TemplateReport(
        extends=_goes_on(before, after),
        extends_with_tools=_goes_on(*with_tools),
        keeps_thoughts=_THOUGHT in thought or _THOUGHT not in in_line,
        ends=after.rpartition(_REPLY)[2].lstrip(),
        shows_tools=with_tools[0] != before,
        shows_thoughts=_THOUGHT in in_line or "<think>" in source,
        takes_system=_SYSTEM in instructed,
        own_system=_only_in(before, instructed) if _SYSTEM in instructed else "",
    )


def template_source(folder: Path) -> str | None:
    """The template's text, wherever a model's folder has it."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = _object(folder / name).get("chat_template")
        if isinstance(template, list):  # several, by name
            named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
            template = named.get("default")
        if isinstance(template, str):
            return template
    return None


def settings_of(folder: Path) -> Mapping[str, object]:
    """The folder's tokenizer settings."""
    return _object(folder / "tokenizer_config.json")


def token_text(settings: Mapping[str, object], name: str) -> str | None:
    """A special token's text."""
    token = settings.get(name)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _goes_on(before: str, after: str) -> bool:
    """But for empty thoughts, which come and go: the gateway keeps what was sampled."""
    opened = _NO_THOUGHT.sub("", before)
    return after.startswith(opened) and _NO_THOUGHT.sub("", after.removeprefix(opened)).lstrip(
        "\n"
    ).startswith(_REPLY)


def _only_in(text: str, other: str) -> str:
    """The part of a text for which the other one has something else."""
    start = shared_prefix(text, other)
    rest, others = text[start:], other[start:]
    return rest[: len(rest) - shared_suffix(rest, others)].strip()


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _object(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
