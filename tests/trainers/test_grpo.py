"""GRPO: an episode's advantage on all its sampled tokens, verdicts on those of their turn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Episode, Group, StopReason, TaskRef, Verdict
from clawrl_gym.dialogue.merging import Segment
from clawrl_gym.trainers.algorithms.advantage import group_advantages
from clawrl_gym.trainers.algorithms.grpo import Grpo

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
        turns_T=[-1, 0, -1, 1] if known else [-1] * 4,
        turn_indices=[0, 1],
    )


def test_every_sampled_token_carries_the_episodes_advantage() -> None:
    samples = Grpo(normalize_std=False).make_samples(group([1.0, 0.0]), [[segment()], [segment()]])
    assert [s.advantages_T for s in samples] == [[0.0, 0.5, 0.0, 0.5], [0.0, -0.5, 0.0, -0.5]]
    assert [s.session_id for s in samples] == ["s0", "s1"]
    assert [s.reward for s in samples] == [1.0, 0.0]
    assert samples[0].group_id == 7
    assert samples[0].oldest_version == 3


def test_all_segments_of_an_episode_share_its_advantage() -> None:
    samples = Grpo(normalize_std=False).make_samples(
        group([1.0, 0.0]), [[segment(), segment()], [segment()]]
    )
    assert [s.advantages_T[1] for s in samples] == [0.5, 0.5, -0.5]


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_group_of_equal_rewards_gives_nothing_and_is_counted(reward: float) -> None:
    grpo = Grpo()
    assert grpo.make_samples(group([reward] * 4), [[segment()]] * 4) == []
    assert grpo.counts == {"zero_variance": 1}


def test_infrastructure_failures_take_no_part() -> None:
    with_failure = Grpo().make_samples(group([1.0, None, 0.0]), [[segment()]] * 3)
    without = Grpo().make_samples(group([1.0, 0.0]), [[segment()]] * 2)
    assert [s.advantages_T for s in with_failure] == [s.advantages_T for s in without]
    assert [s.session_id for s in with_failure] == ["s0", "s2"]


def test_a_failure_beside_equal_rewards_does_not_make_a_difference() -> None:
    grpo = Grpo()
    assert grpo.make_samples(group([1.0, None, 1.0]), [[segment()]] * 3) == []
    assert grpo.counts["zero_variance"] == 1


def test_one_rewarded_episode_is_no_group() -> None:
    grpo = Grpo()
    assert grpo.make_samples(group([1.0, None]), [[segment()], []]) == []
    assert grpo.counts == {"too_small": 1}


def test_a_segment_without_known_logprobs_is_left_out_but_its_reward_counts() -> None:
    grpo = Grpo(normalize_std=False)
    samples = grpo.make_samples(group([1.0, 0.0]), [[segment(known=False)], [segment()]])
    assert [s.advantages_T[1] for s in samples] == [-0.5]
    assert grpo.counts == {"used": 1, "empty_segments": 1}


def test_segments_must_belong_to_the_episodes() -> None:
    with pytest.raises(TrainerError, match="argument 2 is shorter"):
        Grpo().make_samples(group([1.0, 0.0]), [[segment()]])


# Verdicts on single turns.


def long_segment(*turns: int, unknown: int | None = None) -> Segment:
    """One prompt token, then two sampled ones of each turn."""
    sampled = [turn for turn in turns for _ in range(2)]
    mask_T = [False, *(turn != unknown for turn in sampled)]
    return Segment(
        ids_T=list(range(len(mask_T))),
        mask_T=mask_T,
        logprobs_T=[-1.0 if known else 0.0 for known in mask_T],
        versions_T=[0 if known else -1 for known in mask_T],
        turns_T=[turn if known else -1 for turn, known in zip([-1, *sampled], mask_T, strict=True)],
        turn_indices=list(turns),
    )


def said(**values: float | None) -> dict[int, Verdict]:
    """Verdicts by turn: `said(t0=1, t2=None)`."""
    return {int(name[1:]): Verdict(0, "rule", None, v, {}, 0.0) for name, v in values.items()}


def test_process_terms_are_those_computed_by_hand() -> None:
    """Turn 0: v = (1, -1, 1), mean 1/3, std 2/sqrt(3). Turn 1: v = (-1, 1), mean 0, std sqrt(2)."""
    samples = Grpo(normalize_std=True, process_weight=0.5).make_samples(
        group([1.0, 0.0, 0.5]),
        [[long_segment(0, 1)], [long_segment(0, 1)], [long_segment(0)]],
        [said(t0=1, t1=-1), said(t0=-1, t1=1), said(t0=1)],
    )
    std0, std1 = 2 / math.sqrt(3) + 1e-6, math.sqrt(2) + 1e-6
    outcome = 0.5 / (0.5 + 1e-6)
    expected = [
        [0.0] + [outcome + 0.5 * (2 / 3) / std0] * 2 + [outcome - 0.5 / std1] * 2,
        [0.0] + [-outcome - 0.5 * (4 / 3) / std0] * 2 + [-outcome + 0.5 / std1] * 2,
        [0.0] + [0.5 * (2 / 3) / std0] * 2,
    ]
    for sample, advantages_T in zip(samples, expected, strict=True):
        assert sample.advantages_T == pytest.approx(advantages_T)


def test_without_std_verdicts_are_centred_only_like_the_outcome() -> None:
    samples = Grpo(normalize_std=False, process_weight=1.0).make_samples(
        group([1.0, 0.0]), [[long_segment(0)], [long_segment(0)]], [said(t0=1), said(t0=0)]
    )
    assert [s.advantages_T for s in samples] == [[0.0, 1.0, 1.0], [0.0, -1.0, -1.0]]


def test_an_abstention_adds_no_term_and_is_not_a_0() -> None:
    segments_G = [[long_segment(0)]] * 3
    outcome = Grpo().make_samples(group([1.0, 0.0, 0.0]), segments_G)
    samples = Grpo().make_samples(
        group([1.0, 0.0, 0.0]), segments_G, [said(t0=1), said(t0=-1), said(t0=None)]
    )
    assert samples[2].advantages_T == outcome[2].advantages_T
    two = Grpo().make_samples(group([1.0, 0.0, 0.0]), segments_G, [said(t0=1), said(t0=-1), {}])
    assert [s.advantages_T for s in samples] == [s.advantages_T for s in two]


def test_a_verdict_without_fellows_is_compared_with_the_running_baseline() -> None:
    grpo = Grpo(normalize_std=False, baseline_decay=0.5)
    segments_G = [[long_segment(0, 1)], [long_segment(0)]]
    first = grpo.make_samples(group([1.0, 0.0]), segments_G, [said(t1=1), {}])
    again = grpo.make_samples(group([1.0, 0.0]), segments_G, [said(t1=1), {}])
    assert first[0].advantages_T == [0.0, 0.5, 0.5, 1.5, 1.5]
    assert again[0].advantages_T == [0.0, 0.5, 0.5, 1.0, 1.0]


def test_a_neutral_verdict_after_complaints_is_no_praise() -> None:
    grpo = Grpo(normalize_std=False, baseline_decay=0.5)
    segments_G = [[long_segment(0, 1)], [long_segment(0)]]
    for _ in range(4):
        grpo.make_samples(group([1.0, 0.0]), segments_G, [said(t1=-1), {}])
    (neutral, _) = grpo.make_samples(group([1.0, 0.0]), segments_G, [said(t1=0), {}])
    assert neutral.advantages_T == [0.0, 0.5, 0.5, 0.5, 0.5]


def test_a_weak_verdict_adds_little_and_the_strength_is_of_what_is_brought() -> None:
    segments_G = [[long_segment(0, 1)], [long_segment(0, 1)]]
    weak = [{at: replace(v, weight=0.1) for at, v in said(t0=v).items()} for v in (1, -1)]
    first, second = Grpo(normalize_std=False).make_samples(group([1.0, 0.0]), segments_G, weak)
    assert first.advantages_T == pytest.approx([0.0, 0.6, 0.6, 0.5, 0.5])
    assert second.advantages_T == pytest.approx([0.0, -0.6, -0.6, -0.5, -0.5])
    turn = (0.5 + 0.1 * 0.1) / 0.6
    assert first.strength == pytest.approx((0.6 * turn + 0.5) / 1.1)
    (alone, _) = Grpo(normalize_std=False).make_samples(group([1.0, 1.0]), segments_G, weak)
    assert alone.strength == pytest.approx(0.1), "equal outcomes bring nothing"


def test_a_weak_verdict_without_fellows_is_weighted_too() -> None:
    grpo = Grpo(normalize_std=False, baseline_decay=0.5)
    segments_G = [[long_segment(0)], [long_segment(0)]]
    weak = {at: replace(v, weight=0.1) for at, v in said(t0=1).items()}
    first, _ = grpo.make_samples(group([1.0, 0.0]), segments_G, [weak, {}])
    assert first.advantages_T == pytest.approx([0.0, 0.6, 0.6])
    again, _ = grpo.make_samples(group([1.0, 0.0]), segments_G, [said(t0=1), {}])
    assert again.advantages_T[1:] == pytest.approx([0.5 + 1 - 0.05] * 2)


def test_replayed_verdicts_give_the_terms_that_would_have_come() -> None:
    lived, replayed = (Grpo(baseline_decay=0.7, process_weight=0.5) for _ in range(2))
    segments_G = [[long_segment(0, 1)], [long_segment(0)]]
    for value in (1, -1, 1):
        lived.make_samples(group([1.0, 0.0]), segments_G, [said(t0=value, t1=value), said(t0=0)])
    compared = lived.compared()
    assert len(compared) == 9
    replayed.replay(compared)
    assert replayed.compared() == lived.compared() == []
    last = group([1.0, 0.0]), segments_G, [said(t1=1), {}]
    assert replayed.make_samples(*last) == lived.make_samples(*last)
    assert Grpo(baseline_decay=0.7, process_weight=0.5).make_samples(*last) != lived.make_samples(
        *last
    )


def test_fellows_who_all_got_the_same_verdict_add_nothing() -> None:
    segments_G = [[long_segment(0)]] * 2
    plain = Grpo().make_samples(group([1.0, 0.0]), segments_G)
    agreed = Grpo().make_samples(group([1.0, 0.0]), segments_G, [said(t0=-1), said(t0=-1)])
    assert [s.advantages_T for s in agreed] == [s.advantages_T for s in plain]


def test_equal_outcomes_with_different_verdicts_teach_the_difference() -> None:
    grpo = Grpo(normalize_std=False)
    samples = grpo.make_samples(
        group([1.0, 1.0]), [[long_segment(0)]] * 2, [said(t0=1), said(t0=-1)]
    )
    assert [s.advantages_T[1] for s in samples] == [1.0, -1.0]
    assert grpo.counts == {"process_only": 1, "used": 1}


def test_equal_outcomes_with_equal_verdicts_teach_nothing() -> None:
    grpo = Grpo()
    assert grpo.make_samples(group([1.0, 1.0]), [[long_segment(0)]] * 2, [said(t0=1)] * 2) == []
    assert grpo.counts == {"zero_variance": 1}


def test_an_episode_without_an_outcome_stays_out_with_its_verdicts() -> None:
    segments_G = [[long_segment(0)]] * 3
    samples = Grpo().make_samples(
        group([1.0, None, 0.0]), segments_G, [said(t0=1), said(t0=-1), said(t0=1)]
    )
    without = Grpo().make_samples(group([1.0, 0.0]), segments_G[:2], [said(t0=1), said(t0=1)])
    assert [s.advantages_T for s in samples] == [s.advantages_T for s in without]
    grpo = Grpo()
    assert grpo.make_samples(group([1.0, None]), segments_G[:2], [said(t0=1), said(t0=-1)]) == []
    assert grpo.counts == {"too_small": 1}


def test_steps_are_counted_in_main_turns() -> None:
    """In the reference, scores and steps are counted apart and slip once a step has no action."""
    samples = Grpo(normalize_std=False).make_samples(
        group([1.0, 0.0]),
        [[long_segment(0), long_segment(3)], [long_segment(0, 1)]],  # 1 and 2 were side turns
        [said(t3=1), said(t1=-1)],
    )
    assert [s.advantages_T[-1] for s in samples] == [0.5, 0.5 + 1.0, -0.5 - 1.0]


def test_an_unknown_token_of_a_judged_turn_stays_out() -> None:
    samples = Grpo(normalize_std=False).make_samples(
        group([1.0, 0.0]),
        [[long_segment(0, 1, unknown=1)], [long_segment(0, 1)]],
        [said(t1=1), said(t1=-1)],
    )
    assert samples[0].advantages_T == [0.0, 0.5, 0.5, 0.0, 0.0]


values = st.sampled_from([-1.0, 0.0, 1.0, None])


@st.composite
def judged_groups(
    draw: st.DrawFn,
) -> tuple[Group, list[list[Segment]], list[dict[int, Verdict]]]:
    rewards = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=6))
    turns = [draw(st.integers(1, 5)) for _ in rewards]
    verdicts = [
        said(**{f"t{at}": draw(values) for at in range(count) if draw(st.booleans())})
        for count in turns
    ]
    return group(list(rewards)), [[long_segment(*range(count))] for count in turns], verdicts


@settings(deadline=None, derandomize=True)
@given(judged_groups(), st.sampled_from([0.5, 1.0, 2.0]))
def test_process_terms_at_a_step_sum_to_0(case: Any, weight: float) -> None:
    whole, segments_G, verdicts_G = case
    samples = Grpo(process_weight=weight).make_samples(whole, segments_G, verdicts_G)
    if not samples:
        return
    outcomes = group_advantages([e.reward or 0.0 for e in whole.episodes_G], True)
    steps: dict[int, list[float]] = {}
    for sample, outcome, segments, verdicts in zip(
        samples, outcomes, segments_G, verdicts_G, strict=True
    ):
        for advantage, turn in zip(sample.advantages_T, segments[0].turns_T, strict=True):
            if turn < 0:
                assert advantage == 0.0
            elif turn in verdicts and verdicts[turn].reward is not None:
                steps.setdefault(turn, []).append((advantage - outcome) / weight)
            else:
                assert advantage == outcome
    for terms in steps.values():
        if len(terms) > 2:  # two tokens a turn: more than one verdict at this step
            assert math.fsum(terms) == pytest.approx(0.0, abs=1e-9)


@settings(deadline=None, derandomize=True)
@given(judged_groups(), st.booleans())
def test_weight_0_is_grpo_without_verdicts_bit_by_bit(case: Any, normalize: bool) -> None:
    whole, segments_G, verdicts_G = case
    plain, zero = Grpo(normalize), Grpo(normalize, process_weight=0.0)
    assert zero.make_samples(whole, segments_G, verdicts_G) == plain.make_samples(whole, segments_G)
    assert zero.counts == plain.counts
    abstained = [{at: replace(v, reward=None) for at, v in of.items()} for of in verdicts_G]
    assert plain.make_samples(whole, segments_G, abstained) == plain.make_samples(whole, segments_G)
