"""GRPO stamps an episode's advantage on all its sampled tokens; constant groups teach nothing."""

from __future__ import annotations

import pytest

from clawrl_gym.rollout.merge import Segment
from clawrl_gym.trainers.grpo import Grpo
from clawrl_gym.types import Episode, Group, StopReason, TaskRef

TASK = TaskRef(id="copy", seed=1, split="train")


def episode(number: int, reward: float | None) -> Episode:
    reason = StopReason.TERMINATED if reward is not None else StopReason.ENV_ERROR
    return Episode(f"s{number}", 7, TASK, reason, reward, turns=1)


def group(rewards: list[float | None]) -> Group:
    return Group(7, TASK, [episode(n, reward) for n, reward in enumerate(rewards)], version=3)


def segment(known: bool = True) -> Segment:
    return Segment(
        ids_T=[5, 6, 7, 8],
        mask_T=[False, known, False, known],
        logprobs_T=[0.0, -1.0, 0.0, -2.0] if known else [0.0] * 4,
        versions_T=[-1, 3, -1, 4] if known else [-1] * 4,
        turn_indices=[0, 1],
    )


def test_every_sampled_token_carries_the_episodes_advantage() -> None:
    samples = Grpo(normalize_std=False).stamp(group([1.0, 0.0]), [[segment()], [segment()]])
    assert [s.advantages_T for s in samples] == [[0.0, 0.5, 0.0, 0.5], [0.0, -0.5, 0.0, -0.5]]
    assert [s.session_id for s in samples] == ["s0", "s1"]
    assert [s.reward for s in samples] == [1.0, 0.0]
    assert samples[0].group_id == 7
    assert samples[0].oldest_version == 3


def test_all_segments_of_an_episode_share_its_advantage() -> None:
    samples = Grpo(normalize_std=False).stamp(
        group([1.0, 0.0]), [[segment(), segment()], [segment()]]
    )
    assert [s.advantages_T[1] for s in samples] == [0.5, 0.5, -0.5]


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_group_of_equal_rewards_gives_nothing_and_is_counted(reward: float) -> None:
    grpo = Grpo()
    assert grpo.stamp(group([reward] * 4), [[segment()]] * 4) == []
    assert grpo.counts == {"zero_variance": 1}


def test_infrastructure_failures_take_no_part() -> None:
    with_failure = Grpo().stamp(group([1.0, None, 0.0]), [[segment()]] * 3)
    without = Grpo().stamp(group([1.0, 0.0]), [[segment()]] * 2)
    assert [s.advantages_T for s in with_failure] == [s.advantages_T for s in without]
    assert [s.session_id for s in with_failure] == ["s0", "s2"]


def test_a_failure_beside_equal_rewards_does_not_make_a_difference() -> None:
    grpo = Grpo()
    assert grpo.stamp(group([1.0, None, 1.0]), [[segment()]] * 3) == []
    assert grpo.counts["zero_variance"] == 1


def test_one_rewarded_episode_is_no_group() -> None:
    grpo = Grpo()
    assert grpo.stamp(group([1.0, None]), [[segment()], []]) == []
    assert grpo.counts == {"too_small": 1}


def test_a_segment_without_known_logprobs_is_left_out_but_its_reward_counts() -> None:
    grpo = Grpo(normalize_std=False)
    samples = grpo.stamp(group([1.0, 0.0]), [[segment(known=False)], [segment()]])
    assert [s.advantages_T[1] for s in samples] == [-0.5]
    assert grpo.counts == {"used": 1, "empty_segments": 1}


def test_segments_must_belong_to_the_episodes() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        Grpo().stamp(group([1.0, 0.0]), [[segment()]])
