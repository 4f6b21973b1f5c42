import pickle

import gymnasium
import pytest
from gymnasium.vector.utils import batch_space

from clawrl_gym.envs.spaces import Unicode


def test_any_str_up_to_the_length_is_in_the_space():
    space = Unicode(max_length=4)
    assert "" in space
    assert "日本\n\x00" in space
    assert "12345" not in space
    assert b"abc" not in space
    assert None not in space


def test_samples_follow_from_the_seed_and_are_in_the_space():
    first, second = Unicode(seed=3), Unicode(seed=3)
    drawn = [first.sample() for _ in range(50)]
    assert drawn == [second.sample() for _ in range(50)]
    assert len(set(drawn)) > 40
    assert all(sample in first and sample.isprintable() for sample in drawn)


def test_a_sample_is_never_longer_than_the_space_allows():
    space = Unicode(max_length=3, sample_length=50, seed=0)
    assert max(len(space.sample()) for _ in range(100)) == 3


def test_a_mask_is_refused_because_text_is_not_enumerated():
    with pytest.raises(ValueError, match="expected None"):
        Unicode().sample(mask=1)


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match="max_length=-1"):
        Unicode(max_length=-1)


def test_equality_repr_and_pickle_are_those_of_the_length():
    assert Unicode(5) == Unicode(5)
    assert Unicode(5) != Unicode(6)
    assert repr(Unicode(5)) == "Unicode(5)"
    assert pickle.loads(pickle.dumps(Unicode(5))) == Unicode(5)


def test_a_batch_of_text_is_a_tuple_of_texts():
    assert ("a", "b") in batch_space(Unicode(5), 2)


def test_a_vector_of_ours_takes_the_options_that_the_page_says() -> None:
    options = {"shared_memory": False}
    envs = gymnasium.make_vec("ClawRL/ToolCall-v0", 2, "async", vector_kwargs=options)
    try:
        observations, _ = envs.reset(seed=3)
        assert all(isinstance(observation, str) for observation in observations)
        assert list(envs.step(("391", "391"))[2]) == [True, True]
    finally:
        envs.close()
