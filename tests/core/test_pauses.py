from itertools import islice

from clawrl_gym.core.processes.pauses import growing_pauses_s


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    assert list(islice(growing_pauses_s(0.5, 3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert list(islice(growing_pauses_s(5.0, 3.0), 2)) == [3.0, 3.0]
