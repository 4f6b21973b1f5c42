"""Skills of each application, one action at a time."""
