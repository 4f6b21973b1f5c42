"""A training loop of one's own: environments, policy, learner, swap. Everything else is yours.

python examples/rl_loop.py [STEPS] [KEY=VALUE ...]

GRPO in its simplest form: an episode's advantage is its reward less the mean of its group. The
learner steps on what vLLM sampled; its weights are swapped in while vLLM serves.
"""

import asyncio
import sys
from pathlib import Path

import clawrl_gym as cg

GROUPS, GROUP_SIZE, HELDOUT_TASKS = 24, 8, 60


def group_samples(group: cg.Group, turns_G: list[list[cg.Turn]]) -> list[cg.Sample]:
    """Samples of one group; none when all its episodes earned the same."""
    rewarded = [episode.reward for episode in group.episodes_G if episode.reward is not None]
    if len(set(rewarded)) < 2:
        return []
    mean = sum(rewarded) / len(rewarded)
    samples = []
    for episode, turns in zip(group.episodes_G, turns_G, strict=True):
        if episode.reward is None:  # infrastructure failed: that says nothing about the policy
            continue
        weight = cg.TurnWeights(advantage=episode.reward - mean)
        for segment in cg.merge_turns(turns).sequences:  # turns whose ids extend each other
            weights = dict.fromkeys(segment.turn_indices, weight)
            samples.append(cg.make_sample(group, episode, segment, weights))
    return samples


async def collect(
    policy: cg.ServedPolicy, environments: cg.Environments, tasks: cg.TaskSampler, step: int
) -> tuple[list[cg.Sample], float]:
    """The samples of one batch of groups, and their mean reward."""
    numbers = range(step * GROUPS, (step + 1) * GROUPS)
    groups = await asyncio.gather(
        *(environments.group(tasks.train(n), GROUP_SIZE, version=policy.version) for n in numbers)
    )
    samples, rewards = [], []
    for group in groups:
        turns_G = [await policy.store.turns_of(e.session_id) for e in group.episodes_G]
        samples += group_samples(group, turns_G)
        rewards += [e.reward for e in group.episodes_G if e.reward is not None]
    return samples, sum(rewards) / max(1, len(rewards))


async def main(steps: int, overrides: list[str]) -> float:
    """Train; returns the share of held-out tasks solved at the end."""
    config = cg.load_config(["env=terminal", "policy=tiny", *overrides])
    tasks = cg.TaskSampler.of(config.env, config.seed)
    async with (
        cg.ServedPolicy(config) as policy,
        cg.Environments(config.env, policy.address, config.agent) as environments,
    ):
        learner = cg.Learner(
            config.trainer, config.learner, str(policy.model), config.seed, policy.device
        )
        weights = Path(policy.folder.path, "weights")
        before = await environments.evaluate(tasks.heldout(HELDOUT_TASKS))
        print(f"held-out before: {before.success:.0%} of {before.n}")
        for step in range(steps):
            samples, reward = await collect(policy, environments, tasks, step)
            await asyncio.to_thread(learner.step, samples, policy.version)
            await asyncio.to_thread(learner.save_weights, str(weights))
            pause_s = await policy.publish(weights)
            print(f"step {step + 1}: reward {reward:.3f}, swap {pause_s:.3f} s")
        after = await environments.evaluate(tasks.heldout(HELDOUT_TASKS))
        print(f"held-out after {steps} updates: {after.success:.0%} of {after.n}")
    return after.success


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:] else 10
    asyncio.run(main(count, sys.argv[2:]))
