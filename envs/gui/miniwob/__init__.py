"""The pages of MiniWoB++ as tasks."""
