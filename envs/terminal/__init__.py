"""A shell in a sandbox, and tasks for it."""

GYM_ID = "ClawRL/Terminal-v0"
"""What `gymnasium.make` takes."""
GYM_CLASS = "clawrl_gym.envs.terminal.env:TerminalEnv"
"""What it makes."""
