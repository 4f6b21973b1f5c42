"""A request, one reply, and a grader: tasks in text that end with the first answer."""

GYM_ID = "ClawRL/Text-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.text.env:SingleReplyEnv"
"""Class that it makes."""
