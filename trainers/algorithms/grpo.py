"""GRPO: an episode's advantage is its reward compared with the other episodes of its group.

Every turn of an episode carries the episode's advantage, and its process term (see `advantage.py`)
where single turns were judged. Episodes without a reward (infrastructure failures) take no part,
whatever verdicts their turns have; a group without any difference teaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.types import Compared, Group
from clawrl_gym.trainers.algorithms.advantage import (
    ProcessTerm,
    ProcessTerms,
    group_advantages,
    is_constant,
)
from clawrl_gym.trainers.algorithms.algorithm import (
    Algorithm,
    Prompts,
    TurnWeights,
    Verdicts,
    WeightsByTurn,
)
from clawrl_gym.trainers.algorithms.binary import Binary

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment


class Grpo(Algorithm):
    """Group-relative policy optimization.

    `counts`: `used` groups, of them `process_only` (equal rewards, different verdicts);
    `zero_variance` groups (nothing differs), `too_small` groups (fewer than two rewarded
    episodes), `empty_segments` (no token with a known log-prob).
    """

    def __init__(
        self,
        normalize_std: bool = True,
        process_weight: float = 1.0,
        baseline_decay: float = 0.95,
        leave_one_out: bool = False,
    ) -> None:
        super().__init__()
        self.normalize_std = normalize_std
        self.leave_one_out = leave_one_out
        self._process = ProcessTerms(process_weight, normalize_std, baseline_decay)

    @classmethod
    def from_config(cls, config: TrainerConfig, group_size: int | None) -> Algorithm:
        """The algorithm for this size; a group of one can only be compared with a running mean."""
        if group_size is None or group_size < 2:
            return Binary.from_config(config, group_size)
        return cls(
            config.normalize_std,
            config.process_weight,
            config.baseline_decay,
            config.leave_one_out,
        )

    def weights(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts],
        prompts_G: Sequence[Prompts],
    ) -> list[WeightsByTurn]:
        """Terms of all turns of the rewarded episodes, or none when nothing tells these apart.

        An advantage may be 0: the turn still counts in the mean over the batch's tokens.
        """
        weights_G: list[WeightsByTurn] = [{} for _ in segments_G]
        played = zip(group.episodes_G, segments_G, verdicts_G, strict=True)
        rewarded = [at for at, (episode, _, _) in enumerate(played) if episode.reward is not None]
        rewards_G = [group.episodes_G[at].reward or 0.0 for at in rewarded]
        if len(rewards_G) < 2:
            self.counts["too_small"] += 1
            return weights_G
        process_G = self._process.of(
            [segments_G[at] for at in rewarded], [verdicts_G[at] for at in rewarded], group.task.env
        )
        if is_constant(rewards_G):
            if not any(weight.advantage for weights in process_G for weight in weights.values()):
                self.counts["zero_variance"] += 1
                return weights_G
            self.counts["process_only"] += 1
        self.counts["used"] += 1
        advantages_G = group_advantages(rewards_G, self.normalize_std, self.leave_one_out)
        for at, advantage, process in zip(rewarded, advantages_G, process_G, strict=True):
            turns = [turn for segment in segments_G[at] for turn in segment.turn_indices]
            weights_G[at] = {turn: _weights(advantage, process.get(turn)) for turn in turns}
        return weights_G

    def compared(self) -> list[Compared]:
        return self._process.baseline.take_news()

    def replay(self, rewards: Iterable[Compared]) -> None:
        self._process.baseline.replay(rewards)


def _weights(outcome: float, process: ProcessTerm | None) -> TurnWeights:
    """Both terms together; an outcome is strong evidence."""
    if process is None:
        return TurnWeights(outcome)
    size = abs(outcome) + abs(process.advantage)
    strong = abs(outcome) + abs(process.advantage) * process.strength
    return TurnWeights(outcome + process.advantage, strength=strong / size if size else 1.0)
