"""A user with a problem and a wish that is not said."""

GYM_ID = "ClawRL/Conversation-v0"
"""What `gymnasium.make` takes."""
GYM_CLASS = "clawrl_gym.envs.conversation.env:ConversationEnv"
"""What it makes."""
