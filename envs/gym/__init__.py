"""Environments of others, registered with Gymnasium or named by their import path."""
