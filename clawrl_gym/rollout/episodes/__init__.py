"""One episode: its chat, deadline, evidence and reward."""
