"""Tasks on web pages in a real browser."""

GYM_ID = "ClawRL/Gui-v0"
"""Id for `gymnasium.make`."""
GYM_CLASS = "clawrl_gym.envs.gui.env:GuiEnv"
"""Class that it makes."""
