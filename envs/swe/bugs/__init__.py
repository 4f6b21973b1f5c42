"""Bugs made in a repository of one's own: small wrong changes that its own tests notice."""
