"""The APIs that clients speak, one file each between their wire format and chat requests."""
