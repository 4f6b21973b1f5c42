"""The configuration of `ClawRL/Text-v0`, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from clawrl_gym.envs.kind import RegisteredEnvConfig
from clawrl_gym.envs.text import GYM_CLASS, GYM_ID

_OWN_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "length": frozenset({"lengths", "heldout_lengths"}),
        "format": frozenset({"families"}),
        "reverse_text": frozenset({"families"}),
        "reasoning_gym": frozenset({"families", "family_options", "system_prompt"}),
    }
)
"""The keys that belong to one value of `tasks`."""


class TextEnvConfig(RegisteredEnvConfig):
    """`ClawRL/Text-v0`: a request, one reply, and a grader."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "text"

    type: Literal["text"] = "text"
    id: str = GYM_ID
    tasks: str = "length"
    """`length`: a reply of about so many characters; `format`: in the format that is asked for;
    `reverse_text`: a text backwards; `reasoning_gym`: tasks of that package."""
    families: list[str] | None = None
    """Only these families; None takes all, of reasoning_gym those with short answers."""
    family_options: dict[str, dict[str, object]] = Field(default_factory=dict)
    """tasks=reasoning_gym: options of the package's data sets by family, such as
    {chain_sum: {max_terms: 3}}."""
    system_prompt: str = "direct"
    """tasks=reasoning_gym: which of the package's system prompts."""
    lengths: list[int] | None = None
    """tasks=length: how many characters training and held-out tasks ask for; None:
    [30,60,120,240]."""
    heldout_lengths: list[int] | None = None
    """tasks=length: how many characters held-out tasks ask for besides; None: [45,90,180]."""
    example: bool = False
    """The system message shows another request of the same family with a right reply."""
    max_turns: int = Field(1, ge=1, le=1)
    """The first reply ends an episode."""

    @model_validator(mode="after")
    def _has_no_key_of_other_tasks(self) -> Self:
        """Refuse keys that would change nothing."""
        if self.tasks not in _OWN_KEYS:
            raise ValueError(
                f"got env.tasks={self.tasks!r}, expected one of {', '.join(_OWN_KEYS)}; for "
                "rows of your own take env=dataset env.data=FILE env.reward=package.module:name"
            )
        own = _OWN_KEYS[self.tasks]
        others = frozenset[str]().union(*_OWN_KEYS.values()) - own
        usual = {name: field.get_default(call_default_factory=True)
                 for name, field in type(self).model_fields.items()}  # fmt: skip
        changed = sorted(name for name in others if getattr(self, name) != usual[name])
        if changed:
            raise ValueError(
                f"got env.{changed[0]} with env.tasks={self.tasks!r}, which has no such key"
            )
        return self
