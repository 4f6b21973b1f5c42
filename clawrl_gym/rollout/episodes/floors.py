"""Reward of an episode that left steps unplayed: never more than playing on would have earned.

A deadline, a spoilt grade, a full context, replies without an action: all of them end an episode
before the environment has given its last reward. Where rewards are below 0 that would pay, so each
step that was left unplayed costs the lowest reward that a step of this environment has had:

    reward + unplayed * min(0, lowest step)

but no more than the worst whole episode: not below the lowest return that the environment has
given or declares (`reward_range`), or what the episode itself had earned where that is lower. Where
no reward is below 0, nothing changes. Floors are of a whole run, training and evaluations together,
and of each environment of a mixture by itself. What infrastructure broke has no reward, and none
here either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clawrl_gym.core.metrics import LOWEST_RETURN, LOWEST_STEP, envs_of, in_env
from clawrl_gym.core.types import Episode, Group


@dataclass(slots=True)
class RewardFloor:
    """The lowest rewards that an environment has given, 0 at most."""

    lowest_step: float = 0.0
    lowest_return: float | None = None
    """Lowest return of a whole episode; None: none was seen, and none is declared."""

    @property
    def is_known(self) -> bool:
        """Whether there is anything to charge by."""
        return self.lowest_return is not None or self.lowest_step < 0

    def take_in(self, episode: Episode) -> None:
        """Learn from what an episode earned."""
        if episode.reward is None:
            return
        self.lowest_step = min(self.lowest_step, episode.lowest_step)
        if not episode.unplayed:
            self._has_returned(episode.reward)
        if episode.declared_floor is not None:
            self.lowest_step = min(self.lowest_step, episode.declared_floor)
            self._has_returned(episode.declared_floor)

    def settled(self, reward: float, unplayed: int) -> float:
        """Reward of an episode that left so many steps unplayed."""
        charged = reward + unplayed * self.lowest_step
        if self.lowest_return is None:
            return charged
        return max(charged, min(self.lowest_return, reward))

    def _has_returned(self, reward: float) -> None:
        self.lowest_return = min(self.lowest_return or 0.0, reward)


class RewardFloors:
    """The floor of each environment, by `TaskRef.env`."""

    def __init__(self) -> None:
        self._floors: defaultdict[str, RewardFloor] = defaultdict(RewardFloor)

    def settled(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Episodes with what they earn, after all of them were taken in. One that is here before
        anything is known of its environment stays as it is, `unplayed` too: its reward is not
        known."""
        for episode in episodes:
            self._floors[episode.task.env].take_in(episode)
        return [self._settled(episode) for episode in episodes]

    def settled_group(self, group: Group) -> Group:
        """A group whose episodes are compared by what they earn."""
        return replace(group, episodes_G=self.settled(group.episodes_G))

    def _settled(self, episode: Episode) -> Episode:
        floor = self._floors[episode.task.env]
        if episode.reward is None or not episode.unplayed or not floor.is_known:
            return episode
        return replace(episode, reward=floor.settled(episode.reward, episode.unplayed), unplayed=0)

    def metrics(self) -> dict[str, float]:
        """The floors below 0, for a run that is resumed: empty where no reward is."""
        values: dict[str, float] = {}
        for env, floor in self._floors.items():
            own = {LOWEST_STEP: floor.lowest_step, LOWEST_RETURN: floor.lowest_return or 0.0}
            own = {name: value for name, value in own.items() if value < 0}
            values |= in_env(env, own) if env else own
        return values

    def restore(self, metrics: Mapping[str, float]) -> None:
        """Take in what an earlier process had seen."""
        for env, own in envs_of(metrics, (LOWEST_STEP, LOWEST_RETURN)).items():
            floor = self._floors[env]
            floor.lowest_step = own.get(LOWEST_STEP, 0.0)
            floor.lowest_return = own.get(LOWEST_RETURN)
