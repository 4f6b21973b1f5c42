"""Algorithms: from rewards and verdicts to advantages."""
