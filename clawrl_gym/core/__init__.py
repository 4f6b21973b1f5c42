"""The project's types and errors, and helpers that every package may use.

Imports no other room.
"""
