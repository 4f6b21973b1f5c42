"""Episodes of an environment of one's own and of a task folder, on each node of a cluster.

python travel.py HOST:PORT     where `own.py` and tasks/ lie in /tmp/project of this machine alone
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from clawrl_gym.cluster.cluster import Cluster
from clawrl_gym.cluster.environments import Environments
from clawrl_gym.config import RayConfig
from clawrl_gym.core.types import TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.rollout.episodes.chat import PolicyAddress

NOBODY = PolicyAddress("http://127.0.0.1:1/v1", "key", "model", is_gateway=False)
PLAYED = (
    (GymEnvConfig(target="own:Own"), TaskRef(None, 0, "train")),
    (TerminalEnvConfig(tasks="/tmp/project/tasks"), TaskRef("hello", 0, "train")),
)


async def main(address: str) -> None:
    """Print what became of four episodes of each."""
    cluster = Cluster(RayConfig(address=address), modules={"own"})
    await cluster.start()
    try:
        for env, task in PLAYED:
            async with AsyncExitStack() as stack:
                environments = Environments(
                    env, NOBODY, slots=4, workers=1, cluster=cluster, say=print
                )
                await environments.start(stack)
                while environments.pool.workers < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                episodes = await asyncio.gather(*(environments.episode(task) for _ in range(4)))
                ends = {(episode.stop_reason.value, episode.error) for episode in episodes}
                sys.stdout.write(f"{env.type} {ends}\n")
    finally:
        cluster.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
