"""What can be done in each application, one thing at a time."""
