"""Abilities of a model by its files: for a dry run, and for the demands of an environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.inference.models.chat_template import TemplateReport, read_template
from clawrl_gym.inference.models.end_tokens import end_tokens
from clawrl_gym.inference.models.resolve import context_length, sees

_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities of a local model."""

    template: TemplateReport | None
    """Report on the chat template; None: it cannot be rendered with plain texts."""
    pictures: bool
    context: int | None
    """Tokens; None where its configuration is silent."""
    end_tokens: tuple[str, ...]
    """Tokens at which a reply ends."""

    @property
    def shows_tools(self) -> bool:
        """Whether it shows tools; assumed for a template that cannot be read here."""
        return self.template is None or self.template.shows_tools

    @property
    def takes_system(self) -> bool:
        return self.template is None or self.template.takes_system

    def words(self) -> Iterator[str]:
        """For people, a line each."""
        length = "unknown" if self.context is None else f"{self.context:,} tokens"
        rest = f"pictures: {_yes(self.pictures)}; context: {length}"
        if self.template is None:
            yield f"{rest}; its chat template cannot be read here"
            return
        tools = "yes" if self.shows_tools else "no (its chat template shows none)"
        system = "yes" if self.takes_system else "no (its chat template refuses or leaves it out)"
        thinking = _yes(self.template.shows_thoughts)
        yield f"tools: {tools}; thinking: {thinking}; {rest}; system message: {system}"
        if self.template.own_system:
            own = " ".join(self.template.own_system.split())
            shown = own if len(own) <= _SHOWN else own[:_SHOWN] + "..."
            yield f"its chat template writes a system message where there is none: {shown!r}"
        if self.end_tokens:
            yield f"a reply ends with {' or '.join(map(repr, self.end_tokens))}"


def abilities_of(folder: Path) -> Abilities | None:
    """Abilities of a folder's model; None where there is none."""
    if not (folder / "config.json").is_file():
        return None
    return Abilities(
        read_template(folder), sees(folder), context_length(folder), end_tokens(folder)
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
