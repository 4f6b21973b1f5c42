"""A request, and tools to meet it with."""

GYM_ID = "ClawRL/ToolCall-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.toolcall.env:ToolCallEnv"
"""Class that it makes."""
