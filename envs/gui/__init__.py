"""Tasks on web pages in a real browser."""

GYM_ID = "ClawRL/Gui-v0"
"""What `gymnasium.make` takes."""
GYM_CLASS = "clawrl_gym.envs.gui.env:GuiEnv"
"""What it makes."""
