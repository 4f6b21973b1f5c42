"""Repositories with an issue, in the fields of SWE-bench."""

GYM_ID = "ClawRL/SWE-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.swe.env:SweEnv"
"""Class that it makes."""
