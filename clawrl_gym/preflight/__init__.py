"""Checks and notices before anything starts."""
