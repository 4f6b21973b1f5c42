"""Who may come in, and how much of everything each may take."""
