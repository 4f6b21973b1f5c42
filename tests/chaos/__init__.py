"""Faults in real runs, and what must hold after each: `bench/chaos.py` puts them together."""
