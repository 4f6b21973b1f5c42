"""Tasks generated for the small shipped policies. No kind imports it: see `shipped_tasks`."""
