"""Sessions: found, kept, ended."""
