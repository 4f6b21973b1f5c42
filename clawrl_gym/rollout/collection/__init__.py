"""Many episodes: which tasks, how many at once, in which groups."""
