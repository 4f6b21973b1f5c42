"""A request, and tools to meet it with."""

GYM_ID = "ClawRL/ToolCall-v0"
"""What `gymnasium.make` takes."""
GYM_CLASS = "clawrl_gym.envs.toolcall.env:ToolCallEnv"
"""What it makes."""
