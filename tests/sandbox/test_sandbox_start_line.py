"""Many starts at once go a few at a time."""

import threading

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.start_line import StartLine


def test_no_more_than_so_many_start_at_a_time_and_all_do_in_the_end():
    line, lock = StartLine(3), threading.Lock()
    inside, most, done = 0, 0, 0

    def start():
        nonlocal inside, most, done
        with line.place():
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1
                done += 1

    threads = [threading.Thread(target=start) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == 50
    assert most <= 3


def test_a_place_that_never_gets_free_is_an_error_and_one_that_fails_gives_its_place_back():
    line = StartLine(1, wait_s=0.01)
    with line.place(), pytest.raises(SandboxError, match="1 others have been"), line.place():
        pass
    with pytest.raises(ValueError, match="broken"), line.place():
        raise ValueError("broken")
    with line.place():
        pass
