"""A run's folder: what is kept in it, read from it and copied elsewhere."""
