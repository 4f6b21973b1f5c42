"""Dying never pays: what an episode earns that ended before the environment had ended it."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from clawrl_gym.agents.agent import Agent
from clawrl_gym.agents.text import TextAgent
from clawrl_gym.core.errors import AgentFault, ContextError, ReplyTimeout, RequestError
from clawrl_gym.core.types import Episode, Group, StopReason, TaskRef
from clawrl_gym.envs.task_env import TaskEnv
from clawrl_gym.envs.terminal.agent import TerminalAgent, reply_text
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.episodes.episode import Bounds, EpisodeLimits, EpisodeSpec, run_episode
from clawrl_gym.rollout.episodes.floors import RewardFloors
from clawrl_gym.rollout.evaluation import evaluate
from clawrl_gym.trainers.algorithms.advantage import group_advantages
from tests.rollout.test_episode import ScriptedChat, in_place

TURNS = 6
TASK = TaskRef("t", 3, "train")
SPEC = EpisodeSpec("s", 1, TASK, max_turns=TURNS, timeout_s=5.0)
numbers = itertools.count()


class Guess:
    """`guess N` ends it with the reward -N / 10; all else is thinking. No reward is above 0."""

    grades = False
    cost = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "how far off is it?", {}

    def step(self, action: str) -> Any:
        if action == "break it":
            raise AgentFault("the agent broke it")
        if action.startswith("guess"):
            return "over", -self.cost - int(action.split()[1]) / 10, True, False, {}
        return "think on", -self.cost, False, False, {}

    def finish(self) -> float:
        return 0.0


class Toll(Guess):
    """Each step costs 0.1, the last one too."""

    cost = 0.1


class Mixed(Guess):
    """`good` earns 1, and each guess may cost."""

    def step(self, action: str) -> Any:
        if action == "good":
            return "well", 1.0, False, False, {}
        return super().step(action)


PLAYS = [["guess 10"], ["a", "guess 3"], ["a", "b", "guess 0"], ["a"] * (TURNS - 1) + ["guess 10"]]
DEATHS: dict[str, list[Any]] = {
    "deadline at once": [ReplyTimeout("no end")],
    "deadline later": ["a", "b", ReplyTimeout("no end")],
    "a fault": ["break it"],
    "a fault later": ["a", "a", "break it"],
    "a request that is refused": ["a", RequestError("400")],
    "a context that is full": ["a", ContextError("too long")],
    "no action at all": [None] * TURNS,
    "an action and then none": ["a", *[None] * TURNS],
    "too many tokens": ["a"] * TURNS,
}


async def episode_of(env: Any, replies: list[Any], *, bounds: Bounds | None = None) -> Episode:
    """Replies are actions; None is one without an action."""
    agent: Agent = TerminalAgent()
    said = [
        "no block" if one is None else one if isinstance(one, Exception) else reply_text(one)
        for one in replies
    ]
    spec = replace(SPEC, session_id=f"s{next(numbers)}")
    return await run_episode(spec, env, agent, ScriptedChat(*said), in_place, bounds or Bounds())


async def dead(env: type[Guess], way: str) -> Episode:
    bounds = Bounds(max_reply_tokens=20) if way == "too many tokens" else Bounds()
    return await episode_of(env(), DEATHS[way], bounds=bounds)


async def played(env: type[Guess]) -> list[Episode]:
    return [await episode_of(env(), replies) for replies in PLAYS]


def rewards_of(episodes: list[Episode]) -> list[float]:
    rewards = [episode.reward for episode in episodes]
    assert None not in rewards
    return [reward for reward in rewards if reward is not None]


@pytest.mark.parametrize("env", [Guess, Toll])
@pytest.mark.parametrize("way", DEATHS)
async def test_an_agent_that_dies_on_purpose_never_earns_more_than_one_that_plays(
    env: type[Guess], way: str
) -> None:
    players, victim = await played(env), await dead(env, way)
    floors = RewardFloors()
    *lived, died = rewards_of(
        floors.settled_group(Group(0, TASK, [*players, victim], 0)).episodes_G
    )
    assert died <= min(lived)
    advantages_G = group_advantages([*lived, died], normalize_std=True)
    assert advantages_G[-1] == min(advantages_G)
    assert advantages_G[-1] < 0


@pytest.mark.parametrize("env", [Guess, Toll])
async def test_where_all_of_a_group_die_no_way_of_dying_is_better_than_another(
    env: type[Guess],
) -> None:
    floors = RewardFloors()
    lived = rewards_of(floors.settled(await played(env)))
    victims = [await dead(env, way) for way in DEATHS]
    died = rewards_of(floors.settled_group(Group(1, TASK, victims, 0)).episodes_G)
    assert max(died) <= min(lived)
    assert max(died) - min(died) < 1e-9
    assert group_advantages(died, normalize_std=True) == [0.0] * len(died)


async def test_dying_sooner_is_not_better_where_nobody_has_come_to_an_end_yet() -> None:
    floors = RewardFloors()
    victims = [await dead(Toll, way) for way in ("deadline at once", "deadline later", "a fault")]
    died = rewards_of(floors.settled(victims))
    assert died == pytest.approx([-0.1 * TURNS] * 3)


async def test_what_was_earned_before_a_full_context_stays_and_what_may_still_cost_is_charged() -> (
    None
):
    floors = RewardFloors()
    players = [await episode_of(Mixed(), [*["good"] * 2, "guess 5"])]
    players += [await episode_of(Mixed(), ["guess 5"])]
    cut = await episode_of(Mixed(), ["good", "good", "good", ContextError("too long")])
    assert (cut.reward, cut.unplayed) == (3.0, 3)
    assert rewards_of(floors.settled([*players, cut])) == [1.5, -0.5, 1.5]


async def test_where_no_reward_is_below_0_nothing_changes() -> None:
    class Kind(Guess):
        def step(self, action: str) -> Any:
            return "well", 0.25, False, False, {}

    floors = RewardFloors()
    cut = await episode_of(Kind(), ["a", "b", ContextError("too long")])
    late = await episode_of(Kind(), ["a", ReplyTimeout("no end")])
    turns = await episode_of(Kind(), ["a"] * TURNS)
    assert rewards_of(floors.settled([cut, late, turns])) == [0.5, 0.0, 1.5]
    assert floors.metrics() == {}


async def test_the_last_turn_of_a_game_that_only_its_turns_end_costs_nothing() -> None:
    floors = RewardFloors()
    whole = await episode_of(Toll(), ["a"] * TURNS)
    assert (whole.stop_reason, whole.unplayed) == (StopReason.TRUNCATED, 0)
    assert rewards_of(floors.settled([whole])) == pytest.approx([-0.6])


async def test_an_environment_that_declares_its_range_needs_no_example() -> None:
    class Declared(Guess):
        reward_range = (-1.0, 0.0)

    late = await episode_of(Declared(), [ReplyTimeout("no end")])
    unknown = await episode_of(Guess(), [ReplyTimeout("no end")])
    assert rewards_of(RewardFloors().settled([late])) == [-1.0]
    assert RewardFloors().settled([unknown]) == [unknown]
    endless = await episode_of(type("Endless", (Guess,), {"reward_range": (-float("inf"), 0)})(), [
        ReplyTimeout("no end")
    ])  # fmt: skip
    assert endless.declared_floor is None


async def test_infrastructure_is_no_reward_whatever_the_floor() -> None:
    class Breaks(Guess):
        def step(self, action: str) -> Any:
            raise OSError("disk gone")

    floors = RewardFloors()
    floors.settled(await played(Toll))
    broken = await episode_of(Breaks(), ["a"])
    assert floors.settled([broken]) == [broken]
    assert (broken.reward, broken.unplayed) == (None, 0)


class _Riddle:
    id, family, split = "t", "riddle", "train"


class _Folder:
    def close(self) -> None: ...


class Riddles(TaskEnv[Any, Any]):
    """Graded at the end with -1 to 0, whoever ends it."""

    def __init__(self) -> None:
        super().__init__(TURNS, None)

    def _select_task(self, options: Any) -> Any:
        return _Riddle()

    def _request(self, task: Any) -> str:
        return "solve it"

    def _open(self, task: Any) -> Any:
        return _Folder()

    def _act(self, task: Any, workspace: Any, action: str) -> tuple[str, bool]:
        if action == "break it":
            raise AgentFault("the folder is gone")
        self.answer = action
        return "noted", action.startswith("guess")

    def _grade(self, task: Any, workspace: Any) -> tuple[float, str]:
        if getattr(self, "answer", "") == "hide":
            raise AgentFault("no grade can be read")
        return (-0.4 if self.answer.startswith("guess") else -1.0), "graded"


@pytest.mark.parametrize("last", ["break it", "hide"])
async def test_a_task_that_its_agent_spoilt_is_worth_what_the_worst_one_is(last: str) -> None:
    floors = RewardFloors()
    good = await episode_of(Riddles(), ["guess"])
    bad = await episode_of(Riddles(), ["a"] * TURNS)
    spoilt = await episode_of(Riddles(), [last, ContextError("too long")])
    graded = await episode_of(Riddles(), ["a", ContextError("too long")])
    assert spoilt.reward == 0.0  # as the environment gave it
    assert rewards_of(floors.settled([good, bad, spoilt, graded])) == [-0.4, -1.0, -1.0, -1.0]


class Policy(EpisodeRunner):
    """Plays the same replies in every episode."""

    def __init__(self, replies: list[Any]) -> None:
        self.replies = replies

    async def run(self, spec: EpisodeSpec) -> Episode:
        said = [one if isinstance(one, Exception) else str(one) for one in self.replies]
        return await run_episode(spec, Guess(), TextAgent(), ScriptedChat(*said), in_place)


async def measured(replies: list[Any], floors: RewardFloors, samples: int = 0) -> dict[str, float]:
    pool = WorkerPool()
    pool.add(Policy(replies), 4)
    tasks = [TaskRef(f"h{n}", n, "heldout") for n in range(4)]
    limits = {"": EpisodeLimits(TURNS, 5.0)}
    try:
        result = await evaluate(tasks, pool, limits, 0, samples=samples, floors=floors)
        return result.metrics()
    finally:
        pool.close()


async def test_a_policy_that_dies_is_not_measured_as_better_than_one_that_plays() -> None:
    floors = RewardFloors()
    alone = await measured([ReplyTimeout("no end")], floors)
    assert "heldout/reward" not in alone  # nothing has shown what an episode may cost
    plays = await measured(["a", "guess 7"], floors)
    dies = await measured([ReplyTimeout("no end")], floors)
    assert plays["heldout/reward"] == -0.7
    assert dies["heldout/reward"] <= plays["heldout/reward"]
    assert plays["heldout/success"] == dies["heldout/success"] == 0.0


async def test_sampled_episodes_have_their_own_success_and_reward() -> None:
    values = await measured(["guess 2"], RewardFloors(), samples=2)
    assert values["heldout/sampled_reward"] == -0.2
    assert values["heldout/sampled_success"] == 0.0
    assert "heldout/pass@1" not in values


async def test_a_resumed_run_knows_what_it_had_seen() -> None:
    floors, later = RewardFloors(), RewardFloors()
    in_mixture = [replace(e, task=replace(TASK, env="guess")) for e in await played(Toll)]
    floors.settled([*await played(Guess), *in_mixture])
    told = floors.metrics()
    assert told["rewards/lowest_return"] == -1.0
    assert told["env/guess/rewards/lowest_return"] == pytest.approx(-1.6)
    later.restore({**told, "train/reward": 1.0})
    assert later.metrics() == told


@pytest.mark.parametrize(
    ("info", "reward", "success"),
    [
        ({"success": True}, -0.2, True),
        ({"success": False}, 3.0, False),
        ({"success": 1.0}, 0.0, True),
        ({"success": None}, 1.0, True),
        ({}, 1.0, True),
        ({}, 0.9, False),
    ],
)
async def test_what_an_environment_says_of_success_counts(
    info: dict[str, Any], reward: float, success: bool
) -> None:
    class Says(Guess):
        def step(self, action: str) -> Any:
            return "over", reward, True, False, info

    assert (await episode_of(Says(), ["a"])).success is success


async def test_success_is_lost_with_the_episode_and_must_be_a_truth_value() -> None:
    class Says(Guess):
        def __init__(self, success: Any) -> None:
            self.success = success

        def step(self, action: str) -> Any:
            return "go on", 1.0, False, False, {"success": self.success}

    late = await episode_of(Says(True), ["a", ReplyTimeout("no end")])
    assert (late.solved, late.success) == (None, False)
    cut = await episode_of(Says(True), ["a", ContextError("too long")])
    assert cut.success
    odd = await episode_of(Says("yes"), ["a"])
    assert odd.stop_reason is StopReason.ENV_ERROR
    assert "got info['success']='yes', expected True or False" in (odd.error or "")
