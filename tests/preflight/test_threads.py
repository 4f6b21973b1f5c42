"""Threads for blocking calls: few where calls are short, as many as block at once, and order."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import gymnasium
import pytest

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.rollout.episodes.environment_thread import EnvironmentThread
from clawrl_gym.rollout.episodes.threads import OwnThread, SharedThreads
from tests.support.waiting import until


@pytest.fixture
async def threads() -> AsyncIterator[SharedThreads]:
    shared = SharedThreads()
    yield shared
    shared.end()


async def test_thousands_of_short_calls_take_few_threads(threads: SharedThreads) -> None:
    lanes = [threads.lane() for _ in range(2000)]
    names: set[str] = set()
    for _ in range(3):
        calls = [lane.submit(lambda: names.add(threading.current_thread().name)) for lane in lanes]
        await asyncio.gather(*calls)
    assert 0 < len(names) <= threads.count < 500


async def test_as_many_calls_as_there_are_may_block_at_once(threads: SharedThreads) -> None:
    barrier = threading.Barrier(60)
    calls = [threads.lane().submit(lambda: barrier.wait(60)) for _ in range(60)]
    assert sorted(await asyncio.gather(*calls)) == list(range(60))


class _Starved(SharedThreads):
    """Whose threads wait for a core, as others take all of them."""

    def _work(self, returns: Any) -> None:
        time.sleep(0.5)
        super()._work(returns)


async def test_threads_that_wait_for_a_core_are_not_joined_by_more() -> None:
    starved = _Starved()
    lanes = [starved.lane() for _ in range(20)]
    await asyncio.gather(*(lane.submit(lambda: None) for lane in lanes))
    assert starved.count <= len(lanes)
    starved.end()


async def test_calls_of_one_lane_go_one_after_another(threads: SharedThreads) -> None:
    lane, inside, order = threads.lane(), threading.Lock(), []

    def call(number: int) -> int:
        assert inside.acquire(blocking=False)
        order.append(number)
        inside.release()
        return number

    calls = [lane.submit(lambda n=number: call(n)) for number in range(300)]  # type: ignore[misc]
    assert await asyncio.gather(*calls) == list(range(300)) == order


async def test_a_call_that_nobody_waits_for_any_more_is_left_out(threads: SharedThreads) -> None:
    lane, may_end, begun = threads.lane(), threading.Event(), []
    first = lane.submit(lambda: may_end.wait(60))
    second = lane.submit(lambda: begun.append(2))
    third = lane.submit(lambda: begun.append(3))
    second.cancel()
    may_end.set()
    assert await first
    await third
    assert begun == [3]


async def test_what_a_call_raises_is_raised(threads: SharedThreads) -> None:
    def fail() -> None:
        raise KeyError("gone")

    for lane in (threads.lane(), OwnThread("own")):
        with pytest.raises(KeyError, match="gone"):
            await lane.submit(fail)
        assert await lane.submit(lambda: 3) == 3
        lane.end()


class Odd(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Notes its threads; an action is what it raises, or `wait`."""

    begun, may_end = threading.Event(), threading.Event()
    closed: ClassVar[list[int]] = []
    made: ClassVar[list["weakref.ref[Odd]"]] = []

    def __init__(self) -> None:
        self.made.append(weakref.ref(self))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return threading.get_ident(), {}

    def step(self, action: str) -> Any:
        if action == "wait":
            self.begun.set()
            self.may_end.wait(60)
        if action == "stop":
            raise StopIteration("no more")
        if action == "cancel":
            raise asyncio.CancelledError("inside")
        return threading.get_ident()

    def close(self) -> None:
        self.closed.append(threading.get_ident())


def env_of(threads: SharedThreads, own_thread: bool) -> EnvironmentThread:
    config = GymEnvConfig(target=f"{__name__}:Odd", own_thread=own_thread)
    return EnvironmentThread(config, 0, threads)


