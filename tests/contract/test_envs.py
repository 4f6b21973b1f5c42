"""What every environment of this package owes to Gymnasium."""

import pickle
import warnings
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from clawrl_gym.core.plugins import load
from clawrl_gym.envs.registration import builtin_specs

SPECS = {spec.id: spec for spec in builtin_specs()}
SECTIONS = ("Observation", "Action", "Reward", "Start", "End", "Options", "Version")

OPTIONS = {
    "ClawRL/Dataset-v0": {
        "data": str(Path(__file__).parents[2] / "examples" / "own_reward.jsonl"),
        "reward": "number",
    }
}
"""Options without which there is nothing to play."""
MARKS = {"ClawRL/Gui-v0": pytest.mark.browser, "ClawRL/SWE-v0": pytest.mark.docker}

pytestmark = pytest.mark.parametrize(
    "env_id", [pytest.param(env_id, marks=MARKS.get(env_id, ())) for env_id in SPECS]
)


def make(env_id, **options):
    return gymnasium.make(SPECS[env_id], **OPTIONS.get(env_id, {}), **options)


AT_ONCE = str.maketrans("|&", "  ")
"""Shells run both sides of these at once, and whose complaint comes first is chance."""


def one_episode(env, seed):
    env.action_space.seed(seed)
    seen = [env.reset(seed=seed)]
    for _ in range(20):
        seen.append(env.step(env.action_space.sample().translate(AT_ONCE)))
        if seen[-1][2] or seen[-1][3]:
            break
    return seen


def total(env, actions):
    """Reward of an episode; what the actions do not end is finished as by the rollout loop."""
    reward = 0.0
    for action in actions:
        _, gained, terminated, truncated, _ = env.step(action)
        reward += gained
        if terminated or truncated:
            return reward
    return reward + env.unwrapped.finish()


@pytest.mark.sandbox
def test_the_environment_passes_gymnasiums_own_check(env_id):
    env = make(env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_close_check=False)
    env.close()


@pytest.mark.sandbox
def test_the_same_seed_gives_the_same_episode(env_id):
    env = make(env_id)
    try:
        first, again = one_episode(env, seed=7), one_episode(env, seed=7)
        other = one_episode(env, seed=8)
    finally:
        env.close()
    assert first == again
    assert first != other


@pytest.mark.sandbox
def test_two_environments_with_one_seed_agree(env_id):
    episodes = []
    for _ in range(2):
        env = make(env_id)
        try:
            episodes.append(one_episode(env, seed=11))
        finally:
            env.close()
    assert episodes[0] == episodes[1]


@pytest.mark.sandbox
def test_info_always_has_the_same_keys_of_the_same_types(env_id):
    env = make(env_id)
    try:
        infos = [step[-1] for step in one_episode(env, seed=3)]
    finally:
        env.close()
    assert {"task", "tools", "next_state_role", "error"} <= set(infos[0])
    for info in infos:
        assert {key: type(value) for key, value in info.items()} == {
            key: type(value) for key, value in infos[0].items()
        }


@pytest.mark.sandbox
def test_the_oracle_gets_the_whole_reward_and_doing_nothing_gets_none(env_id):
    env = make(env_id)
    try:
        for seed in range(4):
            env.reset(seed=seed)
            assert total(env, env.unwrapped.solve()) == 1.0
            env.reset(seed=seed)
            assert total(env, [""] * 20) <= 0.0
    finally:
        env.close()


def test_the_spec_travels_between_processes(env_id):
    spec = SPECS[env_id]
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()).id == env_id


def test_the_class_docstring_is_a_spec_sheet(env_id):
    sheet = load(SPECS[env_id].entry_point, env_id).__doc__
    lines = [line.strip() for line in sheet.splitlines()]
    assert [section for section in SECTIONS if section not in lines] == []


def test_the_id_ends_in_a_version(env_id):
    assert env_id.startswith("ClawRL/")
    assert SPECS[env_id].version is not None
