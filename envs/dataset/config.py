"""The configuration of `ClawRL/Dataset-v0`, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from clawrl_gym.config.part import Part
from clawrl_gym.core.types import Comparison
from clawrl_gym.envs.dataset import GYM_CLASS, GYM_ID
from clawrl_gym.envs.kind import RegisteredEnvConfig

JUDGE = "judge"
"""Name of the reward that a model gives by comparing the replies of a group."""


class RewardConfig(Part):
    """One reward: its function and its weight; other keys are the function's own arguments."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    use: str = Field(min_length=1)
    """`exact`, `contains`, `number`, `regex`, `json`, `length`, a function of your own
    (package.module:name), or `judge`."""
    weight: float = Field(1.0, allow_inf_nan=False)
    """Factor of its value in the reward; 0: it is measured only."""

    name: str | None = Field(None, pattern=r"^[\w.-]+$")
    """Its name in metrics; None: the function's. Two rewards with one name need it."""

    @property
    def label(self) -> str:
        return self.name or self.use.rpartition(":")[2]

    @property
    def arguments(self) -> Mapping[str, object]:
        """Arguments that do not come from the row."""
        return self.model_extra or {}

    @property
    def is_judge(self) -> bool:
        return self.use == JUDGE

    @model_validator(mode="after")
    def _has_a_criterion(self) -> Self:
        """Refuse a judge that does not know what to compare."""
        if not self.is_judge:
            return self
        criterion = self.arguments.get("criterion")
        if set(self.arguments) != {"criterion"} or not isinstance(criterion, str) or not criterion:
            raise ValueError(
                f"got the reward judge with {dict(self.arguments)!r:.100}, expected a criterion in "
                'words: {use: judge, weight: 0.5, criterion: "the clearer explanation"}'
            )
        return self


def _listed(rewards: object) -> object:
    """A name, a reward, or a list of both, as a list of rewards."""
    each = rewards if isinstance(rewards, list | tuple) else [rewards]
    return [{"use": one} if isinstance(one, str) else one for one in each]


class DatasetEnvConfig(RegisteredEnvConfig):
    """`ClawRL/Dataset-v0`: rows of a data set, one reply each, and reward functions."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "dataset"
    task_keys: ClassVar[tuple[str, ...]] = ("data", "heldout")

    type: Literal["dataset"] = "dataset"
    id: str = GYM_ID
    data: str | None = None
    """A file (.jsonl, .json, .csv, .parquet), or hub:ORG/NAME, hub:ORG/NAME/SUBSET@SPLIT (the
    split is train unless it is named)."""
    reward: Annotated[
        tuple[RewardConfig, ...], BeforeValidator(_listed), Field(min_length=1)
    ] = (RewardConfig(use="exact"),)  # fmt: skip
    """A reward function, by name or import path, or several: [{use: PATH, weight: W}, ...]. The
    reward is the weighted sum of their values."""
    success: float = Field(1.0, allow_inf_nan=False)
    """A task counts as solved when the first reward function gives at least this value."""
    prompt: str | None = None
    """Column of the prompt, a text or messages; None: `prompt`, else `messages`."""
    answer: str = "answer"
    """Column of the right answer, which functions get as `answer`, and the oracle replies with."""
    heldout: Annotated[float, Field(gt=0, lt=1)] | str = 0.2
    """Share of the prompts that is held out, by their hash, or another file or data set. Rows with
    a column `split` say it themselves."""
    reward_timeout_s: float = Field(30.0, gt=0)
    """Seconds after which a reward function has failed."""
    example: bool = False
    """The system message shows another training row with its answer."""
    max_turns: int = Field(1, ge=1, le=1)
    """The first reply ends an episode."""

    @model_validator(mode="after")
    def _measures_something(self) -> Self:
        """Refuse what no held-out task could be measured by: there is no group to compare in."""
        if all(one.is_judge for one in self.reward):
            raise ValueError(
                "got env.reward with a judge alone, expected a function beside it, such as "
                "{use: length, weight: 0}: the judge compares the replies of a training group, and "
                "only functions measure held-out tasks"
            )
        names = [one.label for one in self.reward]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"got two rewards with the name {twice[0]!r}, expected names of their own: "
                "{use: PATH, name: NAME}"
            )
        return self

    @property
    def import_paths(self) -> Sequence[str]:
        return [one.use for one in self.reward if ":" in one.use]

    @property
    def comparisons(self) -> Sequence[Comparison]:
        return [
            Comparison(one.label, str(one.arguments["criterion"]), one.weight)
            for one in self.reward
            if one.is_judge
        ]
