"""Sandboxes that stand ready: handed over once, bounded, ended with their owner."""

import threading

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import ExecResult, SandboxSpec
from clawrl_gym.envs.sandbox.launcher_client import launcher_client
from clawrl_gym.envs.sandbox.processes import children
from clawrl_gym.envs.sandbox.ready import ReadySandboxes, Template
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from tests.support.waiting import becomes_true


class Box:
    """A sandbox that counts what is done to it."""

    def __init__(self):
        self.is_closed = False
        self.answers = True

    def exec(self, command, timeout_s):
        if not self.answers:
            raise SandboxError("it is dead")
        return ExecResult("", 0)

    def close(self):
        self.is_closed = True


class Maker:
    """What starts boxes; `fails` makes it refuse."""

    def __init__(self, most=2, key="one"):
        self.boxes = []
        self.threads = set()
        self.fails = False
        self.template = Template(key, self.start, most)

    def start(self):
        self.threads.add(threading.current_thread().name)
        if self.fails:
            raise SandboxError("no more room")
        self.boxes.append(Box())
        return self.boxes[-1]

    def open_count(self):
        return sum(not box.is_closed for box in self.boxes)


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ready(clock):
    ready = ReadySandboxes(clock)
    yield ready
    ready.close()


def test_what_is_taken_now_and_then_starts_no_more_than_is_taken(ready):
    maker = Maker()
    taken = [ready.take(maker.template) for _ in range(3)]
    assert taken == maker.boxes
    assert maker.threads == {threading.current_thread().name}


def test_what_is_taken_often_stands_ready_and_is_handed_over_once(ready):
    maker = Maker(most=2)
    taken = [ready.take(maker.template) for _ in range(20)]
    assert becomes_true(lambda: len(maker.boxes) >= 2 and maker.open_count() >= 22)
    maker.fails = True  # so that what comes now was there before
    taken += [ready.take(maker.template) for _ in range(2)]
    assert len({id(box) for box in taken}) == 22
    with pytest.raises(SandboxError, match="no more room"):
        ready.take(maker.template)


def test_threads_that_take_at_once_never_get_the_same(ready):
    maker = Maker(most=8)
    taken: list[Box] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(ready.take(maker.template) for _ in range(50)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(box) for box in taken}) == 400
    assert becomes_true(lambda: maker.open_count() == 408)
    ready.close()
    assert maker.open_count() == 400


def test_none_stands_ready_where_none_is_wanted(ready):
    maker = Maker(most=0)
    assert [ready.take(maker.template) for _ in range(50)] == maker.boxes
    assert maker.threads == {threading.current_thread().name}


def test_one_that_ended_while_it_stood_there_is_passed_over(ready):
    maker = Maker(most=1)
    for _ in range(8):
        ready.take(maker.template)
    assert becomes_true(lambda: len(maker.boxes) >= 9 and maker.open_count() == 9)
    dead = maker.boxes[8]
    for box in maker.boxes:
        box.answers = False
    # It may be made, and not stand there yet.
    assert becomes_true(lambda: ready.take(maker.template).answers and dead.is_closed)


def comes_to(maker, boxes):
    return becomes_true(lambda: len(maker.boxes) == boxes)


def test_the_template_that_was_taken_longest_ago_gives_its_place_up(ready):
    makers = [Maker(most=1, key=str(number)) for number in range(6)]
    for maker in makers:
        for _ in range(4):
            ready.take(maker.template)
        assert comes_to(maker, 5)
    assert becomes_true(lambda: [m.open_count() for m in makers] == [4, 4, 5, 5, 5, 5])


def test_those_that_nobody_takes_end(ready, clock):
    maker, other = Maker(most=2), Maker(most=2, key="other")
    for _ in range(8):
        ready.take(maker.template)
    assert becomes_true(lambda: maker.open_count() == 10)
    clock.now_s = 61.0
    for _ in range(4):
        ready.take(other.template)  # which has the thread look
    assert becomes_true(lambda: maker.open_count() == 8)


def test_a_start_that_fails_in_the_background_is_heard_by_who_takes_next(ready):
    maker = Maker()
    for _ in range(3):
        ready.take(maker.template)
    maker.fails = True
    with pytest.raises(SandboxError, match="no more room"):
        ready.take(maker.template)
    assert becomes_true(lambda: len(maker.threads) == 2)
    maker.fails = False
    assert ready.take(maker.template) is maker.boxes[-1]


def test_after_the_end_what_is_taken_is_fresh(ready):
    maker = Maker()
    ready.close()
    assert [ready.take(maker.template) for _ in range(20)] == maker.boxes
    assert maker.threads == {threading.current_thread().name}


@pytest.mark.sandbox
def test_real_ones_are_fresh_bounded_and_of_the_asked_kind():
    sandboxes = Sandboxes.of({"ready": 2, "memory_mb": 64})
    sandboxes.open(SandboxSpec("/srv/here")).close()  # so that there is a launcher
    before = set(children(launcher_client().launcher_pid))
    here, there = SandboxSpec("/srv/here"), SandboxSpec("/srv/there", {"A": "1"})
    for _ in range(12):
        for spec in (here, there):
            sandbox = sandboxes.open(spec)
            assert sandbox.exec("ls /root; touch /root/left; pwd; echo $A", 5).output == (
                f"{spec.workdir}\n{spec.env.get('A', '')}\n"
            )
            sandbox.close()

    def own() -> set[int]:
        return set(children(launcher_client().launcher_pid)) - before

    assert becomes_true(lambda: len(own()) <= 4)