async def test_an_environment_may_keep_its_thread(threads: SharedThreads) -> None:
    env = env_of(threads, own_thread=True)
    await env.call(env.reset)
    idents: set[object] = set()
    for _ in range(20):
        idents.add(await env.call(env.step, "on"))
    Odd.closed.clear()
    await env.close()
    assert idents == set(Odd.closed)
    assert threads.count == 0


@pytest.mark.parametrize("own_thread", [True, False])
async def test_errors_that_mean_something_to_the_loop_are_the_environments(
    threads: SharedThreads, own_thread: bool
) -> None:
    env = env_of(threads, own_thread)
    await env.call(env.reset)
    with pytest.raises(EnvError, match=r"raised StopIteration\(no more\)"):
        await env.call(env.step, "stop")
    with pytest.raises(EnvError, match=r"raised CancelledError\(inside\)"):
        await env.call(env.step, "cancel")
    await env.close()


@pytest.mark.parametrize("own_thread", [True, False])
async def test_a_new_environment_takes_the_place_of_one_that_blocks(
    threads: SharedThreads, own_thread: bool
) -> None:
    Odd.begun.clear()
    Odd.may_end.clear()
    Odd.closed.clear()
    Odd.made.clear()
    env = env_of(threads, own_thread)
    await env.call(env.reset)
    blocked = asyncio.ensure_future(env.call(env.step, "wait"))
    await asyncio.to_thread(Odd.begun.wait, 60)
    env.discard()
    await env.call(env.reset)
    assert Odd.closed == []
    Odd.may_end.set()
    await blocked
    await env.close()
    await until(lambda: len(Odd.closed) == 2)
    del env, blocked
    assert len(Odd.made) == 2

    def none_is_kept() -> bool:
        gc.collect()
        return not any(made() for made in Odd.made)

    await until(none_is_kept)  # an idle thread keeps none alive


class Unclosable(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Fails in closing, by what is asked of it first."""

    error: ClassVar[BaseException]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "go", {}

    def close(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [ConnectionError("its server is gone"), SystemExit(3)])
async def test_an_environment_that_fails_in_closing_is_a_line_in_the_log(
    threads: SharedThreads, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    Unclosable.error = error
    config = GymEnvConfig(target=f"{__name__}:Unclosable", own_thread=True)
    env = EnvironmentThread(config, 817)
    await env.call(env.reset)
    await env.close()
    assert str(error) in caplog.text
    await until(lambda: all(one.name != "env-817" for one in threading.enumerate()))


class Slow(gymnasium.Env[str, str]):  # type: ignore[misc]
    """The first that is made takes until it may; all note what is asked of them."""

    begun, may_be_made = threading.Event(), threading.Event()
    asked: ClassVar[list[tuple[int, str]]] = []
    count = 0

    def __init__(self) -> None:
        self.number = Slow.count
        Slow.count += 1
        if self.number == 0:
            self.begun.set()
            self.may_be_made.wait(60)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.asked.append((self.number, f"reset to {seed}"))
        return "go", {}

    def step(self, action: str) -> Any:
        self.asked.append((self.number, action))
        return "on", 0.0, False, False, {}

    def close(self) -> None:
        self.asked.append((self.number, "close"))


@pytest.mark.parametrize("own_thread", [True, False])
async def test_an_environment_that_is_made_too_late_is_closed_and_nothing_else(
    threads: SharedThreads, own_thread: bool
) -> None:
    Slow.begun.clear()
    Slow.may_be_made.clear()
    Slow.asked.clear()
    Slow.count = 0
    config = GymEnvConfig(target=f"{__name__}:Slow", own_thread=own_thread)
    env = EnvironmentThread(config, 0, threads)
    late = asyncio.ensure_future(env.call(env.reset, seed=1))
    await asyncio.to_thread(Slow.begun.wait, 60)
    late.cancel()
    env.discard()
    await env.call(env.reset, seed=2)
    Slow.may_be_made.set()
    await until(lambda: (0, "close") in Slow.asked)
    await env.call(env.step, "right")
    await env.close()
    assert Slow.asked == [(1, "reset to 2"), (0, "close"), (1, "right"), (1, "close")]
