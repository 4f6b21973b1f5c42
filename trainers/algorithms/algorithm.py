"""Base of all algorithms: a subclass gives each turn its term; the base puts it on tokens.

An algorithm of your own is a class that extends `Algorithm` and writes `weights`; take it with
`trainer.algorithm=my_pkg.module:Mine`. One number for a turn weighs all its tokens; a list weighs
each of them.

An algorithm sees rewards, verdicts, distillation targets and segments and returns samples; it knows
no model and no environment, and the learner knows no algorithm. Only turns with a term are trained
on, and only their tokens are counted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.errors import TrainerError, boundary
from clawrl_gym.core.plugins import ALGORITHMS
from clawrl_gym.core.types import Compared, DistillTarget, Episode, Group, Sample, Verdict

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment

Verdicts = Mapping[int, Verdict]
"""Verdicts on the turns of one episode, by `Turn.index`."""
Prompts = Mapping[int, tuple[list[int], ...]]
"""Prompts of one episode, by `Turn.index`: the turn's prompt with a hint in it, for each candidate
hint. With trainer.distillation.baseline=control the last one holds a hint about something else."""


Weight = float | Sequence[float]
"""The same for all sampled tokens of a turn, or one number for each of them, in order."""


@dataclass(frozen=True, slots=True)
class TurnWeights:
    """Contribution of one turn to the loss."""

    advantage: Weight = 0.0
    """Weight of the policy-gradient term on its tokens; weak evidence is already included."""
    distill: Weight = 0.0
    """Weight of the distillation term on its tokens."""
    strength: float = 1.0
    """Strength of the evidence behind the advantage, in (0, 1]. Adam steps equally far whatever the
    size of all advantages, so an update of weak evidence alone gets a smaller learning rate."""


WeightsByTurn = dict[int, TurnWeights]
"""Terms of one episode, by `Turn.index`. A turn that is not there is context only; one whose
weights are 0 still counts in the mean over tokens."""


class Algorithm(ABC):
    """Base of all algorithms."""

    needs_hints: bool = False
    """Verdicts must come with hints, and `make_samples` gets prompts that hold them."""
    reward_weight: float = 1.0
    """Weight of rewards in its samples; 0: it follows hints alone."""
    compares_episodes: bool = True
    """Its advantages compare the rewards of a group's episodes; False: each turn has its own."""
    counts: Counter[str]
    """Counts of groups so far, by name: `used`, and why the others were left out."""

    def __init__(self) -> None:
        self.counts = Counter()

    @classmethod
    def has_rewards(cls, config: TrainerConfig) -> bool:
        """Whether its samples carry advantages: the loss then has a policy-gradient term."""
        return cls.reward_weight > 0

    @classmethod
    def distils(cls, config: TrainerConfig) -> bool:
        """Whether its samples carry distillation weights: a teacher is then asked."""
        return cls.needs_hints

    @abstractmethod
    def weights(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts],
        prompts_G: Sequence[Prompts],
    ) -> list[WeightsByTurn]:
        """Weights of each episode's turns; all lists belong to `group.episodes_G`, in order."""

    def make_samples(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts] | None = None,
        prompts_G: Sequence[Prompts] | None = None,
    ) -> list[Sample]:
        """Samples of a whole group; a group that teaches nothing gives none and is counted."""
        all_verdicts_G: Sequence[Verdicts] = verdicts_G or [{} for _ in segments_G]
        all_prompts_G: Sequence[Prompts] = prompts_G or [{} for _ in segments_G]
        with boundary(TrainerError, f"{type(self).__name__}.weights"):
            weights_G = self.weights(group, segments_G, all_verdicts_G, all_prompts_G)
        _check_weights(weights_G, len(segments_G), type(self).__name__)
        samples = []
        for episode, segments, weights, prompts in zip(
            group.episodes_G, segments_G, weights_G, all_prompts_G, strict=True
        ):
            for segment in segments:
                if not any(segment.mask_T):
                    self.counts["empty_segments"] += 1
                elif weights.keys() & set(segment.turn_indices):
                    samples.append(make_sample(group, episode, segment, weights, prompts))
        return samples

    def compared(self) -> list[Compared]:
        """Rewards added to its running means since the last call, to store with the group."""
        return []

    def replay(self, rewards: Iterable[Compared]) -> None:  # noqa: B027 (most need none)
        """Replay what an earlier process compared, in its order, so that terms are as they were."""


