"""A user with a problem and a wish that the first message does not say."""

GYM_ID = "ClawRL/Conversation-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.conversation.env:ConversationEnv"
"""Class that it makes."""
