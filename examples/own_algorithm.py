"""An algorithm of one's own: what each turn, or each token, brings to the loss.

python -m clawrl_gym.train env=terminal trainer.algorithm=examples.own_algorithm:EarlyTokens \\
    trainer.options.decay=0.9 trainer.steps=3

The learner is blind to it: an algorithm gives each turn one number, or one number a sampled token.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

import clawrl_gym as cg


class EarlyTokens(cg.Algorithm):
    """Reward less the group's mean, worth less with each token of a reply.

    A_t = (r - mean(r_G)) * decay^t      for token t of a turn
    """

    class Options(BaseModel):
        """Checked before anything starts, like every key of the configuration."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        decay: float = Field(0.98, gt=0, le=1)
        """Decay of the advantage from one token of a turn to the next."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._decay = options.decay

    def weights(
        self,
        group: cg.Group,
        segments_G: list[list[cg.Segment]],
        verdicts_G: Sequence[cg.Verdicts],
        prompts_G: Sequence[cg.Prompts],
    ) -> list[cg.WeightsByTurn]:
        """Terms by turn of each episode; an episode without a reward brings nothing."""
        rewards = [episode.reward for episode in group.episodes_G if episode.reward is not None]
        if len(set(rewards)) < 2:
            self.counts["zero_variance"] += 1
            return [{} for _ in segments_G]
        self.counts["used"] += 1
        mean = sum(rewards) / len(rewards)
        return [
            {} if episode.reward is None else self._episode_weights(episode.reward - mean, segments)
            for episode, segments in zip(group.episodes_G, segments_G, strict=True)
        ]

    def _episode_weights(self, advantage: float, segments: list[cg.Segment]) -> cg.WeightsByTurn:
        return {
            turn: cg.TurnWeights(advantage=[advantage * self._decay**t for t in range(length)])
            for segment in segments
            for turn, (_, length) in segment.spans.items()
        }
