"""Placement of a run's parts: Ray, its nodes, workers and actors."""
