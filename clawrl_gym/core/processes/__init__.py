"""Processes: those that were started, how they end, what slows them down."""
