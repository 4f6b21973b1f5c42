"""The dispatcher: groups, retries, back-pressure; deterministic tasks."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from clawrl_gym.config import RolloutConfig
from clawrl_gym.core.errors import EnvError, first_of
from clawrl_gym.core.metrics import wilson
from clawrl_gym.core.types import Episode, Group, StopReason, TaskRef
from clawrl_gym.rollout.collection.dispatcher import Dispatcher
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.episodes.episode import EpisodeLimits, EpisodeSpec
from clawrl_gym.rollout.evaluation import evaluate

CONFIG = RolloutConfig(groups=2, group_size=3, max_staleness=1, max_retries=2)

LIMITS = {"": EpisodeLimits(4, 5.0)}


class Runner(EpisodeRunner):
    """Ends every episode at once; `outcome` says how."""

    def __init__(self, outcome: Callable[[EpisodeSpec], StopReason] | None = None) -> None:
        self.specs: list[EpisodeSpec] = []
        self._outcome = outcome or (lambda spec: StopReason.TERMINATED)

    async def run(self, spec: EpisodeSpec) -> Episode:
        self.specs.append(spec)
        await asyncio.sleep(0)
        stop = self._outcome(spec)
        reward = None if stop.is_infrastructure else 1.0
        return Episode(spec.session_id, spec.group_id, spec.task, stop, reward, turns=1)


def make(runner: Runner, config: RolloutConfig = CONFIG) -> tuple[Dispatcher, list[Group]]:
    groups: list[Group] = []

    async def keep(group: Group, started_s: float) -> None:
        groups.append(group)

    pool = WorkerPool([runner], slots=64)
    tasks = Mixture({"": TaskSampler({"train": ["a", "b", "c"], "heldout": ["h"]}, seed=5)})
    return Dispatcher(config, LIMITS, tasks, pool, keep, lambda episode: None), groups


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_no_more_groups_are_outstanding_than_the_staleness_bound_allows() -> None:
    dispatcher, groups = make(Runner())
    running = asyncio.create_task(dispatcher.run(range(100)))
    await settle()
    assert (len(groups), dispatcher.outstanding) == (4, 4)
    dispatcher.release(2)
    await settle()
    assert len(groups) == 6
    running.cancel()


async def test_samples_do_not_grow_old_in_front_of_a_learner_that_never_waits() -> None:
    dispatcher, groups = make(Runner(), CONFIG.model_copy(update={"max_staleness": 2}))
    running = asyncio.create_task(dispatcher.run(range(100)))
    await settle()
    assert len(groups) == 6
    for update in range(1, 4):
        dispatcher.release(2)
        dispatcher.pace(ready=dispatcher.outstanding, waited_s=0.0, learned_s=1.0)
        await settle()
        assert (dispatcher.outstanding, len(groups)) == (4, 4 + 2 * update)
    running.cancel()


async def test_a_learner_that_waited_gets_the_whole_bound_again() -> None:
    dispatcher, _groups = make(Runner(), CONFIG.model_copy(update={"max_staleness": 2}))
    running = asyncio.create_task(dispatcher.run(range(100)))
    await settle()
    dispatcher.release(2)
    dispatcher.pace(ready=4, waited_s=0.0, learned_s=1.0)
    dispatcher.release(2)
    dispatcher.pace(ready=2, waited_s=0.2, learned_s=1.0)
    await settle()
    assert dispatcher.outstanding == 6
    running.cancel()


async def test_groups_in_flight_leave_the_bound_as_it_is() -> None:
    dispatcher, _groups = make(Runner(), CONFIG.model_copy(update={"max_staleness": 2}))
    running = asyncio.create_task(dispatcher.run(range(100)))
    await settle()
    dispatcher.release(2)
    dispatcher.pace(ready=3, waited_s=0.0, learned_s=1.0)
    await settle()
    assert dispatcher.outstanding == 6
    running.cancel()


async def test_sync_mode_collects_exactly_one_batch_ahead() -> None:
    dispatcher, groups = make(Runner(), CONFIG.model_copy(update={"mode": "sync"}))
    running = asyncio.create_task(dispatcher.run(range(100)))
    await settle()
    assert len(groups) == 2
    running.cancel()


async def test_a_group_holds_group_size_episodes_of_one_task_and_its_version() -> None:
    dispatcher, groups = make(Runner())
    dispatcher.version = 9
    await dispatcher.run([0])
    (group,) = groups
    assert len(group.episodes_G) == 3
    assert len({episode.session_id for episode in group.episodes_G}) == 3
    assert {episode.task for episode in group.episodes_G} == {group.task}
    assert group.version == 9


async def test_infrastructure_failures_are_run_again_and_rewards_stay_out() -> None:
    failed: set[str] = set()

    def first_attempts_fail(spec: EpisodeSpec) -> StopReason:
        member = spec.session_id.split("-")[1]
        if member in failed:
            return StopReason.TERMINATED
        failed.add(member)
        return StopReason.ENV_ERROR

    runner = Runner(first_attempts_fail)
    dispatcher, groups = make(runner)
    await dispatcher.run([0])
    assert len(runner.specs) == 6
    assert [episode.reward for episode in groups[0].episodes_G] == [1.0, 1.0, 1.0]


async def test_retries_are_bounded_and_a_lost_episode_has_no_reward() -> None:
    runner = Runner(lambda spec: StopReason.POLICY_ERROR)
    dispatcher, groups = make(runner)
    await dispatcher.run([0])
    assert len(runner.specs) == 3 * (CONFIG.max_retries + 1)
    assert [episode.reward for episode in groups[0].episodes_G] == [None] * 3


async def test_a_worker_that_raises_is_data() -> None:
    class Broken(Runner):
        async def run(self, spec: EpisodeSpec) -> Episode:
            raise RuntimeError("actor died")

    pool = WorkerPool([Broken()], slots=2)
    spec = EpisodeSpec("s", 0, TaskRef("a", 0, "train"), max_turns=1, timeout_s=1)
    episode = await pool.run(spec)
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert "actor died" in (episode.error or "")
    assert pool.in_flight == 0


async def test_the_pool_never_runs_more_than_its_slots() -> None:
    class Peak(Runner):
        running = peak = 0

        async def run(self, spec: EpisodeSpec) -> Episode:
            self.running += 1
            self.peak = max(self.peak, self.running)
            await asyncio.sleep(0.001)
            self.running -= 1
            return await super().run(spec)

    workers = [Peak(), Peak()]
    pool = WorkerPool(workers, slots=3)
    spec = EpisodeSpec("s", 0, TaskRef("a", 0, "train"), max_turns=1, timeout_s=1)
    await asyncio.gather(*(pool.run(spec) for _ in range(30)))
    assert max(worker.peak for worker in workers) <= 6
    assert sum(len(worker.specs) for worker in workers) == 30
    assert min(len(worker.specs) for worker in workers) > 5


async def test_measured_episodes_go_before_trained_ones_and_no_slot_is_lost() -> None:
    go, order = asyncio.Event(), list[str]()

    class Waits(Runner):
        async def run(self, spec: EpisodeSpec) -> Episode:
            await go.wait()
            order.append(spec.session_id)
            return await super().run(spec)

    pool = WorkerPool([Waits()], slots=1)

    def start(name: str, group_id: int | None) -> "asyncio.Task[Episode]":
        task = TaskRef("a", 0, "train")
        spec = EpisodeSpec(name, group_id, task, max_turns=1, timeout_s=5.0)
        return asyncio.create_task(pool.run(spec))

    names = [("t1", 0), ("t2", 0), ("t3", 0), ("h1", None), ("h2", None)]
    started = [start(name, group_id) for name, group_id in names]
    await asyncio.sleep(0)
    started[1].cancel()  # waits for a slot
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*started, return_exceptions=True)
    assert order == ["t1", "h1", "h2", "t3"]
    assert not (await start("t4", 0)).error
    assert pool.in_flight == 0


async def test_workers_join_and_leave_while_episodes_run() -> None:
    go = asyncio.Event()

    class Waits(Runner):
        async def run(self, spec: EpisodeSpec) -> Episode:
            await go.wait()
            return await super().run(spec)

    first, second = Waits(), Waits()
    pool = WorkerPool()

    def start(name: str) -> "asyncio.Task[Episode]":
        task = TaskRef("a", 0, "train")
        return asyncio.create_task(pool.run(EpisodeSpec(name, 0, task, max_turns=1, timeout_s=5.0)))

    started = [start(f"e{number}") for number in range(6)]
    await asyncio.sleep(0)
    assert pool.in_flight == 0  # nobody is there: they wait
    pool.add(first, 2)
    pool.remove(first)  # its slots were given away, and nobody holds them yet
    await asyncio.sleep(0)
    assert (pool.in_flight, pool.capacity) == (0, 0)
    pool.add(first, 2)
    await asyncio.sleep(0.001)
    assert pool.in_flight == 2
    pool.remove(first)  # what it runs is given up
    pool.add(second, 3)
    await asyncio.sleep(0.001)
    assert (pool.in_flight, pool.capacity) == (3, 3)
    go.set()
    ended = await asyncio.gather(*started)
    assert (len(first.specs), len(second.specs), pool.in_flight) == (0, 4, 0)
    lost = [episode.error for episode in ended if episode.error]
    assert lost == ["worker 2 did not answer"] * 2
    assert not (await start("e7")).error


async def test_pass_at_k_is_of_samples_at_the_policys_own_temperature() -> None:
    class Half(Runner):
        """Solves every second sample of each task, and loses the last one of task i."""

        async def run(self, spec: EpisodeSpec) -> Episode:
            episode = await super().run(spec)
            if spec.temperature is not None:
                return episode
            number = sum(s.task.id == spec.task.id and s.temperature is None for s in self.specs)
            if spec.task.id == "i" and number > 3:
                return replace(episode, stop_reason=StopReason.ENV_ERROR, reward=None, error="no")
            return replace(episode, reward=float(number % 2))

    runner = Half()
    tasks = [TaskRef(name, 0, "heldout") for name in ("h", "i")]
    result = await evaluate(tasks, WorkerPool([runner], 1), LIMITS, 0, ks=(1, 2, 4), samples=4)
    assert result.attempts is not None
    assert result.attempts.solved == ((4, 2), (3, 2))
    assert {s.temperature for s in runner.specs if s.session_id.startswith("sampled")} == {None}
    metrics = result.metrics()
    assert metrics["heldout/success"] == 1.0
    assert metrics["heldout/pass@1"] == pytest.approx((2 / 4 + 2 / 3) / 2)
    assert metrics["heldout/pass@2"] == pytest.approx((1 - 1 / 6 + 1.0) / 2)
    assert metrics["heldout/pass@4"] == 1.0
    assert (metrics["heldout/samples"], metrics["heldout/samples_lost"]) == (4, 1)


async def test_held_out_tasks_run_greedily_once_each() -> None:
    runner = Runner()
    tasks = TaskSampler({"train": ["a"], "heldout": ["h", "i"]}, seed=0).heldout(9)
    result = await evaluate(tasks, WorkerPool([runner], 8), LIMITS, 1)
    assert (result.n, result.success) == (2, 1.0)
    assert {spec.temperature for spec in runner.specs} == {0.0}
    assert {spec.task.split for spec in runner.specs} == {"heldout"}


class Loses(Runner):
    """Infrastructure that fails on some tasks, whatever is tried."""

    def __init__(self, *lost: str) -> None:
        super().__init__()
        self._lost = lost

    async def run(self, spec: EpisodeSpec) -> Episode:
        episode = await super().run(spec)
        if spec.task.id not in self._lost:
            return episode
        return replace(episode, stop_reason=StopReason.ENV_ERROR, reward=None, error="it died")


async def test_a_held_out_task_that_cannot_be_run_stands_beside_success() -> None:
    runner = Loses("h")
    tasks = TaskSampler({"train": ["a"], "heldout": ["h", "i", "j"]}, seed=0).heldout(9)
    result = await evaluate(tasks, WorkerPool([runner], 8), LIMITS, 1)
    assert (result.n, result.success) == (2, 1.0)
    assert result.lost == ("held-out task 'h' could not be run in 2 attempts: it died",)
    assert result.metrics()["heldout/lost"] == 1.0
    assert result.metrics()["heldout/low"] == pytest.approx(wilson(2, 3)[0])
    assert result.metrics()["heldout/high"] == 1.0
    assert "between 67% and 100%" in (result.warning or "")
    assert sum(spec.task.id == "h" for spec in runner.specs) == 2


async def test_tasks_past_the_deadline_are_failures_and_not_run_again() -> None:
    class Loops(Runner):
        async def run(self, spec: EpisodeSpec) -> Episode:
            episode = await super().run(spec)
            if not str(spec.task.id).endswith(("0", "1", "2", "3")):
                return episode
            return replace(episode, stop_reason=StopReason.DEADLINE, reward=0.0, error="no end")

    runner = Loops()
    tasks = [TaskRef(f"h{n}", n, "heldout") for n in range(50)]
    result = await evaluate(tasks, WorkerPool([runner], 8), LIMITS, 3)
    assert (result.n, result.success, result.lost) == (50, 0.6, ())
    assert len(runner.specs) == 50
    assert result.metrics()["heldout/deadlines"] == 20
    assert "20 of 50 tasks ran into the deadline and count as failed" in (result.warning or "")


async def test_an_evaluation_that_lost_most_tasks_is_no_measure() -> None:
    tasks = TaskSampler({"train": ["a"], "heldout": ["h", "i", "j"]}, seed=0).heldout(9)
    with pytest.raises(EnvError, match=r"2 of 3 held-out tasks were lost; .*it died"):
        await evaluate(tasks, WorkerPool([Loses("h", "i")], 8), LIMITS, 0)


def test_tasks_follow_from_the_seed_and_the_number_alone() -> None:
    ids = [f"t{n}" for n in range(1000)]
    one, same = (TaskSampler({"train": ids, "heldout": ids}, seed=1) for _ in range(2))
    other = TaskSampler({"train": ids, "heldout": ids}, seed=2)
    drawn = [one.train(n) for n in range(50)]
    assert drawn == [same.train(n) for n in range(50)]
    assert drawn != [other.train(n) for n in range(50)]
    assert one.heldout(20) == other.heldout(20)


def test_seeds_of_the_two_splits_never_meet() -> None:
    source = TaskSampler(None, seed=3)
    train = {source.train(n).seed for n in range(2000)}
    assert not train & {task.seed for task in source.heldout(2000)}


async def test_a_task_without_verdicts_is_tried_once_and_not_drawn_again() -> None:
    def outcome(spec: EpisodeSpec) -> StopReason:
        return StopReason.NO_VERDICT if spec.task.id == "a" else StopReason.TERMINATED

    runner = Runner(outcome)
    config = CONFIG.model_copy(update={"mode": "sync", "groups": 1})
    dispatcher, groups = make(runner, config)
    running = asyncio.create_task(dispatcher.run(range(60)))
    for number in range(60):
        while len(groups) <= number:  # noqa: ASYNC110 (the dispatcher has no event for it)
            await asyncio.sleep(0)
        dispatcher.release(1)
    await running
    assert sum(group.task.id == "a" for group in groups) == 1
    assert sum(spec.task.id == "a" for spec in runner.specs) == CONFIG.group_size
    assert {group.task.id for group in groups} == {"a", "b", "c"}


async def test_a_run_ends_with_the_reason_when_no_task_has_verdicts() -> None:
    runner = Runner(lambda spec: StopReason.NO_VERDICT)
    config = CONFIG.model_copy(update={"mode": "sync", "groups": 1})
    dispatcher, groups = make(runner, config)
    running = asyncio.create_task(dispatcher.run(range(60)))
    for number in range(3):
        while len(groups) <= number:  # noqa: ASYNC110 (the dispatcher has no event for it)
            await asyncio.sleep(0)
        dispatcher.release(1)
    with pytest.raises(ExceptionGroup) as failure:
        await running
    assert "nothing is left to train on" in str(first_of(failure.value))
    assert len(groups) == 3


async def test_a_held_out_task_without_verdicts_is_lost_at_once_and_named() -> None:
    def outcome(spec: EpisodeSpec) -> StopReason:
        return StopReason.NO_VERDICT if spec.task.id == "h1" else StopReason.TERMINATED

    runner = Runner(outcome)
    tasks = [TaskRef(f"h{number}", number, "heldout") for number in range(3)]
    result = await evaluate(tasks, WorkerPool([runner], slots=8), LIMITS, 3)
    assert (result.n, len(result.lost)) == (2, 1)
    assert [task.id for task, _ in result.broken] == ["h1"]
    assert len(runner.specs) == 3
