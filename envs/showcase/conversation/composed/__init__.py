"""Conversations in which several things are asked for in turn and success needs memory: facts,
wishes, corrections, exceptions, files."""
