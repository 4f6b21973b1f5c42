"""Agents that work inside an episode's sandbox: their recipes, installations and starts."""
