"""Tool-call benchmarks that others made, read from a copy that the user has."""
