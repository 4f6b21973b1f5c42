"""Control runs: what is learned from says nothing, and everybody says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest

from clawrl_gym.comparison.plan import plan_runs
from clawrl_gym.config import RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.processes.controls import CONTROLS, Control, control_words
from clawrl_gym.core.types import Episode, Group, StopReason, TaskRef, Verdict
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.rollout.collection.control import Substitution, Verdicts
from clawrl_gym.run_folder.folder import folder_of
from tests.support.fakes_judge import a_turn

TASK, OTHER = TaskRef("a", 0, "train"), TaskRef("b", 0, "train")


def group(number: int, *rewards: float | None) -> Group:
    episodes = [
        Episode(f"{number}-{at}", number, TASK, StopReason.TERMINATED, reward, 1)
        for at, reward in enumerate(rewards)
    ]
    return Group(number, TASK, episodes, 0)


def verdict(turn: int, value: int) -> Verdict:
    return Verdict(turn, "rule", 1 if value > 0 else -1, float(value), {"hints": [f"h{turn}"]}, 0.0)


def rewards_of(group: Group) -> list[float | None]:
    return [episode.reward for episode in group.episodes_G]


def test_without_a_control_everything_stays() -> None:
    plain, verdicts = group(0, 1.0, 0.0), [{0: verdict(0, 1)}, {0: verdict(1, -1)}]
    nothing = Substitution("none", 0)
    assert nothing.rewards(plain, verdicts) == (plain, verdicts)
    assert nothing.hints(TASK, a_turn("s"), ("h",)) == ("h",)


def test_rewards_are_permuted_within_a_group_and_every_episode_gets_each_as_often() -> None:
    """A permutation that spared nobody's own would teach a group of two the opposite."""
    shuffled = Substitution("shuffled_rewards", 0)
    first: Counter[float | None] = Counter()
    for number in range(600):
        rewards = rewards_of(shuffled.rewards(group(number, 1.0, 0.0, 0.0), [{}, {}, {}])[0])
        assert sorted(map(str, rewards)) == ["0.0", "0.0", "1.0"]
        first[rewards[0]] += 1
    assert abs(first[1.0] / 600 - 1 / 3) < 4 * (2 / 9 / 600) ** 0.5


def test_an_episode_without_an_outcome_gets_none_of_another() -> None:
    shuffled = Substitution("shuffled_rewards", 0)
    for number in range(20):
        assert rewards_of(shuffled.rewards(group(number, None, 1.0, 0.0), [{}] * 3)[0])[0] is None


def test_a_run_draws_the_same_permutation_again() -> None:
    again = [
        rewards_of(Substitution("shuffled_rewards", 3).rewards(group(7, *values), [{}] * 5)[0])
        for values in [(0.0, 1.0, 2.0, 3.0, 4.0)] * 2
    ]
    assert again[0] == again[1]


def test_verdicts_are_permuted_among_the_turns_of_a_group_and_stay_on_their_turns() -> None:
    shuffled = Substitution("shuffled_rewards", 0)
    own: list[Verdicts] = [{0: verdict(1, 1), 2: verdict(2, 1)}, {0: verdict(3, -1)}]
    third = []
    for number in range(300):
        _, (one, two) = shuffled.rewards(group(number, 1.0, 0.0), own)
        assert (set(one), set(two)) == ({0, 2}, {0})
        assert two[0].turn_id == 3
        assert two[0].hints == ("h3",)
        third.append(two[0].reward or 0.0)
    assert abs(fmean(third) - 1 / 3) < 0.25  # the mean of the three


def test_a_group_of_one_gets_what_the_one_before_it_earned() -> None:
    shuffled = Substitution("shuffled_rewards", 0)
    first, said = shuffled.rewards(group(0, 1.0), [{0: verdict(1, 1), 1: verdict(2, 1)}])
    assert (rewards_of(first), said) == ([None], [{}])
    second, said = shuffled.rewards(group(1, 0.0), [{0: verdict(3, -1)}])
    assert rewards_of(second) == [1.0]
    assert said[0][0].reward == 1.0
    third, said = shuffled.rewards(group(2, 0.5), [{}])
    assert (rewards_of(third), said) == ([0.0], [{}])


def test_irrelevant_hints_are_those_of_other_tasks() -> None:
    hints = Substitution("irrelevant_hints", 0)
    turn = a_turn("s")
    assert hints.hints(TASK, turn, ("use cat",)) == ()  # nobody else was hinted yet
    assert hints.hints(TASK, turn, ("use ls",)) == ()
    assert hints.hints(OTHER, turn, ("use cat",)) == ("use ls",)  # never one that says the same
    assert hints.hints(TASK, turn, ("use ls",)) == ("use cat",)
    assert hints.hints(OTHER, turn, ()) == ()


def test_random_hints_are_as_many_words_of_other_tasks_requests() -> None:
    hints = Substitution("random_hints", 0)
    asking = replace(a_turn("s"), messages=[{"role": "user", "content": "count lines"}])
    assert hints.hints(OTHER, asking, ("be brief please",)) == ()
    (words,) = hints.hints(TASK, asking, ("be brief please",))
    assert len(words.split()) == 3
    assert set(words.split()) <= {"count", "lines"}


def test_a_control_is_named_in_its_folder_and_its_words() -> None:
    config = compose("train", ["control=shuffled_rewards"], RunConfig)
    assert folder_of(config).path.name.startswith("control-shuffled_rewards-terminal")
    for control in CONTROLS:
        words = control_words(control)
        assert words is not None
        assert words.startswith(f"CONTROL RUN (control={control})")
    assert control_words("none") is None
    assert control_words(None) is None


def test_the_bench_runs_the_controls_that_fit_beside_every_recipe() -> None:
    arguments = ["experiment=general_terminal_plain,personal_hybrid", "seeds=1"]
    arguments.append("controls=shuffled_rewards,irrelevant_hints")
    runs = plan_runs(load_config(arguments, "bench"))
    assert [run.recipe for run in runs] == [
        "general_terminal_plain",
        "general_terminal_plain-control-shuffled_rewards",
        "personal_hybrid",
        "personal_hybrid-control-shuffled_rewards",
        "personal_hybrid-control-irrelevant_hints",
    ]
    assert runs[1].arguments[-1] == "control=shuffled_rewards"
    assert runs[1].arguments[0] == "experiment=general_terminal_plain"
    assert runs[0].baseline.folder == runs[4].baseline.folder


def test_a_control_that_fits_no_recipe_is_refused() -> None:
    arguments = ["experiment=general_terminal_plain", "controls=random_hints"]
    with pytest.raises(ConfigError, match="no recipe that learns from what it makes worthless"):
        plan_runs(load_config(arguments, "bench"))


def test_every_control_has_its_words() -> None:
    names: set[Control] = {"shuffled_rewards", "irrelevant_hints", "random_hints"}
    assert set(CONTROLS) == names
