"""Twins of what grades: the same with another expectation, which nothing right can meet."""
