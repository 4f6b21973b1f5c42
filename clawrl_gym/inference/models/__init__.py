"""Models as folders: where they come from, their shape, template and tokens."""
