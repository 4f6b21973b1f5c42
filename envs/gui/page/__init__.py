"""One page: what is on it, and how actions reach it."""
