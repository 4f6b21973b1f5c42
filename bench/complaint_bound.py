"""Share of versions that the watch over complaints takes back, by how content people are before and
after.

    PYTHONPATH=. python bench/complaint_bound.py

Four people, of whom three are bounded, give 60 verdicts to the first two versions and then 200 to
newer ones, eight a version; it is asked after each. Nothing is learned: verdicts are drawn.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

from clawrl_gym.config import GuardsConfig
from clawrl_gym.trainers.user_share import UserShare
from clawrl_gym.trainers.versions.complaints import Complaints

PEOPLE = ("", "anna", "ben", "eve")
BEFORE, AFTER, OF_VERSION = 60, 200, 8
Share = Callable[[str, bool], float]
"""Share of replies that a user complains about, of versions after the first two or not."""


def is_taken_back(share_of: Share, margin: float, seed: int, posts_of_eve: int) -> bool:
    """Whether newer versions are found worse at any moment of one service's life."""
    draw = random.Random(seed)
    complaints = Complaints(margin, 0, UserShare(0.25, lambda: len(PEOPLE)))
    for turn in range(BEFORE + AFTER):
        is_new = turn >= BEFORE
        version = 2 + (turn - BEFORE) // OF_VERSION if is_new else turn * 2 // BEFORE
        user = draw.choice(PEOPLE)
        for again in range(posts_of_eve if user == "eve" else 1):
            is_bad = draw.random() < share_of(user, is_new)
            complaints.add(turn * 100 + again, user, version, -1 if is_bad else 1)
        if is_new and complaints.is_worse():
            return True
    return False


CASES: dict[str, tuple[Share, int]] = {
    "10 % before and after": (lambda user, is_new: 0.1, 1),
    "30 % before and after": (lambda user, is_new: 0.3, 1),
    "50 % before and after": (lambda user, is_new: 0.5, 1),
    "30 %, then 40 %": (lambda user, is_new: 0.4 if is_new else 0.3, 1),
    "30 %, then 60 %": (lambda user, is_new: 0.6 if is_new else 0.3, 1),
    "30 %, then 80 %": (lambda user, is_new: 0.8 if is_new else 0.3, 1),
    "30 %; eve of all that is new": (
        lambda user, is_new: 1.0 if is_new and user == "eve" else 0.3, 1,
    ),
    "the same, ten times as often": (
        lambda user, is_new: 1.0 if is_new and user == "eve" else 0.3, 10,
    ),
    "30 %, then 80 %; eve praises ten times as often": (
        lambda user, is_new: 0.0 if user == "eve" else 0.8 if is_new else 0.3, 10,
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=300)
    parser.add_argument("--margin", type=float, default=GuardsConfig().complaints)
    options = parser.parse_args()
    print(f"margin {options.margin:g}\n| share of complaints | taken back |\n|---|---|")
    for name, (share_of, posts) in CASES.items():
        found = sum(
            is_taken_back(share_of, options.margin, seed, posts) for seed in range(options.services)
        )
        print(f"| {name} | {found / options.services:.1%} |", flush=True)


if __name__ == "__main__":
    main()
