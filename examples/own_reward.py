"""A reward function for the rows of own_reward.jsonl.

python -m clawrl_gym.train env=dataset \\
    env.data=examples/own_reward.jsonl env.reward=examples.own_reward:close
"""

import re


def close(reply: str, answer: str) -> float:
    """1 for the right number at the end of the reply, less the farther away it is."""
    numbers = re.findall(r"\d+", reply)
    return 1 / (1 + abs(int(numbers[-1][:9]) - int(answer))) if numbers else 0.0
