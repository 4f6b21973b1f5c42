"""Weights as files: checkpoints, adapters, and how a version is checked before it serves."""
