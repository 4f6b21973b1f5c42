"""Replacements for rewards or hints in a control run, where they become samples.

Verdicts are stored as they were given, and episodes keep their rewards: only what is learned from
is another's. All draws are of a fixed seed.

`shuffled_rewards`: rewards are permuted among the episodes of a group, and verdicts among its
turns, each as often to its own as to any other: every episode expects the mean of its group, so
its advantage expects 0, while sizes of advantages and groups without a difference stay as they
are. (Permuted over a whole batch, easy and hard tasks would mix, and advantages would be others;
never to its own, a group of two would learn the opposite.) A group of one gets what the group
accepted before it earned, which is another task's; the first after a start, of a resumed run too,
gets nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from clawrl_gym.core.processes.controls import ON_HINTS, Control
from clawrl_gym.core.types import Group, TaskRef, Turn, Verdict

_KEPT = 64
"""Hints, and requests, of other tasks to draw from."""
Verdicts = dict[int, Verdict]
"""Verdicts of one episode, by `Turn.index`."""
Hints = Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Earned:
    """Earnings of a group of one."""

    reward: float | None
    verdicts: tuple[Verdict, ...]


class Substitution:
    """Puts another's in the place of what a control makes worthless."""

    def __init__(self, control: Control, seed: int) -> None:
        self._control = control
        self._seed = seed
        self._before: _Earned | None = None
        self._hints: deque[tuple[TaskRef, tuple[str, ...]]] = deque(maxlen=_KEPT)
        """Task and hints."""
        self._requests: deque[tuple[TaskRef, list[str]]] = deque(maxlen=_KEPT)
        """Task and words."""
        self._hinted = 0

    def rewards(self, group: Group, verdicts_G: list[Verdicts]) -> tuple[Group, list[Verdicts]]:
        """Replace a group's rewards and verdicts; called in the order of acceptance."""
        if self._control != "shuffled_rewards":
            return group, verdicts_G
        random = Random(f"{self._seed} {group.id}")
        if len(group.episodes_G) == 1:
            return self._of_the_one_before(group, verdicts_G, random)
        places = [at for at, e in enumerate(group.episodes_G) if e.reward is not None]
        rewards = [group.episodes_G[at].reward for at in places]
        random.shuffle(rewards)
        episodes_G = list(group.episodes_G)
        for at, reward in zip(places, rewards, strict=True):
            episodes_G[at] = replace(episodes_G[at], reward=reward)
        others = [verdict for verdicts in verdicts_G for verdict in verdicts.values()]
        random.shuffle(others)
        left = iter(others)
        shuffled_G = [
            {turn: _saying(verdict, next(left)) for turn, verdict in verdicts.items()}
            for verdicts in verdicts_G
        ]
        return replace(group, episodes_G=episodes_G), shuffled_G

    def _of_the_one_before(
        self, group: Group, verdicts_G: list[Verdicts], random: Random
    ) -> tuple[Group, list[Verdicts]]:
        (episode,), (own,) = group.episodes_G, verdicts_G
        before, self._before = self._before, _Earned(episode.reward, tuple(own.values()))
        if before is None or before.reward is None:
            return replace(group, episodes_G=[replace(episode, reward=None)]), [{}]
        verdicts = {
            turn: _saying(verdict, random.choice(before.verdicts))
            for turn, verdict in (own.items() if before.verdicts else ())
        }
        return replace(group, episodes_G=[replace(episode, reward=before.reward)]), [verdicts]

    def hints(self, task: TaskRef, turn: Turn, hints: tuple[str, ...]) -> tuple[str, ...]:
        """The hints that a turn's teacher reads instead; none while no other task was seen."""
        if self._control not in ON_HINTS or not hints:
            return hints
        self._hinted += 1
        random = Random(f"{self._seed} hint {self._hinted}")
        if self._control == "irrelevant_hints":
            others = [kept for own, kept in self._hints if own != task and kept != hints]
            self._hints.append((task, hints))
            return random.choice(others) if others else ()
        words = [word for own, kept in self._requests if own != task for word in kept]
        self._requests.append((task, _words_of(turn)))
        if not words:
            return ()
        return tuple(
            " ".join(random.choice(words) for _ in range(max(1, len(hint.split()))))
            for hint in hints
        )


def _saying(verdict: Verdict, other: Verdict) -> Verdict:
    """The verdict with what another one says."""
    return replace(
        verdict, kind=other.kind, value=other.value, reward=other.reward, weight=other.weight
    )


def _words_of(turn: Turn) -> list[str]:
    """Words of the user's first message."""
    for message in turn.messages:
        content = message.get("content")
        if message.get("role") == "user" and isinstance(content, str):
            return content.split()
    return []
