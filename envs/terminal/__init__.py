"""A shell in a sandbox, and tasks for it."""

GYM_ID = "ClawRL/Terminal-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.terminal.env:TerminalEnv"
"""Class that it makes."""
