"""Where the parts of a run live: Ray, its nodes, workers and actors."""
