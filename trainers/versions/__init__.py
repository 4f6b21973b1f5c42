"""Versions over time: which stay, which is healthy, what users complain about."""
