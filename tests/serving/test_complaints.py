"""Whether newer versions are complained about more, and who can say so."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from clawrl_gym.trainers.user_share import UserShare
from clawrl_gym.trainers.versions.complaints import Complaints

SHARE = UserShare(0.25, lambda: 5)


class Talk:
    """Verdicts on turns of versions, numbered as they come."""

    def __init__(self, margin: float | None = 0.1, share: UserShare | None = SHARE) -> None:
        self.complaints = Complaints(margin, 0, share)
        self.turn = 0

    def judged(self, user: str, version: int, bad: int, good: int) -> None:
        worst: Literal[-1] = -1
        best: Literal[1] = 1
        values: list[Literal[-1, 0, 1]] = [*[worst] * bad, *[best] * good]
        for value in values:
            self.turn += 1
            self.complaints.add(self.turn, user, version, value)

    def by_all(self, version: int, bad: int, good: int) -> None:
        for user in ("", "anna", "ben", "cleo"):
            self.judged(user, version, bad, good)


def test_a_version_that_many_complain_about_is_worse() -> None:
    talk = Talk()
    talk.by_all(0, bad=1, good=19)
    talk.by_all(1, bad=12, good=8)
    assert talk.complaints.is_worse()
    assert talk.complaints.good == 0


@pytest.mark.parametrize(("bad", "good"), [(1, 19), (2, 18), (3, 17), (0, 20), (4, 16)])
def test_one_that_is_complained_about_alike_is_not_and_becomes_the_good_one(
    bad: int, good: int
) -> None:
    talk = Talk()
    talk.by_all(0, bad=2, good=18)
    talk.by_all(1, bad, good)
    assert not talk.complaints.is_worse()
    if bad <= 3:
        assert talk.complaints.good == 1


ALONE = {
    "complains of all new turns": (0, 400, 0),
    "praised the old ones and complains of the new": (400, 400, 0),
    "complains a little": (40, 30, 10),
    "complains of twenty": (20, 20, 0),
}


@pytest.mark.parametrize("how", ALONE)
@pytest.mark.parametrize("others", [1, 5, 10])
def test_no_single_user_takes_a_version_from_the_others(how: str, others: int) -> None:
    praised_before, bad, good = ALONE[how]
    talk = Talk()
    talk.by_all(0, bad=1, good=19)
    talk.judged("eve", 0, bad=0, good=praised_before)
    for user in ("", "anna", "ben", "cleo"):
        talk.judged(user, 1, bad=1, good=others * 2)
    talk.judged("eve", 1, bad, good)
    assert not talk.complaints.is_worse()


def test_no_single_user_hides_the_complaints_of_others() -> None:
    talk = Talk()
    talk.by_all(0, bad=1, good=19)
    talk.by_all(1, bad=14, good=6)
    talk.judged("eve", 1, bad=0, good=2000)
    assert talk.complaints.is_worse()


def test_a_lone_owner_decides_alone_and_a_lone_user_does_not() -> None:
    for user, worse in (("", True), ("eve", False)):
        talk = Talk()
        talk.judged(user, 0, bad=2, good=38)
        talk.judged(user, 1, bad=30, good=10)
        assert talk.complaints.is_worse() == worse


@pytest.mark.parametrize(("before", "after"), [(19, 200), (200, 19), (0, 0), (5, 5)])
def test_few_turns_decide_nothing(before: int, after: int) -> None:
    talk = Talk()
    talk.judged("", 0, bad=0, good=before)
    talk.judged("", 1, bad=after, good=0)
    assert not talk.complaints.is_worse()


def test_a_turn_counts_once_by_its_last_verdict_and_abstentions_do_not() -> None:
    complaints = Complaints(0.1)
    values: list[Any] = [-1, -1, None, 1]
    for value in values:
        complaints.add(7, "", 1, value)
    assert list(complaints._of_turn.values()) == [("", 1, False)]


def test_a_margin_of_none_watches_nothing_and_a_small_rise_is_within_it() -> None:
    for margin, worse in ((None, False), (0.0, True), (0.4, False)):
        talk = Talk(margin)
        talk.by_all(0, bad=1, good=29)
        talk.by_all(1, bad=12, good=18)
        assert talk.complaints.is_worse() == worse


def test_what_was_taken_back_is_no_measure_and_its_successor_is_on_trial_from_there() -> None:
    talk = Talk()
    talk.by_all(0, bad=1, good=19)
    talk.by_all(1, bad=19, good=1)
    talk.complaints.returned(0, 2)
    assert talk.complaints.good == 2
    talk.by_all(3, bad=1, good=19)
    assert not talk.complaints.is_worse()
    assert talk.complaints.good == 3


def test_a_removed_user_counts_no_more() -> None:
    talk = Talk()
    talk.judged("anna", 0, bad=3, good=3)
    talk.complaints.forget("anna")
    assert not talk.complaints._of_turn


@pytest.mark.parametrize("turns_a_version", [1, 2, 5, 8, 10, 25])
def test_versions_that_are_replaced_early_still_make_something_to_compare_with(
    turns_a_version: int,
) -> None:
    talk = Talk()
    version = -1
    for number in range(60):
        version += number % turns_a_version == 0
        talk.by_all(version, bad=0, good=1)
        assert not talk.complaints.is_worse()
    found = False
    for _ in range(30):
        version += 1
        talk.by_all(version, bad=1, good=0)
        found = found or talk.complaints.is_worse()
    assert found


@pytest.mark.parametrize("flood", [10, 260, 6000])
@pytest.mark.parametrize("value", ["praise", "complaints"])
def test_a_flood_of_one_user_hides_nothing_of_others(flood: int, value: str) -> None:
    talk = Talk()
    talk.by_all(0, bad=2, good=18)
    bad, good = (flood, 0) if value == "complaints" else (0, flood)
    talk.judged("eve", 0, bad, good)
    talk.by_all(1, bad=16, good=4)
    talk.judged("eve", 1, bad, good)
    assert talk.complaints.is_worse()
