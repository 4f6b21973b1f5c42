"""Repositories with an issue, in the fields of SWE-bench."""

GYM_ID = "ClawRL/SWE-v0"
"""What `gymnasium.make` takes."""
GYM_CLASS = "clawrl_gym.envs.swe.env:SweEnv"
"""What it makes."""