def _check_weights(weights_G: object, episodes: int, name: str) -> None:
    """Raises TrainerError for anything but one `WeightsByTurn` for each episode."""
    if not isinstance(weights_G, list) or len(weights_G) != episodes:
        count = f" of {len(weights_G)}" if isinstance(weights_G, list) else ""
        raise TrainerError(
            f"got a {type(weights_G).__name__}{count} of {name}.weights, expected a list of "
            f"{episodes}: the weights of each episode of the group"
        )
    for weights in weights_G:
        if not isinstance(weights, dict) or not all(
            isinstance(t, TurnWeights) for t in weights.values()
        ):
            raise TrainerError(
                f"got {weights!r:.200} as the weights of an episode of {name}, expected a dict of "
                "TurnWeights by the index of the turn"
            )


def make_sample(
    group: Group,
    episode: Episode,
    segment: Segment,
    weights: Mapping[int, TurnWeights],
    prompts: Prompts | None = None,
) -> Sample:
    """A sample whose sampled tokens carry the term of their turn; other turns are context only."""
    inside = {turn: weights[turn] for turn in segment.turn_indices if turn in weights}
    targets, distill_T = _distill_targets(segment, inside, prompts or {})
    advantages_T = _on_tokens(
        segment, {turn: weight.advantage for turn, weight in inside.items()}, "advantage"
    )
    strength = _strength(segment, inside, advantages_T, distill_T)
    return Sample(
        session_id=episode.session_id,
        group_id=group.id,
        ids_T=segment.ids_T,
        mask_T=[
            sampled and turn in inside
            for sampled, turn in zip(segment.mask_T, segment.turns_T, strict=True)
        ],
        logprobs_T=segment.logprobs_T,
        versions_T=segment.versions_T,
        advantages_T=advantages_T,
        reward=0.0 if episode.reward is None else episode.reward,
        distill_T=distill_T,
        distill_targets=targets,
        pictures=segment.pictures,
        strength=strength,
        temperature=segment.temperature,
    )


def _strength(
    segment: Segment, weights: WeightsByTurn, advantages_T: list[float], distill_T: list[float]
) -> float:
    """Strength of the whole sample; distilled tokens count as strong."""
    for turn, weight in weights.items():
        if not 0 < weight.strength <= 1:
            raise TrainerError(
                f"the algorithm gave turn {turn} the strength {weight.strength!r}, expected one in "
                "(0, 1]"
            )
    if all(weight.strength == 1 for weight in weights.values()):
        return 1.0
    distilled = sum(map(abs, distill_T))
    sizes_T = [abs(advantage) for advantage in advantages_T]
    strong = sum(
        size * weights[turn].strength
        for size, turn in zip(sizes_T, segment.turns_T, strict=True)
        if turn in weights
    )
    whole = sum(sizes_T) + distilled
    return (strong + distilled) / whole if whole else 1.0


def _distill_targets(
    segment: Segment, weights: WeightsByTurn, prompts: Prompts
) -> tuple[tuple[DistillTarget, ...], list[float]]:
    """Lessons for a teacher, one for each turn that is distilled, and the weights of its tokens."""
    distilled = {
        turn: weight.distill for turn, weight in weights.items() if _is_any(weight.distill)
    }
    if not distilled:
        return (), []
    targets = []
    for turn in distilled:
        start, length = segment.spans[turn]
        pictures = segment.picture_counts.get(turn, 0)
        targets.append(DistillTarget(start, length, prompts[turn], pictures))
    return tuple(targets), _on_tokens(segment, distilled, "distill")


def _is_any(weight: Weight) -> bool:
    return bool(weight) if isinstance(weight, int | float) else any(weight)


def _on_tokens(segment: Segment, weights: Mapping[int, Weight], name: str) -> list[float]:
    """The weights of turns as a stream of the segment; 0 where the mask is False."""
    stream_T = [0.0] * len(segment.ids_T)
    for at, turn in enumerate(segment.turns_T):
        weight = weights.get(turn, 0.0)
        if isinstance(weight, int | float):
            stream_T[at] = weight
    for turn, weight in weights.items():
        if isinstance(weight, int | float):
            continue
        start, length = segment.spans[turn]
        if len(weight) != length:
            raise TrainerError(
                f"the algorithm gave {len(weight)} numbers as {name} of turn {turn}, expected one "
                f"number, or one for each of its {length} sampled tokens"
            )
        for at, number in enumerate(weight, start):
            if segment.turns_T[at] == turn:  # else its log-prob is not known
                stream_T[at] = float(number)
    if not all(map(math.isfinite, stream_T)):
        raise TrainerError(
            f"the algorithm gave {dict(weights)!r:.200} as {name} of its turns, expected finite "
            "numbers: one that is not would spoil every weight"
        )
    return stream_T


def build_algorithm(config: TrainerConfig, group_size: int | None) -> Algorithm:
    """The configured algorithm, for groups of this size; None: live conversations, turn by turn.

    A class of its own is built by its `from_config(config, group_size)`, or else with its options.
    """
    algorithm: Algorithm = ALGORITHMS.resolve(config.algorithm).build(config, group_size)
    return algorithm
