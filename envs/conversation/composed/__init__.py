"""Conversations in which several things are asked for in turn, and memory of what was said decides:
facts, wishes, corrections, exceptions, files."""
