"""Groups of one: verdicts against a running mean, never A = r by accident, never nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.types import Episode, Group, Sample, StopReason, TaskRef, Verdict
from clawrl_gym.dialogue.merging import Segment
from clawrl_gym.trainers.algorithms.advantage import MAX_BASELINE, RunningBaseline
from clawrl_gym.trainers.algorithms.binary import LEAST, Binary

TASK = TaskRef(None, 0, "train")


def group(number: int = 0) -> Group:
    return Group(number, TASK, [Episode("s", number, TASK, StopReason.TERMINATED, 0.0, 1)], 0)


def segment(*turns: int) -> Segment:
    """Two prompt tokens, then two sampled ones of each turn."""
    sampled = [turn for turn in turns for _ in range(2)]
    count = len(sampled)
    return Segment(
        ids_T=list(range(2 + count)),
        mask_T=[False] * 2 + [True] * count,
        logprobs_T=[0.0] * 2 + [-1.0] * count,
        versions_T=[-1] * 2 + [0] * count,
        turns_T=[-1, -1, *sampled],
        turn_indices=list(turns),
    )


def verdict(reward: float | None, kind: Any = "rule", weight: float = 1.0) -> Verdict:
    return Verdict(1, kind, None, reward, {}, 0.0, weight=weight)


def make_samples(
    binary: Binary, reward: float | None, kind: Any = "rule", weight: float = 1.0
) -> list[Sample]:
    return binary.make_samples(group(), [[segment(0)]], [{0: verdict(reward, kind, weight)}])


def advantage(binary: Binary, reward: float, kind: Any = "rule", weight: float = 1.0) -> float:
    (sample,) = make_samples(binary, reward, kind, weight)
    assert sample.strength == pytest.approx(weight)
    assert sample.advantages_T[:2] == [0.0, 0.0]
    assert len(set(sample.advantages_T[2:])) == 1
    return sample.advantages_T[2]


def test_the_first_verdict_is_compared_with_0_and_the_next_with_the_running_mean() -> None:
    binary = Binary(baseline_decay=0.9)
    assert advantage(binary, 1.0) == 1.0
    assert advantage(binary, 1.0) == pytest.approx(1 - 0.1)
    assert advantage(binary, -1.0) == pytest.approx(-1 - 0.19)
    assert advantage(binary, 1.0) == pytest.approx(1 - (0.9 * 0.19 - 0.1))


def test_weak_evidence_has_a_small_advantage_and_hardly_moves_the_mean() -> None:
    binary = Binary(baseline_decay=0.9)
    assert advantage(binary, 1.0, weight=0.1) == pytest.approx(0.1)
    assert advantage(binary, 1.0) == pytest.approx(1 - 0.1 * 0.1)
    praised = [advantage(Binary(), 1.0, weight=w) for w in (0.25, 1.0)]
    assert praised == [0.25, 1.0]
    content = Binary()
    for _ in range(3000):
        advantage(content, 1.0, weight=0.1)
    assert advantage(content, 1.0, weight=0.1) == pytest.approx(0.1 * LEAST)


def test_only_praise_ends_at_the_least_advantage_and_a_first_complaint_weighs_most() -> None:
    binary = Binary()
    praised = [advantage(binary, 1.0) for _ in range(400)]
    assert praised[-1] == pytest.approx(LEAST)
    assert advantage(binary, -1.0) == pytest.approx(-1 - MAX_BASELINE)


def test_a_mild_complaint_after_strong_ones_is_no_praise() -> None:
    binary = Binary()
    for _ in range(400):
        advantage(binary, -1.0)
    assert advantage(binary, -0.2) == pytest.approx(-LEAST)


def test_sources_do_not_share_a_baseline() -> None:
    binary = Binary()
    for _ in range(50):
        advantage(binary, -1.0, "feedback")
    assert advantage(binary, 1.0, "rule") == 1.0


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(-1, 1).filter(bool), min_size=1, max_size=60))
def test_a_clear_verdict_always_has_an_advantage(rewards: list[float]) -> None:
    binary = Binary()
    advantages = [advantage(binary, reward) for reward in rewards]
    assert all(LEAST <= abs(a) <= 1 + MAX_BASELINE for a in advantages)
    signs = [a > 0 for a, r in zip(advantages, rewards, strict=True) if abs(r) == 1]
    assert signs == [r > 0 for r in rewards if abs(r) == 1]


@pytest.mark.parametrize("reward", [0.0, None])
def test_neutral_verdicts_and_abstentions_make_no_sample(reward: float | None) -> None:
    binary = Binary()
    assert make_samples(binary, reward) == []
    assert binary.counts == {"neutral": 1}
    assert advantage(binary, 1.0) == 1.0  # and leave the baseline alone


def outcome(binary: Binary, reward: float | None, number: int = 0) -> list[Sample]:
    """An episode of which nobody judged a turn."""
    episode = Episode("s", number, TASK, StopReason.TERMINATED, reward, 1)
    return binary.make_samples(Group(number, TASK, [episode], 0), [[segment(0, 1)]])


def test_without_verdicts_the_outcome_is_compared_with_the_running_mean_of_outcomes() -> None:
    binary = Binary(baseline_decay=0.5)
    assert outcome(binary, 1.0)[0].advantages_T == [0, 0, 1.0, 1.0, 1.0, 1.0]
    assert outcome(binary, 0.0)[0].advantages_T[2:] == [-0.5] * 4
    assert outcome(binary, 1.0)[0].advantages_T[2:] == [0.75] * 4
    assert advantage(binary, 1.0) == 1.0  # of a verdict: another source


def test_an_outcome_of_0_is_a_failure_and_not_neutral() -> None:
    binary = Binary()
    outcome(binary, 1.0)
    (failed,) = outcome(binary, 0.0)
    assert failed.advantages_T[-1] < 0


def test_outcomes_of_any_size_are_centred() -> None:
    binary = Binary(baseline_decay=0.5)
    for _ in range(60):
        outcome(binary, 200.0)
    assert outcome(binary, 180.0)[0].advantages_T[-1] == pytest.approx(-20.0)


def test_the_first_outcome_of_0_and_an_infrastructure_failure_teach_nothing() -> None:
    binary = Binary()
    assert outcome(binary, 0.0) == outcome(binary, None) == []
    assert binary.counts == {"neutral": 2}


def test_neutral_verdicts_are_not_replaced_by_the_outcome() -> None:
    episode = Episode("s", 0, TASK, StopReason.TERMINATED, 1.0, 1)
    one = Group(0, TASK, [episode], 0)
    assert Binary().make_samples(one, [[segment(0)]], [{0: verdict(0.0)}]) == []


def test_each_turn_of_a_segment_has_its_own_advantage_and_the_unjudged_none() -> None:
    verdicts = {0: verdict(1.0, "feedback"), 2: verdict(-1.0)}
    (sample,) = Binary().make_samples(group(), [[segment(0, 1, 2)]], [verdicts])
    assert sample.advantages_T == [0, 0, 1.0, 1.0, 0, 0, -1.0, -1.0]
    assert sample.mask_T == [False, False, True, True, False, False, True, True]


def test_a_segment_without_known_logprobs_is_counted() -> None:
    unknown = Segment([1, 2], [False, False], [0.0, 0.0], [-1, -1], [-1, -1], [0])
    binary = Binary()
    assert binary.make_samples(group(), [[unknown]], [{0: verdict(1.0)}]) == []
    assert binary.counts == {"empty_segments": 1, "neutral": 1}


@settings(deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rule", "feedback"]),
            st.sampled_from([-1.0, 1.0]),
            st.sampled_from([0.1, 1.0]),
        )
    )
)
def test_replayed_rewards_give_the_baseline_that_was(
    rewards: list[tuple[str, float, float]],
) -> None:
    lived, replayed = Binary(), Binary()
    for kind, reward, weight in rewards:
        advantage(lived, reward, kind, weight)
    outcome(lived, 1.0)
    compared = lived.compared()
    assert compared == [*rewards, ("outcome", 1.0, 1.0)]
    assert lived.compared() == []
    replayed.replay(compared)
    assert replayed.compared() == []
    assert outcome(lived, 0.5) == outcome(replayed, 0.5)
    for kind in ("rule", "feedback"):
        assert advantage(lived, 1.0, kind) == advantage(replayed, 1.0, kind)


def test_a_baseline_stays_within_its_bounds() -> None:
    baseline = RunningBaseline(0.5)
    for reward, bound in ((1.0, MAX_BASELINE), (-1.0, -MAX_BASELINE)):
        for _ in range(200):
            baseline.add("rule", reward)
        assert baseline.of("rule") == bound
