"""Chromium: one a worker, shut off from the host, with a fresh context for each episode."""
