"""The configuration of `ClawRL/Conversation-v0`, and what follows from it."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from clawrl_gym.core.types import Split
from clawrl_gym.envs.conversation import GYM_CLASS, GYM_ID
from clawrl_gym.envs.kind import RegisteredEnvConfig


class ConversationEnvConfig(RegisteredEnvConfig):
    """`ClawRL/Conversation-v0`: a user with a wish that is not said, a problem, and tools."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "conversation"
    tool_use: ClassVar[Literal["none", "some", "all"]] = "some"
    has_people: ClassVar[bool] = True

    type: Literal["conversation"] = "conversation"
    id: str = GYM_ID
    source: Literal["simulated", "live"] = "simulated"
    """`simulated`: personas; `live`: the sessions of a running gateway, as episodes."""
    tasks: Literal["personas", "plain", "composed"] = "personas"
    """`personas`: one problem and a wish that is not said; `plain`: a general question and a plain
    wish about form, for pretrained models; `composed`: several things asked for in one
    conversation, with a number of replies of its own."""
    persona: str = "student"
    """Who talks: student, teacher, or one of the others (see
    envs/showcase/conversation/personas.py); with tasks=plain: capitals, brief, cheerful or asking
    (envs/showcase/conversation/plain.py)."""
    wording: Split = "heldout"
    """In which words users talk: `train` are sentences that the shipped policies were supervised
    on; `heldout` are others for the same wishes, which they have never been shown. Problems are
    told alike in both."""
    hint: Literal["none", "own", "other", "another", "random"] = "none"
    """Text behind the first message, as a teacher would read it: nothing, the user's own complaint,
    the same wish in the other wording, another user's wish, or random words. For measuring what a
    policy makes of hints (python -m clawrl_gym.teacher_probe)."""
    hint_form: str = "\n\n[hint]\nThe user said: {words}"
    """Format of the hint; {words} stands for its text."""
    families: list[str] | None = None
    """Only these kinds of tasks (ask, homework, read, save; of composed ones see
    envs/showcase/conversation/composed/families.py); None takes all."""
    user: Literal["scripted", "model"] = "scripted"
    """`model`: the persona's sentences come from an OpenAI-compatible model."""
    user_base_url: str | None = None
    """Base URL of the server of that model; required with user=model."""
    user_key: str | None = None
    user_model: str = "policy"
    user_timeout_s: float = Field(60.0, gt=0)
    gateway_url: str | None = None
    """source=live: base URL of the gateway whose sessions are the episodes."""
    gateway_key: str | None = None
    live_timeout_s: float = Field(600.0, gt=0)
    """source=live: how long reset and step wait for a user."""
    max_turns: int = Field(6, ge=1)
    """Replies after which an episode is truncated; composed tasks bring their own number."""

    @model_validator(mode="after")
    def _only_personas_are_hinted(self) -> Self:
        if self.hint != "none" and (self.source != "simulated" or self.tasks == "composed"):
            raise ValueError(
                f"got env.hint={self.hint} with env.source={self.source} env.tasks={self.tasks}, "
                "expected users whose wish is known: simulated ones, and no composed tasks"
            )
        return self
