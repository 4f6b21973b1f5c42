"""Hints alone: only what a hint teaches is trained on, and never as a reward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.types import (
    Compared,
    Episode,
    Group,
    Sample,
    StopReason,
    TaskRef,
    Verdict,
)
from clawrl_gym.dialogue.merging import Segment, merge_turns
from clawrl_gym.trainers.algorithms.algorithm import Algorithm, build_algorithm
from clawrl_gym.trainers.algorithms.binary import Binary
from clawrl_gym.trainers.algorithms.grpo import Grpo
from clawrl_gym.trainers.algorithms.hybrid import Hybrid
from clawrl_gym.trainers.algorithms.opd import Opd
from tests.support.fakes_judge import a_turn

TASK = TaskRef(None, 0, "train")
READ = {1: ([9, 9, 1, 2, 3, 4, 5, 6],)}
"""The prompt of turn 1 with its hint."""


def group(*rewards: float | None) -> Group:
    episodes = [
        Episode(f"s{at}", 0, TASK, StopReason.TERMINATED, reward, 2)
        for at, reward in enumerate(rewards)
    ]
    return Group(0, TASK, episodes, 0)


def segment() -> Segment:
    """Three prompt ids, two of turn 0, one between, two of turn 1."""
    second = a_turn(index=1, prompt_ids_T=[1, 2, 3, 4, 5, 6], sampled_ids_T=[7, 8])
    return merge_turns([a_turn(), second]).sequences[0]


def verdict(reward: float | None, kind: Any = "rule") -> Verdict:
    return Verdict(1, kind, None, reward, {}, 0.0)


def samples_from(
    algorithm: Algorithm, verdicts: dict[int, Verdict], prompts: dict[int, Any] = READ
) -> list[Sample]:
    return algorithm.make_samples(group(1.0), [[segment()]], [verdicts], [prompts])


def test_a_turn_with_a_hint_is_distilled_and_the_others_are_context() -> None:
    (sample,) = samples_from(Opd(0.5), {0: verdict(1.0), 1: verdict(-1.0)})
    assert sample.distill_T == [0, 0, 0, 0, 0, 0, 0.5, 0.5]
    assert sample.mask_T == [False] * 6 + [True] * 2
    (target,) = sample.distill_targets
    assert (target.start, target.length, target.prompts) == (6, 2, READ[1])


def test_a_corrected_reply_is_never_reinforced() -> None:
    """The reference's Tinker OPD gives every corrected reply the advantage +1."""
    (sample,) = samples_from(Opd(), {1: verdict(1.0)})
    assert set(sample.advantages_T) == {0.0}


def test_an_abstention_with_a_hint_teaches_and_a_reward_without_one_does_not() -> None:
    opd = Opd()
    assert len(samples_from(opd, {1: verdict(None)})) == 1
    assert samples_from(opd, {0: verdict(1.0), 1: verdict(-1.0)}, {}) == []
    assert opd.counts == {"used": 1, "no_hints": 1}


def test_candidates_that_were_all_left_out_teach_nothing() -> None:
    assert samples_from(Opd(), {1: verdict(None)}, {1: ()}) == []


def test_weight_0_teaches_nothing() -> None:
    assert samples_from(Opd(0.0), {}) == []


def test_tokens_without_a_logprob_are_not_distilled() -> None:
    turn = a_turn(index=1, logprobs_T=[None, -0.5])
    (sample,) = Opd().make_samples(group(0.0), [[merge_turns([turn]).sequences[0]]], None, [READ])
    assert sample.distill_T == [0, 0, 0, 0, 1.0]
    assert (sample.distill_targets[0].start, sample.distill_targets[0].length) == (3, 2)


def hybrid(rl: float = 1.0, opd: float = 1.0) -> Hybrid:
    return Hybrid(Binary(), Opd(opd), rl)


def test_hybrid_gives_each_turn_its_reward_its_hint_or_both() -> None:
    (sample,) = samples_from(hybrid(2.0, 0.5), {0: verdict(1.0), 1: verdict(-1.0, "feedback")})
    assert sample.advantages_T == [0, 0, 0, 2.0, 2.0, 0, -2.0, -2.0]
    assert sample.distill_T == [0, 0, 0, 0, 0, 0, 0.5, 0.5]
    assert sum(sample.mask_T) == 4


