"""A data set and reward functions: one request, one reply, no environment to write."""

GYM_ID = "ClawRL/Dataset-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.dataset.env:DatasetEnv"
"""Class that it makes."""
