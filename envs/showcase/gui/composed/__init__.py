"""Composed page tasks: several things to do with one request, in six applications at once."""
