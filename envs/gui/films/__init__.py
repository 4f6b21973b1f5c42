"""Pictures of pages, and films of episodes."""
