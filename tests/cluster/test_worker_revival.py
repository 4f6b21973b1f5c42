"""A rollout worker whose process ends: what was in it fails, what comes after waits for another."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from clawrl_gym.cluster import cluster
from clawrl_gym.cluster.environments import Environments
from clawrl_gym.core.types import StopReason, TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.rollout.episodes.chat import PolicyAddress

MODULE = '''
import os
from pathlib import Path

import gymnasium
from clawrl_gym.envs.spaces import Unicode


class Leaves(gymnasium.Env):
    """Ends its process once, in the task with the seed 7; keeps 40 MiB of each episode."""

    observation_space = action_space = Unicode()
    kept = []

    def __init__(self, mark):
        self.mark = Path(mark)

    def reset(self, *, seed=None, options=None):
        if seed == 7 and not self.mark.exists():
            self.mark.write_text("")
            os._exit(5)
        if seed > 100:
            self.kept.append(bytes(range(256)) * (40 << 12))
        return "go", {}

    def step(self, action):
        return "done", 1.0, True, False, {}
'''


@pytest.mark.nightly
@pytest.mark.ray
async def test_a_worker_that_ended_or_leaks_is_replaced_and_episodes_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    env = GymEnvConfig(target="leaves:Leaves", kwargs={"mark": str(tmp_path / "mark")})
    nobody = PolicyAddress("http://127.0.0.1:1/v1", "k", "m", is_gateway=False)
    ray = cluster.Cluster()
    await ray.start()
    try:
        async with AsyncExitStack() as stack:
            environments = Environments(env, nobody, slots=2, workers=1, growth_mb=100)
            await environments.start(stack)

            async def play(seed: int) -> tuple[StopReason, str, str]:
                episode = await environments.episode(TaskRef(None, seed, "train"))
                return episode.stop_reason, episode.error or "", episode.notice or ""

            reason, error, _ = await play(7)
            assert reason is StopReason.ENV_ERROR
            assert "worker 1 failed: its process ended" in error
            assert (await play(7))[0] is StopReason.POLICY_ERROR  # it started: nobody answers it
            notices = [(await play(seed))[2] for seed in range(101, 113)]
            cures = [notice for notice in notices if notice]
            assert "its environments are recreated" in cures[0]
            assert "new environments freed nothing: it is replaced" in cures[1]
            assert (await play(8))[0] is StopReason.POLICY_ERROR
    finally:
        ray.stop()
