"""Instances of data sets: read, set up, run and graded."""
