"""A user with a problem and a wish that is not said."""

GYM_ID = "ClawRL/Conversation-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.conversation.env:ConversationEnv"
"""Class that it makes."""
