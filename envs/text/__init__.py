"""A request, one reply, and a grader: tasks in text that end with the first answer."""

GYM_ID = "ClawRL/Text-v0"
"""What `gymnasium.make` takes."""
GYM_CLASS = "clawrl_gym.envs.text.env:SingleReplyEnv"
"""What it makes."""
