"""What is checked and told before anything starts."""
