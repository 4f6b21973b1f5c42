"""What a model's chat template does with earlier turns, found by rendering a short conversation.

Where a prompt goes on from the one before it and the reply, a conversation is one sequence to be
trained; else each turn is one of its own, and costs its whole prompt again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_THOUGHT, _REPLY = "a thought of its own", "a reply of its own"
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
    """Of one template; texts, not tokens."""

    extends: bool
    """The prompt after a reply begins with the prompt before it, and the reply."""
    extends_with_tools: bool
    keeps_thoughts: bool
    """Those of a reply that another message of a person follows."""
    ends: str
    """What stands after a reply."""

    def notes(self, eos: str | None) -> Iterator[str]:
        """What is worth knowing before a run."""
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
        if eos and self.ends and not self.ends.startswith(eos):
            yield (
                f"the chat template ends a reply with {self.ends[:20]!r}, and the tokenizer's "
                f"eos_token, at which vLLM stops, is {eos!r}: replies may not end by themselves"
            )


def read_template(folder: Path) -> TemplateReport | None:
    """Of a model's folder; None without a template, or where it cannot be rendered like this."""
    source = template_source(folder)
    return None if source is None else look_at(source, settings_of(folder))


def look_at(source: str, settings: Mapping[str, object]) -> TemplateReport | None:
    """`settings`: of the tokenizer, whose special tokens a template may name."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

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
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError):
        return None
    if _REPLY not in after:  # it reads contents of another form, those of pictures
        return None
    return TemplateReport(
        extends=_goes_on(before, after),
        extends_with_tools=_goes_on(*with_tools),
        keeps_thoughts=_THOUGHT in thought or _THOUGHT not in in_line,
        ends=after.rpartition(_REPLY)[2].lstrip("\n"),
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
    """What the folder says of its tokenizer."""
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


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _object(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
