"""Models as judges: endpoints, prompts, votes."""