def test_hybrid_with_hints_only_keeps_a_gradient() -> None:
    """In the reference's Combine, samples of hints alone end with nothing but advantage 0."""
    algorithm = hybrid()
    (sample,) = samples_from(algorithm, {1: verdict(None)})
    assert any(sample.distill_T)
    assert algorithm.counts["hints_only"] == 1


def test_hybrid_with_rewards_only_has_no_lesson() -> None:
    algorithm = hybrid()
    (sample,) = samples_from(algorithm, {1: verdict(-1.0)}, {})
    assert (sample.distill_T, sample.distill_targets) == ([], ())
    assert sum(sample.mask_T) == 2
    assert algorithm.counts["rewards_only"] == 1


def test_hybrid_with_neither_gives_nothing_and_is_counted() -> None:
    algorithm = hybrid()
    assert samples_from(algorithm, {1: verdict(0.0)}, {}) == []
    assert algorithm.counts == {"neither": 1}


def test_rl_weight_0_is_opd_and_opd_weight_0_is_binary() -> None:
    verdicts = {0: verdict(1.0), 1: verdict(-1.0)}
    assert samples_from(hybrid(rl=0.0), verdicts) == samples_from(Opd(), verdicts)
    assert samples_from(hybrid(opd=0.0), verdicts) == samples_from(Binary(), verdicts)


def test_hints_of_a_group_of_equal_rewards_still_teach() -> None:
    algorithm = Hybrid(Grpo(), Opd())
    samples = algorithm.make_samples(group(0.0, 0.0), [[segment()], [segment()]], None, [READ, {}])
    assert [any(sample.distill_T) for sample in samples] == [True]


def test_hybrid_passes_on_how_strong_its_rewards_are() -> None:
    weak = replace(verdict(1.0), weight=0.1)
    (alone,) = samples_from(hybrid(opd=0.0), {1: weak})
    assert alone.strength == pytest.approx(0.1)
    (both,) = samples_from(hybrid(), {1: weak})
    assert both.strength == pytest.approx((0.1 * 0.1 + 1) / (0.1 + 1)), "a hint is strong"
    (hint,) = samples_from(Opd(), {1: weak})
    assert hint.strength == 1.0


def test_hybrid_replays_its_rewards() -> None:
    told = hybrid()
    told.replay([Compared("rule", 1.0)] * 20)
    assert told.compared() == []
    (fresh,), (later,) = (samples_from(a, {1: verdict(1.0)}, {}) for a in (hybrid(), told))
    assert later.advantages_T[-1] < fresh.advantages_T[-1]


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("grpo", 8, Grpo), ("grpo", 1, Binary), ("grpo", None, Binary), ("binary", 8, Binary),
        ("opd", 8, Opd), ("opd", None, Opd), ("hybrid", None, Hybrid), ("hybrid", 8, Hybrid),
    ],
)  # fmt: skip
def test_the_configured_algorithm_is_built(
    name: Any, size: int | None, expected: type[Algorithm]
) -> None:
    built = build_algorithm(TrainerConfig(algorithm=name), size)
    assert type(built) is expected
    assert built.needs_hints is (name in ("opd", "hybrid"))
    assert bool(built.reward_weight) is (name != "opd")


def test_a_built_hybrid_compares_groups_and_single_turns() -> None:
    config = TrainerConfig(algorithm="hybrid", rl_weight=2.0, normalize_std=False)
    two = build_algorithm(config, 2).make_samples(group(1.0, 0.0), [[segment()], [segment()]])
    assert [s.advantages_T[-1] for s in two] == [1.0, -1.0]
    (one,) = build_algorithm(config, None).make_samples(
        group(1.0), [[segment()]], [{1: verdict(-1.0)}]
    )
    assert one.advantages_T[-1] == -2.0


def test_leave_one_out_compares_with_the_others_alone() -> None:
    config = TrainerConfig(normalize_std=False, leave_one_out=True)
    samples = build_algorithm(config, 3).make_samples(
        group(1.0, 0.0, 0.0), [[replace(segment())] for _ in range(3)]
    )
    assert [s.advantages_T[-1] for s in samples] == pytest.approx([1.0, -0.5, -0.5])
