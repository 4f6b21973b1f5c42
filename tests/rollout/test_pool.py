"""The pool of workers: one that fails, hangs or is cut off costs what it had, and is told once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from clawrl_gym.config import RolloutConfig
from clawrl_gym.core.errors import ClawError, EnvError, PolicyError
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.collection.group import run_group
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool, WorkerRetired
from clawrl_gym.rollout.episodes.episode import EpisodeLimits, EpisodeSpec
from tests.rollout.virtual_time import run_in_virtual_time

TASK = TaskRef("a", 0, "train")
LASTS_S = 2.0


def episode_of(spec: EpisodeSpec, stop: StopReason = StopReason.TERMINATED) -> Episode:
    reward = None if stop.is_infrastructure else 1.0
    return Episode(spec.session_id, spec.group_id, spec.task, stop, reward, turns=int(not reward))


class Worker(EpisodeRunner):
    """Takes two seconds for an episode. It can be killed, be stopped and go on."""

    restart_s = 5.0

    def __init__(self) -> None:
        self.attempts = 0
        self.killed = 0
        self.inside: set[asyncio.Future[None]] = set()
        self._up = asyncio.Event()
        self._up.set()
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    async def run(self, spec: EpisodeSpec) -> Episode:
        self.attempts += 1
        if not self._up.is_set():
            raise EnvError("its process ended")
        death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inside.add(death)
        try:
            async with asyncio.timeout(LASTS_S):
                await death
        except TimeoutError:
            await self._goes_on.wait()
            return episode_of(spec)
        finally:
            self.inside.discard(death)
        raise AssertionError

    async def ready(self) -> None:
        await self._up.wait()
        await self._goes_on.wait()

    def kill(self) -> None:
        """Its process ends; another is there after a while."""
        self.killed += 1
        self._up.clear()
        self._goes_on.set()
        for death in self.inside:
            if not death.done():
                death.set_exception(EnvError("its process ended"))
        asyncio.get_running_loop().call_later(self.restart_s, self._up.set)

    def stop(self) -> None:
        """As by SIGSTOP."""
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()


class Played:
    """64 episodes in groups of 8 on two workers with 16 slots, with what befalls them."""

    def __init__(
        self,
        befalls: Callable[[Worker, WorkerPool], Coroutine[None, None, None]],
        kind: type[Worker] = Worker,
    ) -> None:
        self.kind = kind
        self.lines: list[str] = []
        self.closed: list[str] = []
        self.episodes: list[Episode] = []
        run_in_virtual_time(self._play(befalls))

    async def _play(
        self, befalls: Callable[[Worker, WorkerPool], Coroutine[None, None, None]]
    ) -> None:
        self.workers = [self.kind(), self.kind()]

        async def close(spec: EpisodeSpec, episode: Episode) -> None:
            self.closed.append(spec.session_id)
            raise PolicyError("the gateway is busy")  # which keeps nobody from going on

        pool = WorkerPool(self.workers, 16, on_lost=close, say=self.lines.append)
        pool.listen()
        config = RolloutConfig(group_size=8, max_retries=2)
        async with asyncio.TaskGroup() as running:
            running.create_task(befalls(self.workers[0], pool))
            groups = [
                running.create_task(
                    run_group(
                        number,
                        TASK,
                        0,
                        config,
                        EpisodeLimits(4, config.episode_timeout_s),
                        pool,
                        self.episodes.append,
                    )
                )
                for number in range(8)
            ]
        self.ended_s = asyncio.get_running_loop().time()
        self.rewards = [e.reward for group in groups for e in group.result().episodes_G]
        assert pool.in_flight == 0
        pool.close()


def test_a_killed_worker_costs_the_episodes_that_were_in_it_and_is_told_once() -> None:
    async def killed(worker: Worker, pool: WorkerPool) -> None:
        await asyncio.sleep(1)
        worker.kill()

    played = Played(killed)
    assert played.rewards == [1.0] * 64
    assert len(played.episodes) == 64 + 16
    assert len(played.closed) == len(set(played.closed)) == 16
    assert [e.is_reported for e in played.episodes if e.error] == [True] * 16
    assert played.lines == [
        "worker 1 failed: its process ended; 16 episodes in it are run again",
        "worker 1 takes episodes again after 5.0 s",
    ]


def test_a_worker_that_dies_again_and_again_attracts_nothing() -> None:
    async def killed(worker: Worker, pool: WorkerPool) -> None:
        worker.restart_s = 0.1
        for _ in range(5):
            await asyncio.sleep(0.8)
            worker.kill()

    played = Played(killed)
    assert played.rewards == [1.0] * 64
    assert played.workers[0].attempts <= 16 * 3  # the pauses before its next episodes grow
    assert len(played.lines) <= 6


def test_a_worker_that_is_stopped_for_a_while_gets_nothing_new_and_loses_nothing() -> None:
    async def stopped(worker: Worker, pool: WorkerPool) -> None:
        await asyncio.sleep(1)
        worker.stop()
        await asyncio.sleep(20)
        assert pool.workers == 1
        worker.go_on()

    played = Played(stopped)
    assert played.rewards == [1.0] * 64
    assert len(played.episodes) == 64
    assert played.closed == []
    assert played.lines == [
        "worker 1 has not answered for 15 s: it gets no new episodes until it does",
        "worker 1 answers again",
    ]


class Mortal(Worker):
    """Whoever waits for its answer while its process ends hears of that."""

    def __init__(self) -> None:
        super().__init__()
        self._gone = asyncio.Event()

    async def run(self, spec: EpisodeSpec) -> Episode:
        episode = await super().run(spec)
        if self._gone.is_set():
            raise EnvError("its process ended")
        return episode

    async def ready(self) -> None:
        if not self._gone.is_set():
            gone = asyncio.ensure_future(self._gone.wait())
            answers = asyncio.ensure_future(super().ready())
            await asyncio.wait({gone, answers}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            answers.cancel()
        if self._gone.is_set():
            raise EnvError("its process ended")

    async def recovered(self) -> None:
        await super().ready()
        self._gone.clear()

    def kill(self) -> None:
        self._gone.set()
        super().kill()


def test_a_worker_that_ends_in_its_silence_gets_nothing_until_it_has_recovered() -> None:
    async def ended(worker: Worker, pool: WorkerPool) -> None:
        await asyncio.sleep(1)
        worker.restart_s = 1.0
        worker.stop()
        await asyncio.sleep(20)
        worker.kill()
        await asyncio.sleep(0.8)
        assert pool.workers == 1

    played = Played(ended, Mortal)
    assert played.rewards == [1.0] * 64
    assert len(played.closed) == 16
    assert played.lines == [
        "worker 1 has not answered for 15 s: it gets no new episodes until it does",
        "worker 1 has ended: its episodes are run again",
        "worker 1 takes episodes again after 1.0 s",
    ]


def test_a_worker_that_never_answers_again_is_ended_and_its_sessions_are_closed() -> None:
    async def stopped(worker: Worker, pool: WorkerPool) -> None:
        await asyncio.sleep(1)
        worker.stop()

    played = Played(stopped)
    assert played.rewards == [1.0] * 64
    assert played.workers[0].killed == 1
    assert len(played.closed) == 16
    assert played.ended_s < 75
    assert played.lines[1] == (
        "worker 1 has not answered for 60 s: it is ended; 16 episodes in it are run again"
    )


def test_a_worker_in_which_nothing_starts_attracts_nothing_while_another_works() -> None:
    class Unusable(Worker):
        async def run(self, spec: EpisodeSpec) -> Episode:
            self.attempts += 1
            await asyncio.sleep(0.001)
            return Episode(
                spec.session_id, 0, TASK, StopReason.ENV_ERROR, None, 0, error="no bubblewrap"
            )

    async def play() -> tuple[list[str], int, list[Episode]]:
        lines: list[str] = []
        bad = Unusable()
        pool = WorkerPool([bad, Worker()], 16, say=lines.append)
        spec = EpisodeSpec("s", 0, TASK, max_turns=1, timeout_s=1)

        async def until_it_works() -> Episode:
            while (episode := await pool.run(spec)).reward is None:
                pass
            return episode

        played = await asyncio.gather(*(until_it_works() for _ in range(64)))
        return lines, bad.attempts, list(played)

    lines, attempts, episodes = run_in_virtual_time(play())
    assert len(episodes) == 64
    assert attempts < 64
    (line,) = lines
    assert line.startswith("worker 1 is left out for a while: its last 16 episodes could not start")
    assert "no bubblewrap" in line


def test_a_worker_alone_is_never_left_out_for_what_its_environments_do() -> None:
    class Unusable(Worker):
        async def run(self, spec: EpisodeSpec) -> Episode:
            self.attempts += 1
            return episode_of(spec, StopReason.ENV_ERROR)

    async def play() -> float:
        pool = WorkerPool([Unusable()], 4)
        spec = EpisodeSpec("s", 0, TASK, max_turns=1, timeout_s=1)
        await asyncio.gather(*(pool.run(spec) for _ in range(100)))
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(play()) == 0.0


def test_an_episode_waits_for_a_worker_that_is_replaced_and_is_not_failed() -> None:
    class Retires(Worker):
        is_renewed = False

        async def run(self, spec: EpisodeSpec) -> Episode:
            if not self.is_renewed:
                raise WorkerRetired
            return episode_of(spec)

        async def recovered(self) -> None:
            await asyncio.sleep(3)
            self.is_renewed = True

    async def play() -> tuple[list[Episode], list[str]]:
        lines: list[str] = []
        pool = WorkerPool([Retires()], 4, say=lines.append)
        spec = EpisodeSpec("s", 0, TASK, max_turns=1, timeout_s=1)
        return await asyncio.gather(*(pool.run(spec) for _ in range(9))), lines

    episodes, lines = run_in_virtual_time(play())
    assert [episode.reward for episode in episodes] == [1.0] * 9
    assert lines == []


def test_a_worker_that_never_recovers_is_tried_again_so_that_episodes_say_why() -> None:
    class Gone(Worker):
        async def run(self, spec: EpisodeSpec) -> Episode:
            raise ClawError("no node for it")

        async def recovered(self) -> None:
            await asyncio.Event().wait()

    async def play() -> list[str | None]:
        pool = WorkerPool([Gone()], 1)
        spec = EpisodeSpec("s", 0, TASK, max_turns=1, timeout_s=1)
        return [(await pool.run(spec)).error for _ in range(2)]

    assert run_in_virtual_time(play()) == ["worker 1 failed: no node for it"] * 2


def test_who_cancels_an_episode_is_obeyed_and_its_slot_is_free_again() -> None:
    async def play() -> tuple[bool, int]:
        pool = WorkerPool([Worker()], 1)
        spec = EpisodeSpec("s", 0, TASK, max_turns=1, timeout_s=1)
        playing = asyncio.create_task(pool.run(spec))
        await asyncio.sleep(1)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return (await pool.run(spec)).reward == 1.0, pool.in_flight

    assert run_in_virtual_time(play()) == (True, 0)


def test_an_end_that_never_comes_is_the_end_of_its_episode_alone() -> None:
    class Loses(Worker):
        async def run(self, spec: EpisodeSpec) -> Any:
            await asyncio.Event().wait()

    async def play() -> tuple[str | None, int]:
        pool = WorkerPool([Loses()], 1)
        spec = EpisodeSpec("s", 0, TASK, max_turns=1, timeout_s=1)
        return (await pool.run(spec)).error, pool.workers

    assert run_in_virtual_time(play()) == ("worker 1 has not ended it in 63 s", 1)


def test_a_limit_is_kept_by_all_workers_together_and_may_change() -> None:
    async def play() -> tuple[list[int], int, float]:
        pool = WorkerPool([Worker(), Worker()], 8)
        pool.limit = 4
        spec = EpisodeSpec("s", 0, TASK, max_turns=1, timeout_s=1)
        playing = [asyncio.create_task(pool.run(spec)) for _ in range(20)]
        seen = []
        for limit in (4, 10, 2):
            pool.limit = limit
            await asyncio.sleep(0.1)
            seen.append(pool.in_flight)
        playing[-1].cancel()
        await asyncio.sleep(0.1)
        seen.append(pool.waiting)
        pool.limit = 100
        await asyncio.wait(playing)
        return seen, pool.ended, asyncio.get_running_loop().time()

    assert run_in_virtual_time(play()) == ([4, 10, 10, 9], 19, 4.0)


def test_an_environment_of_which_a_worker_has_few_is_waited_for_outside_of_the_time_limit() -> None:
    """80 of one with two places take longer than any of them may; 20 of another pass them."""
    ended: list[tuple[str, float]] = []

    async def play() -> None:
        worker = Worker()
        pool = WorkerPool([worker], 16, places={"few": 2})
        loop = asyncio.get_running_loop()

        async def one(env: str, number: int) -> None:
            task = TaskRef("a", 0, "train", env)
            await pool.run(EpisodeSpec(f"{env}-{number}", 1, task, 4, 0.5))
            ended.append((env, loop.time()))

        async with asyncio.TaskGroup() as running:
            for number in range(80):
                running.create_task(one("few", number))
            for number in range(20):
                running.create_task(one("many", number))
            await asyncio.sleep(1)
            assert (pool.in_flight, pool.waiting) == (16, 6)
            await asyncio.sleep(4)
            assert (pool.in_flight, pool.waiting) == (2, 0)
        assert pool.in_flight == 0
        assert worker.attempts == 100

    run_in_virtual_time(play())
    assert [at for env, at in ended if env == "many"] == [2.0] * 14 + [4.0] * 6
    assert [at for env, at in ended if env == "few"] == [
        LASTS_S * (number // 2 + 1) for number in range(80)
    ]
