"""From a command line to a configuration."""
